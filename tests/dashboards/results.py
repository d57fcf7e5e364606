"""Converts query results to Grafana's data frames, in the JSON that its front end reads."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import httpx
import psycopg
from psycopg import postgres

from tests.testbed.grafana_sql import TimeRange

_STATEMENT_TIMEOUT_MS = 30_000
_NUMBERS = {
    postgres.types[name].oid for name in ("int2", "int4", "int8", "float4", "float8", "numeric", "oid")
}
_TIMES = {postgres.types[name].oid for name in ("timestamptz", "timestamp", "date")}
_BOOLEAN = postgres.types["bool"].oid

_NOT_FINITE: Mapping[str, Callable[[float], bool]] = {
    "NaN": math.isnan,
    "Inf": lambda value: value == math.inf,
    "NegInf": lambda value: value == -math.inf,
}

Frame = dict[str, Any]
_Column = tuple[str, str, list[Any]]


class QueryRefusedError(Exception):
    """A data source refused a query, or Grafana could not make a frame of the answer."""


def connect(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    """A read-only connection for panels' queries.

    Args:
        url: ``postgresql://...``.
    """
    options = (
        f"-c default_transaction_read_only=on -c statement_timeout={_STATEMENT_TIMEOUT_MS} -c timezone=UTC"
    )
    return psycopg.connect(url, autocommit=True, options=options)


def postgres_frame(
    connection: psycopg.Connection[tuple[Any, ...]],
    sql: str,
    *,
    ref_id: str,
    time_series: bool,
    fill: tuple[TimeRange, int] | None = None,
) -> Frame:
    """Run a query and build the frame that Grafana's PostgreSQL data source builds.

    Args:
        connection: See :func:`connect`.
        sql: Expanded.
        ref_id: The target's letter.
        time_series: Whether the target's format is ``time_series`` rather than ``table``.
        fill: The time range and the step in seconds in which a time series gets NULL where it has
            no row, which the macro's third argument asks for.

    Raises:
        QueryRefusedError: PostgreSQL refused it, or a time series has no time or isn't in its
            order.
    """
    try:
        # Grafana sends plain text: placeholders and prepared statements would change what % means.
        cursor = psycopg.RawCursor(connection).execute(sql.encode())
        rows = cursor.fetchall()
    except psycopg.Error as error:
        raise QueryRefusedError(f"db query error: {str(error).strip()}") from error
    columns = [
        _column(column.name, column.type_code, [row[index] for row in rows])
        for index, column in enumerate(cursor.description or ())
    ]
    if not rows:
        return _frame(ref_id, [])
    if not time_series:
        return _frame(ref_id, [(*column, {}) for column in columns])
    wide = _wide(columns)
    return _frame(ref_id, wide if fill is None else _filled(wide, *fill))


def _column(name: str, oid: int, values: list[Any]) -> _Column:
    if name == "time" and oid in _NUMBERS:
        return name, "time", [None if value is None else round(float(value) * 1000) for value in values]
    if oid in _TIMES:
        return name, "time", [None if value is None else _milliseconds(value) for value in values]
    if oid in _NUMBERS:
        return name, "number", [float(value) if isinstance(value, Decimal) else value for value in values]
    if oid == _BOOLEAN:
        return name, "boolean", values
    return name, "string", [value if value is None else _text(value) for value in values]


def _milliseconds(value: Any) -> int:
    at = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def _wide(columns: Sequence[_Column]) -> list[tuple[str, str, list[Any], dict[str, str]]]:
    times = next((values for name, kind, values in columns if kind == "time" and name == "time"), None)
    if times is None:
        raise QueryRefusedError("db has no time column: a time series needs one that is called time")
    if any(later < earlier for earlier, later in pairwise(times)):
        raise QueryRefusedError("long series must be sorted ascending by time: add ORDER BY 1")
    numbers = [(name, values) for name, kind, values in columns if kind == "number"]
    factors = [(name, values) for name, kind, values in columns if kind in {"string", "boolean"}]
    if not factors:
        return [("Time", "time", times, {}), *((name, "number", values, {}) for name, values in numbers)]
    rows = {at: index for index, at in enumerate(dict.fromkeys(times))}
    series: dict[tuple[str, tuple[str, ...]], list[Any]] = {}
    for index, at in enumerate(times):
        labels = tuple(_label(values[index]) for _, values in factors)
        for name, values in numbers:
            series.setdefault((name, labels), [None] * len(rows))[rows[at]] = values[index]
    keys = [name for name, _ in factors]
    named_by_metric = len(columns) == 3 and keys == ["metric"]
    return [
        ("Time", "time", list(rows), {}),
        *(
            (labels[0] if named_by_metric else name, "number", series[name, labels],
             {} if named_by_metric else dict(zip(keys, labels, strict=True)))
            for name, labels in sorted(series)
        ),
    ]  # fmt: skip


def _filled(
    fields: list[tuple[str, str, list[Any], dict[str, str]]], window: TimeRange, step_s: int
) -> list[tuple[str, str, list[Any], dict[str, str]]]:
    first = int(window.start.timestamp() // step_s * step_s)
    steps = range(first * 1000, round(window.end.timestamp() * 1000) + 1, step_s * 1000)
    rows = {at: index for index, at in enumerate(fields[0][2])}
    times = sorted({*steps, *rows})
    filled = [
        (name, kind, [values[rows[at]] if at in rows else None for at in times], labels)
        for name, kind, values, labels in fields[1:]
    ]
    return [("Time", "time", times, {}), *filled]


def _label(value: str | bool | None) -> str:
    return str(value).lower() if isinstance(value, bool) else value or ""


def prometheus_frames(
    client: httpx.Client,
    target: Mapping[str, Any],
    expression: str,
    *,
    window: TimeRange,
    step_s: int,
    of_several: bool = False,
) -> list[Frame]:
    """Run a query and build the frames that Grafana's Prometheus data source builds.

    Args:
        client: With Prometheus as its base URL.
        target: The panel's target.
        expression: Its ``expr``, expanded.
        window: The time range.
        step_s: ``$__interval`` in seconds.
        of_several: Whether the panel has other targets too.

    Raises:
        QueryRefusedError: Prometheus refused it.
    """
    end = window.end.timestamp()
    if target.get("instant"):
        response = client.get("/api/v1/query", params={"query": expression, "time": end})
    else:
        start = window.start.timestamp() // step_s * step_s
        response = client.get(
            "/api/v1/query_range",
            params={"query": expression, "start": start, "end": end, "step": step_s},
        )
    answer = response.json()
    if answer["status"] != "success":
        raise QueryRefusedError(answer["error"])
    series = [(item["metric"], item.get("values") or [item["value"]]) for item in answer["data"]["result"]]
    if target.get("format") == "table":
        return [_prometheus_table(target["refId"], series, of_several)]
    frames = []
    for labels, samples in series:
        known = dict(samples)
        # A step without a sample is a gap in the picture.
        times = [at for at, _ in samples] if target.get("instant") else _steps(start, end, step_s)
        values = [float(known[at]) if at in known else None for at in times]
        name = _legend(target.get("legendFormat", ""), labels)
        value = ("Value", "number", values, labels)
        frames.append(
            _frame(target["refId"], [("Time", "time", [round(at * 1000) for at in times], {}), value], name)
        )
    return frames


def _steps(start: float, end: float, step_s: int) -> list[float]:
    return [start + index * step_s for index in range(int((end - start) // step_s) + 1)]


def _prometheus_table(
    ref_id: str, series: list[tuple[dict[str, str], list[tuple[float, str]]]], of_several: bool
) -> Frame:
    rows = [(labels, at, value) for labels, samples in series for at, value in samples]
    keys = sorted({key for labels, _, _ in rows for key in labels})
    return _frame(
        ref_id,
        [
            ("Time", "time", [round(at * 1000) for _, at, _ in rows], {}),
            *((key, "string", [labels.get(key, "") for labels, _, _ in rows], {}) for key in keys),
            (
                f"Value #{ref_id}" if of_several else "Value",
                "number",
                [float(value) for _, _, value in rows],
                {},
            ),
        ],
    )


def _legend(template: str, labels: Mapping[str, str]) -> str | None:
    if template in {"", "__auto"}:
        return None
    for key, value in labels.items():
        template = template.replace("{{" + key + "}}", value).replace("{{ " + key + " }}", value)
    return template


def _frame(
    ref_id: str, fields: Sequence[tuple[str, str, list[Any], dict[str, str]]], name: str | None = None
) -> Frame:
    return {
        "schema": {
            "refId": ref_id,
            "fields": [
                {
                    "name": column,
                    "type": kind,
                    "labels": labels or None,
                    "config": {"displayNameFromDS": name} if name and kind == "number" else {},
                }
                for column, kind, _, labels in fields
            ],
        },
        "data": {
            "values": [[_finite(value) for value in values] for _, _, values, _ in fields],
            # JSON has no NaN and infinity, so Grafana sends their positions.
            "entities": [
                {
                    key: [
                        index
                        for index, value in enumerate(values)
                        if isinstance(value, float) and holds(value)
                    ]
                    for key, holds in _NOT_FINITE.items()
                }
                for _, _, values, _ in fields
            ],
        },
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
