"""Expands dashboards' PostgreSQL queries, of panels and variables, as Grafana does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.testbed.grafana_sql import TimeRange, Variable, expand, interval_s

CHART: Final = Path(__file__).parents[2] / "deploy" / "helm" / "kafka-client-telemetry"
#: The generated dashboards by name.
DASHBOARDS: Final[Mapping[str, dict[str, Any]]] = {
    path.stem: json.loads(path.read_text()) for path in sorted((CHART / "dashboards").glob("*.json"))
}
_PANEL_WIDTH: Final = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One query.

    Attributes:
        title: Of the panel, or the variable's name.
        sql: As it goes to the server.
        over_time: Whether its answer is a time series.
    """

    title: str
    sql: str
    over_time: bool


def key_of(text: str) -> str:
    """Return a text's variable value: a PostgreSQL array of it alone, in hexadecimal."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'{{"{quoted}"}}'.encode().hex()


def chosen(
    dashboard: Mapping[str, Any],
    connection: psycopg.Connection[tuple[Any, ...]],
    window: TimeRange,
    wanted: Mapping[str, str],
) -> dict[str, Variable]:
    """The variables of a dashboard, each asked for its values as those before it are chosen.

    Args:
        dashboard: Its JSON.
        connection: Of a role that may read.
        window: The time range.
        wanted: Texts to choose by name, nothing where no option has one; other variables are left
            at All or at the first option.
    """
    variables: dict[str, Variable] = {}
    for model in dashboard["templating"]["list"]:
        name = model["name"]
        if model["type"] == "custom":
            variables[name] = Variable(name=name, values=(model["current"]["value"],))
        elif model["type"] == "constant":
            variables[name] = Variable(name=name, values=(wanted.get(name, model["query"]),))
        elif model["type"] == "query" and isinstance(model["query"], str):
            sql = expand(model["query"], window=window, interval=60, variables=variables.values())
            found = [
                (str(text), str(value))
                for text, value in psycopg.RawCursor(connection).execute(sql.encode()).fetchall()
            ]
            several = bool(model.get("includeAll"))
            if name in wanted:
                found = [(text, value) for text, value in found if text == wanted[name]] or [("", "")]
            elif not several:
                found = found[:1] or [("", "")]
            variables[name] = Variable(
                name=name,
                texts=tuple(text for text, _ in found),
                values=tuple(value for _, value in found),
                several=several,
                all_value=model.get("allValue"),
                all_chosen=several and name not in wanted,
            )
    return variables


def asked(
    dashboard: Mapping[str, Any], variables: Mapping[str, Variable], window: TimeRange
) -> Iterator[Asked]:
    """The queries of a dashboard's panels and variables.

    Args:
        dashboard: Its JSON.
        variables: What is chosen.
        window: The time range.
    """
    resolution = variables["resolution"].values[0] if "resolution" in variables else "1m"
    for model in dashboard["templating"]["list"]:
        if model["type"] == "query" and isinstance(model["query"], str):
            sql = expand(model["query"], window=window, interval=60, variables=variables.values())
            yield Asked(title=f"${model['name']}", sql=sql, over_time=False)
    for mark in dashboard.get("annotations", {}).get("list", ()):
        sql = expand(mark["target"]["rawSql"], window=window, interval=60, variables=variables.values())
        yield Asked(title=f"marks: {mark['name']}", sql=sql, over_time=False)
    for panel in dashboard["panels"]:
        interval = interval_s(
            window,
            points=int(panel.get("maxDataPoints", _PANEL_WIDTH)),
            minimum=panel.get("interval", "1m").replace("${resolution}", resolution),
        )
        for target in panel.get("targets", ()):
            if "rawSql" in target:
                yield Asked(
                    title=panel["title"],
                    sql=expand(
                        target["rawSql"], window=window, interval=interval, variables=variables.values()
                    ),
                    over_time=target["format"] == "time_series",
                )
