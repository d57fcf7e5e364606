# ruff: noqa: S608 - constants of this package; Grafana quotes what users choose (:sqlstring).
"""Panels for metrics of the catalogue: unit, description, combination, clients without it.

Metrics are named without ``org.apache.kafka.``. The dashboards have the variables of ``choices``.
Panels read the small fleet tables if only cluster and software are chosen, and the clients' series
otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from deploy.dashboards.panels import Panel, column, lines, number, rows
from deploy.dashboards.ranges import IS_FEW, latest, over_range
from deploy.dashboards.sql import (
    BESIDE_SPREAD_GRAINS,
    BY_CLIENT,
    BY_FLEET,
    DAY_S,
    GRAINS,
    MANY_GRAINS,
    MEAN,
    SEEN,
    Source,
    are_all,
    choices,
    chosen,
    either,
    gauges,
    in_range,
    name_of_software,
    of_metrics,
    over_time,
    per_bucket,
    per_second,
    quantiles,
    quoted,
    union,
)
from deploy.dashboards.units import unit_of
from receiver.catalogue import CATALOGUE, Combination, StandardMetric

#: The fewest clients that have quantiles: 5 % of 20 is one.
MANY: Final = 20
#: What the latency of consumers' requests contains.
WAITS: Final = (
    "It contains the broker's wait for data: fetches that find nothing wait for `fetch.max.wait.ms` (500 ms "
    "unless set)."
)
_UNFILTERED: Final = f"{are_all(list(BY_CLIENT))} AND {chosen(BY_FLEET)}"
_FILTERED: Final = f"NOT {are_all(list(BY_CLIENT))} AND {chosen(BY_FLEET | BY_CLIENT)}"
#: The views to read, each with the condition under which it is the one; a principal or group may be
#: of many.
_SOURCES: Final = (
    Source(view="fleet", condition=_UNFILTERED),
    Source(view="metric", condition=_FILTERED, grains=either(are_all(["client_id"]), MANY_GRAINS, GRAINS)),
)
#: The same for a number of the range. Of few clients, each one's time decides.
_ALL: Final = chosen(BY_FLEET | BY_CLIENT)
_OF_RANGE: Final = (
    Source(view="fleet", condition=f"{_UNFILTERED} AND NOT {IS_FEW}"),
    Source(
        view="metric",
        condition=f"(NOT {are_all(list(BY_CLIENT))} OR {IS_FEW}) AND {_ALL}",
        by_series=True,
    ),
)
_BESIDE_SPREAD: Final = (replace(_SOURCES[0], grains=BESIDE_SPREAD_GRAINS), _SOURCES[1])

_SENDING: Final = f"unnest({choices('sending')}) AS sending (client_software_name)"
#: The begin of the range, as the time of a step.
STEP: Final = "($__from / $__interval_ms) * $__interval_ms / 1000"
_SHARES: Final = {"median client": 0.5, "95 % of clients below": 0.95, "99 % of clients below": 0.99}
#: For metrics of which small values are bad.
_LOW_SHARES: Final = {"1 % of clients below": 0.01, "5 % of clients below": 0.05, "median client": 0.5}


def standard(name: str) -> StandardMetric:
    """Return a metric of the catalogue, or raise KeyError."""
    found = CATALOGUE.metric(f"org.apache.kafka.{name}")
    if found is None:
        raise KeyError(f"org.apache.kafka.{name} is not in the catalogue: check the name")
    return found


def waits(name: str) -> str:
    """Return the sentence :data:`WAITS` for the latency of consumers' requests, else nothing."""
    is_waiting = name.startswith("consumer.") and ("request.latency" in name or "fetch.latency" in name)
    return f" {WAITS}" if is_waiting else ""


