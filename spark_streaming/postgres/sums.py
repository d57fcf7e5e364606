"""Adds up rows by bucket before they are appended. It does not use the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_streaming.postgres import clients
from spark_streaming.postgres.horizons import DAY, DAYS_AHEAD, Horizons
from spark_streaming.postgres.tables import (
    CLIENTS,
    EPOCH,
    FLEETS,
    GRAINS,
    HISTOGRAMS,
    MINUTES,
    SERIES,
    SPREADS,
    Grain,
    Totals,
)
from spark_streaming.rows import MAX_TOTAL

#: A column and how pyarrow adds it up.
_Value = tuple[str, str] | tuple[str, str, pc.FunctionOptions]

_TIME: Final = pa.timestamp("us", "UTC")
_HOUR_MINUTES: Final = 60
#: The greatest float below MAX_TOTAL, which is not a float itself.
_MAX_FLOAT_TOTAL: Final = float(np.nextafter(float(MAX_TOTAL), 0))
#: As the columns of :data:`SERIES` combine.
_STATISTICS: Final[list[_Value]] = [
    ("points", "sum"),
    ("sum", "sum", pc.ScalarAggregateOptions(skip_nulls=False)),
    ("min", "min"),
    ("max", "max"),
    ("pushed_sum", "sum"),
]


class Sums:
    """Rows to append, added up by key and bucket.

    Rows older than the kept minutes are added to hours, rows older than those to days. Rows older
    than the kept days, or more than two days ahead, are left out.

    Attributes:
        tables: Rows by kind and grain, sorted by key.
    """

    def __init__(self, horizons: Horizons) -> None:
        self._horizons = horizons
        self.left_out = 0
        self.tables: list[tuple[Totals, Grain, pa.Table]] = []

    def add(self, rows: pa.Table) -> None:
        """Add ``ROLLUP_ROWS``, by series, fleet and spread."""
        for grain, part in self._by_grain(rows):
            fleet_part = part.filter(pc.invert(part["breakdown"]))
            spreads = fleet_part.filter(fleet_part["spread"].is_valid())
            self._add(SERIES, grain, part, _STATISTICS)
            self._add(FLEETS, grain, fleet_part, _STATISTICS)
            self._add(SPREADS, grain, spreads, [("observations", "sum")])

    def add_buckets(self, rows: pa.Table) -> None:
        """Add ``BUCKET_ROWS``."""
        for grain, part in self._by_grain(rows):
            self._add(HISTOGRAMS, grain, part, [("count", "sum")])

    def add_clients(self, entries: pa.Table) -> None:
        """Add the values by instance and minute of ``ENTRY_ROWS``."""
        values = [(name, clients.AGGREGATES[how]) for name, how in CLIENTS.values.items()]
        for grain, part in self._by_grain(clients.by_instance(entries), GRAINS[:2]):
            # Single-threaded, because "last" depends on the order of rows.
            self._add(CLIENTS, grain, part, values, use_threads=False)

    @property
    def series(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The distinct series of the rows."""
        ids = [table["series_id"].to_numpy() for totals, _, table in self.tables if "series_id" in totals.key]
        return np.unique(np.concatenate([np.empty(0, np.int64), *ids]))

    def minutes(self) -> dict[str, list[datetime]]:
        """Return the buckets of each table of minutes."""
        return {
            totals.table(grain): pc.unique(table["bucket"]).to_pylist()
            for totals, grain, table in self.tables
            if grain is MINUTES
        }

    def first_minutes(self) -> list[int]:
        """Return the first minute of each hour with minutes, since the epoch."""
        minutes = {_minute(bucket) for buckets in self.minutes().values() for bucket in buckets}
        first = {minute // _HOUR_MINUTES: minute for minute in sorted(minutes, reverse=True)}
        return sorted(first.values())

    def _add(
        self,
        totals: Totals,
        grain: Grain,
        rows: pa.Table,
        values: Sequence[_Value],
        *,
        use_threads: bool = True,
    ) -> None:
        if rows.num_rows:
            self.tables.append((totals, grain, _summed(totals, rows, values, use_threads=use_threads)))

    def _by_grain(self, rows: pa.Table, grains: Sequence[Grain] = GRAINS) -> Iterable[tuple[Grain, pa.Table]]:
        """Assign rows to grains and buckets, and count those that are left out."""
        minutes = rows["minute"].to_numpy()
        end = _minute(self._horizons.today + (DAYS_AHEAD + 1) * DAY)
        kept = np.zeros(len(minutes), dtype=bool)
        parts = []
        for grain in grains:
            since = _minute(self._horizons.since[grain.name])
            in_grain = (minutes >= since) & (minutes < end)
            end = min(end, since)
            kept |= in_grain
            if in_grain.any():
                part = rows if in_grain.all() else rows.filter(pa.array(in_grain))
                bucket = part["minute"].to_numpy() // grain.minutes * grain.minutes
                parts.append((grain, part.append_column("bucket", pa.array(bucket * 60_000_000).cast(_TIME))))
        self.left_out += len(minutes) - int(kept.sum())
        return parts


def _summed(
    totals: Totals, rows: pa.Table, values: Sequence[_Value], *, use_threads: bool = True
) -> pa.Table:
    key = [totals.key[0], "bucket", *totals.key[1:]]
    # pyarrow's integer sums overflow silently. Float sums don't, but are not exact.
    huge = {name for name, how, *_ in values if how == "sum" and _may_exceed(rows[name])}
    for name in huge:
        rows = rows.set_column(
            rows.schema.get_field_index(name), name, rows[name].cast(pa.float64(), safe=False)
        )
    sums = rows.group_by(key, use_threads=use_threads).aggregate(values)
    sums = sums.rename_columns([*key, *(name for name, *_ in values)])
    for name in huge:
        total = np.minimum(sums[name].to_numpy(), _MAX_FLOAT_TOTAL).astype(np.int64)
        sums = sums.set_column(sums.schema.get_field_index(name), name, pa.array(total))
    # In index order, so that its pages are written one after the other.
    return sums.sort_by([(name, "ascending") for name in key])


def _may_exceed(column: pa.ChunkedArray) -> bool:
    """Return whether sums of a column of counts may exceed ``MAX_TOTAL``."""
    return (
        column.type == pa.int64()
        and (pc.sum(column.cast(pa.float64(), safe=False)).as_py() or 0) >= MAX_TOTAL
    )


def _minute(time: datetime) -> int:
    return (time - EPOCH) // timedelta(minutes=1)
