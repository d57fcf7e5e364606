"""Points of a few series in loads, and what the views show of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa

from spark_streaming.postgres import Store
from spark_streaming.postgres.tables import CLIENTS, FLEETS, HISTOGRAMS, SERIES, SPREADS, TOTALS, Grain
from tests.integration.rollup.store import rows as store_rows
from tests.integration.rollup.store.rows import buckets, entries, put_series, read, rows

#: The view that has all rows of a kind here.
_VIEWS = (
    ("metric", SERIES),
    ("fleet", FLEETS),
    ("spread", SPREADS),
    ("histogram", HISTOGRAMS),
    ("client", CLIENTS),
)


def shown(database: str) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of the views, without the column that says where they are stored.

    Floats have 12 digits: the last ones depend on the order in which a plan adds them up.
    """
    found = {}
    for view, totals in _VIEWS:
        for grain in totals.grains:
            name = f"{view}_{grain}"
            columns = read(
                database,
                "SELECT string_agg(format('%I', column_name), ', ' ORDER BY ordinal_position) "
                "FROM information_schema.columns "
                f"WHERE (table_schema, table_name) = ('telemetry', '{name}') AND column_name <> 'since'",
            )[0][0]
            found[name] = [
                tuple(float(f"{value:.12g}") if isinstance(value, float) else value for value in row)
                for row in read(database, f"SELECT {columns} FROM telemetry.{name} ORDER BY {columns}")
            ]
    return found


def stored(database: str, grain: Grain, *, packed: bool) -> dict[str, int]:
    """The number of stored rows by kind."""
    return {
        totals.name: read(
            database,
            f"SELECT count(*) FROM telemetry.{totals.packed_table(grain) if packed else totals.table(grain)}",
        )[0][0]
        for totals in TOTALS
        if grain.name in totals.grains
    }


def point(time: datetime, value: float, one: int = 1, points: int = 1) -> tuple[Any, ...]:
    minute = int(time.timestamp()) // 60
    spread = one * 7 % 5
    return (minute, one, one, False, spread, points, value, value, value, points, value * (one % 2) or None)


def load_of(number: int, *points: tuple[Any, ...]) -> dict[str, pa.Table]:
    """What a load has, for :func:`.write_load`."""
    minutes = sorted({item[0] for item in points})
    clients = entries(*((5, minute, "c") for minute in minutes), watched=[1.5] * 13, broker_id=str(number))
    return {
        "totals": rows(*points),
        "histograms": buckets(*((minute, 1, 0.0, 1.0, number + 1) for minute in minutes)),
        "minutes": clients,
        "entries": clients,
    }


def put_series_of(store: Store, *points: tuple[Any, ...]) -> None:
    ids = sorted({item[1] for item in points} | {1})
    put_series(store.url, *((item, item, f"m{item}", False) for item in ids), rule=1)


def take_in(store: Store, number: int, *points: tuple[Any, ...]) -> None:
    put_series_of(store, *points)
    store_rows.take_in(store, "q", number, **load_of(number, *points))