def metric_lines(
    title: str,
    name: str,
    *,
    advice: str = "",
    width: int = 12,
    stacked: bool = True,
    decimals: int | None = None,
) -> Panel:
    """Build a panel over time of a metric that adds up over clients, one line for each software.

    ``advice`` says what follows from the values.
    """
    metric = standard(name)
    unit, _ = unit_of(metric)
    query = f"{union([_combined(metric), not_sent([metric])])}\nORDER BY 1, 2"
    return lines(
        title, _words([metric], advice), unit, query, width=width, stacked=stacked, decimals=decimals
    )


def spread_lines(
    title: str,
    average: str,
    maximum: str | None,
    *,
    advice: str = "",
    width: int = 12,
    low_is_bad: bool = False,
) -> Panel:
    """Build a panel over time of a metric that is a distribution over clients.

    It shows quantiles of all clients, if there are :data:`MANY`. It shows their mean and maximum
    beside them, or alone if clients are chosen.
    ``low_is_bad``: it shows low quantiles and the minimum instead.
    """
    metrics = [standard(average)] if maximum is None else [standard(average), standard(maximum)]
    unit, _ = unit_of(metrics[0])
    mean = over_time(
        series="'mean'",
        value=MEAN,
        sources=of_metrics([metrics[0].name], _BESIDE_SPREAD),
    )
    extreme = over_time(
        series="'minimum'" if low_is_bad else "'maximum'",
        value="min(min)" if low_is_bad else "max(max)",
        sources=of_metrics([metrics[-1].name], _BESIDE_SPREAD),
    )
    shares = _LOW_SHARES if low_is_bad else _SHARES
    query = union(
        [
            quantiles(
                metric=metrics[0].name, shares=shares, condition=f"{_UNFILTERED} AND {_are_many(average)}"
            ),
            gauges(mean),
            gauges(extreme),
            not_sent(metrics),
        ]
    )
    return lines(
        title,
        _words(metrics, f"{advice} Quantiles of at least {MANY} clients.".strip()),
        unit,
        f"{query}\nORDER BY 1, 2",
        width=width,
        smallest_first=low_is_bad,
    )


def total(
    title: str,
    name: str,
    *,
    width: int = 4,
    warnings: Mapping[float, str] | None = None,
    counted: bool = False,
) -> Panel:
    """Build one number of the range.

    It is the rate a second over the time that has data, or the number in this time if it is
    ``counted``; the newest value of a count; or the largest value. The title says if only some
    client software sends the metric.
    """
    metric = standard(name)
    unit, factor = unit_of(metric)
    if metric.combines is Combination.LAST:
        rows_of_range = latest(by=["metric"], sources=of_metrics([metric.name], _SOURCES))
        value = "max(newest)"
        how = "The newest value in this time, added up over clients."
    else:
        of_rate = metric.combines is Combination.SUM and not counted
        rows_of_range = over_range(
            by=["metric"],
            sources=of_metrics([metric.name], _OF_RANGE if of_rate else _SOURCES),
            clients=_ALL,
            rates=of_rate,
        )
        if metric.combines is Combination.MAX:
            value, how = "max(most)", "The largest value in this time."
        elif counted:
            unit = "short"
            value, how = "max(added)", "How many in this time."
        else:
            value = f"max(rate * {factor!r})"
            how = "The mean over the time in which clients pushed."
    query = (
        f"SELECT CASE WHEN {_sent_by_some(metric)} THEN {value} ELSE 'NaN' END AS value\n"
        f"FROM (\n{rows_of_range}\n) AS found"
    )
    return number(
        f"{title}{_only(metric)}", _words([metric], how), unit, query, width=width, warnings=warnings
    )


def _are_many(name: str) -> str:
    """Return the condition, constant in a query, that many clients may have a metric."""
    group = "NOT NULL" if name.startswith("consumer.") else "NULL"
    return (
        f"(SELECT count(*) >= {MANY} FROM (SELECT FROM telemetry.client AS c\n"
        f"      WHERE {SEEN} AND c.group_id IS {group} AND {chosen(BY_FLEET)} LIMIT {MANY}) AS a_few)"
    )


