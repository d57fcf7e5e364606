"""Variables and panels of the dashboards of the receivers' own metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from grafana_foundation_sdk.builders.dashboard import QueryVariable
from grafana_foundation_sdk.models import dashboard as models

from deploy.dashboards.grafana import Dashboard
from deploy.dashboards.panels import NO_DATA, Panel, lines, number
from deploy.dashboards.queries import PROMETHEUS, promql, promql_by_legend

#: Selects the receivers that the user chose.
WHERE: Final = 'job=~"$job", instance=~"$instance"'
#: The time of rates.
RATE: Final = "$__rate_interval"
#: Zero while a receiver is scraped, and nothing otherwise.
ZERO: Final = f"0 * max(kafka_telemetry_ready{{{WHERE}}})"


def receivers(uid: str, title: str, description: str) -> Dashboard:
    """Build a dashboard without panels, with the variables that choose receivers."""
    board = Dashboard(uid, title, description, start="now-3h")
    return board.sources(postgres=False, prometheus=True).variables(
        _labels("job", "Job", "Jobs that scrape receivers", "label_values(kafka_telemetry_ready, job)"),
        _labels(
            "instance",
            "Receiver",
            "Receivers by the address that is scraped",
            'label_values(kafka_telemetry_ready{job=~"$job"}, instance)',
        ),
    )


def _labels(name: str, label: str, description: str, query: str) -> QueryVariable:
    return (
        QueryVariable(name)
        .label(label)
        .description(description)
        .datasource(PROMETHEUS)
        .query({"query": query, "refId": name})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(".+")
        .current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def now(
    title: str,
    description: str,
    expression: str,
    *,
    unit: str = "short",
    warnings: Mapping[float, str] | None = None,
    nothing: str = NO_DATA,
) -> Panel:
    """Build a number of the present."""
    query = promql(expression, "", instant=True)
    return number(title, description, unit, query, source=PROMETHEUS, warnings=warnings, nothing=nothing)


def graph(
    title: str,
    description: str,
    unit: str,
    expressions: dict[str, str],
    *,
    stacked: bool = False,
    most: float | None = None,
) -> Panel:
    """Build lines over time; ``expressions`` has PromQL by legend."""
    queries = promql_by_legend(expressions)
    return lines(title, description, unit, queries, width=8, source=PROMETHEUS, stacked=stacked, most=most)


def none(label: str) -> str:
    """Return zero with the label ``none`` if a receiver is scraped, for the lack of any series."""
    return f'label_replace({ZERO}, "{label}", "none", "", "")'