def support(names: Sequence[str]) -> Panel:
    """Build the table that shows which software lacks a metric, and which did not send it."""
    metrics = quoted([standard(name).name for name in names])
    query = (
        "SELECT c.metric, c.description, sending.client_software_name AS software,\n"
        "  CASE\n"
        "    WHEN EXISTS (\n"
        "      SELECT FROM telemetry.fleet_1d f\n"
        f"      WHERE {in_range('1d', before_s=DAY_S, table='f.')}\n"
        "        AND f.metric = c.metric AND f.client_software_name = sending.client_software_name\n"
        f"        AND {chosen({'cluster': 'f.cluster_id'})}\n"
        "    ) THEN 'sent'\n"
        "    WHEN s.client IS NULL THEN 'no data, unknown software'\n"
        "    WHEN s.client = ANY (c.clients) THEN 'no data, though it could be'\n"
        "    ELSE 'not sent by it'\n"
        "  END AS state\n"
        f"FROM telemetry.catalogue c\nCROSS JOIN {_SENDING}\n"
        "LEFT JOIN telemetry.software s USING (client_software_name)\n"
        f"WHERE c.metric IN ({metrics})\nORDER BY c.metric, software"
    )
    return rows(
        "Which software sends which metric",
        "Why a panel is empty. *not sent by it*: no version of the client in the catalogue has the metric. "
        "*no data, though it could be*: no subscription asks for it, or no push arrived in this time.",
        query,
        {
            "metric": column("Metric", width=480),
            "description": column("Meaning"),
            "software": column("Software", width=220),
            "state": column(
                "State",
                width=240,
                colours={
                    "sent": "green",
                    "not sent by it": "text",
                    "no data, though it could be": "orange",
                    "no data, unknown software": "orange",
                },
            ),
        },
    )


def _combined(metric: StandardMetric) -> str:
    _, factor = unit_of(metric)
    sources = of_metrics([metric.name], _SOURCES)
    if metric.combines is Combination.MAX:
        extremes = over_time(series=name_of_software, value="max(max)", sources=sources)
        return gauges(extremes)
    added = over_time(series=name_of_software, value="sum(sum)", sources=sources)
    return per_second(added, factor=factor) if metric.combines is Combination.SUM else per_bucket(added)


def not_sent(metrics: Sequence[StandardMetric]) -> str:
    """Return an empty series for each software without the metrics, for the legend."""
    clients = sorted({client for metric in metrics for client in metric.clients})
    return (
        f"SELECT {STEP} AS time, 'not sent by ' || client_software_name AS metric, NULL AS value\n"
        f"FROM {_SENDING} JOIN telemetry.software USING (client_software_name)\n"
        f"WHERE client <> ALL (ARRAY[{quoted(clients)}]::text[])"
    )


def _sent_by_some(metric: StandardMetric) -> str:
    return (
        f"NOT EXISTS (SELECT FROM {_SENDING}) OR EXISTS (\n"
        f"  SELECT FROM {_SENDING} LEFT JOIN telemetry.software USING (client_software_name)\n"
        f"  WHERE client IS NULL OR client = ANY (ARRAY[{quoted(sorted(metric.clients))}]::text[]))"
    )


def _only(metric: StandardMetric) -> str:
    """Return the end of a title: the only client software that sends the metric, if it is one."""
    names = {"java": "Java"}
    return f", {names.get(metric.clients[0], metric.clients[0])} only" if len(metric.clients) == 1 else ""


def _words(metrics: Sequence[StandardMetric], advice: str) -> str:
    described = "\n\n".join(f"`{metric.name}`: {metric.description}" for metric in metrics)
    clients = ", ".join(sorted({client for metric in metrics for client in metric.clients}))
    return f"{described}\n\nSent by {clients}." + (f"\n\n{advice}" if advice else "")
