"""Reads and writes series, totals, contributions and clients.

The store begins and ends the transaction.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from spark_streaming.contributions import MAX_RANGE_MINUTES, ClientState, Contribution
from spark_streaming.postgres import clients
from spark_streaming.postgres.partitions import Partitions, beginning
from spark_streaming.postgres.reasons import digest, fold_reasons
from spark_streaming.postgres.series_cache import FoundSeries, SeriesCache
from spark_streaming.postgres.staging import COPY_HEADER, COPY_TRAILER, stage
from spark_streaming.postgres.tables import (
    CLIENTS,
    FLEETS,
    GRAINS,
    HISTOGRAMS,
    SERIES,
    SPREADS,
    Grain,
    Totals,
)
from spark_streaming.postgres.values import StoreError
from spark_streaming.rows import MAX_TOTAL
from spark_streaming.settings import RetentionSettings

__all__ = ["DAY", "DAYS_AHEAD", "EPOCH", "TIME", "Transaction"]

#: Rows further ahead than this are left out, because the clock is wrong.
DAYS_AHEAD: Final = 2
DAY: Final = timedelta(days=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
TIME: Final = pa.timestamp("us", "UTC")
#: Dimensions of a fleet series.
_FLEET: Final = ("metric", "cluster_id", "client_software_name", "client_software_version")
#: The column has 32 bits.
_MAX_ENTRIES: Final = (1 << 31) - 1
#: The greatest float below MAX_TOTAL, which is not a float itself.
_MAX_FLOAT_TOTAL: Final = float(np.nextafter(float(MAX_TOTAL), 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Sums of rows.

    Attributes:
        totals: Rows by kind and grain, sorted by key.
        left_out: Number of rows outside the retention times.
    """

    totals: Sequence[tuple[Totals, Grain, pa.Table]]
    left_out: int


class Transaction:
    """Base of batches and maintenance.

    Every method may raise ``psycopg.Error``, which the store translates to a :class:`StoreError`.

    Args:
        connection: In a transaction that holds the store's lock.
        retention: How long rows are kept.
        series_cache: Series that are known to be in the database.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        *,
        retention: RetentionSettings,
        series_cache: SeriesCache,
    ) -> None:
        #: For other statements in the same transaction.
        self.connection = connection
        self._cursor = connection.cursor()
        self._binary = connection.cursor(binary=True)
        self._retention = retention
        self._left_out = 0
        self._partitions = Partitions(self._cursor)
        ((self._now, self._newest_minute, *horizons),) = self._cursor.execute(
            "SELECT now(), newest_minute, minutes_from, hours_from, days_from FROM horizon"
        )
        #: Newest minute by table, with the rows of this transaction.
        self._newest: dict[str, datetime] = {}
        self._today = beginning("day", self._now)
        self._horizons = dict(zip((grain.name for grain in GRAINS), horizons, strict=True))
        series_cache.begin(self._today)
        self._series_cache = series_cache

    def sums(self, rows: pa.Table) -> Sums:
        """Sum ``ROLLUP_ROWS`` by minute and series, fleet and spread.

        It does not use the database, so another thread may.
        """
        statistics = [
            *(("points", "sum"), ("sum", "sum"), ("min", "min"), ("max", "max")),
            ("pushed_sum", "sum"),
        ]
        parts, left_out = self._by_grain(rows)
        totals = []
        for grain, part in parts:
            fleet_part = part.filter(pc.invert(part["breakdown"]))
            spreads = fleet_part.filter(fleet_part["spread"].is_valid())
            totals += [
                (SERIES, grain, _summed(SERIES, part, statistics)),
                (FLEETS, grain, _summed(FLEETS, fleet_part, statistics)),
                (SPREADS, grain, _summed(SPREADS, spreads, [("observations", "sum")])),
            ]
        return Sums(totals=totals, left_out=left_out)

    def merge(self, sums: Sums) -> None:
        """Add the result of :meth:`sums` to the stored totals.

        Rows older than the kept minutes are added to hours, rows older than those to days. Rows
        older than the kept days, or more than two days ahead, are left out and counted in the
        ledger.
        """
        for totals, grain, table in sums.totals:
            self._add(totals, grain, table)
            if "series_id" in totals.key:
                self._series_cache.require(table["series_id"].to_numpy())
        self._left_out += sums.left_out

    def merge_buckets(self, rows: pa.Table) -> None:
        """Sum ``BUCKET_ROWS`` and add them to the stored totals, as :meth:`merge` does."""
        parts, left_out = self._by_grain(rows)
        totals = [(HISTOGRAMS, grain, _summed(HISTOGRAMS, part, [("count", "sum")])) for grain, part in parts]
        self.merge(Sums(totals=totals, left_out=left_out))

    def find_series(self, high: npt.NDArray[np.int64], low: npt.NDArray[np.int64]) -> FoundSeries:
        """Find the ids of distinct series hashes, given by their halves."""
        return self._series_cache.find(self._cursor, high, low)

    def add_series(self, series: pa.Table) -> int:
        """Add ``SERIES_ROWS``, and hashes to stored series without one.

        Of series that differ only in ``reason`` or ``error``, :data:`~.reasons.MAX_REASONS` are
        added. The hashes of others are found as the ids of one series, until the end of the day.

        Returns:
            The number of series that were not added.

        Raises:
            StoreError: A stored series with the same hash has other dimensions.
        """
        stage(
            self._cursor,
            "staged",
            series.set_column(series.schema.get_field_index("rule"), "rule", series["rule"].cast(pa.int16())),
        )
        self._cursor.execute("ANALYZE pg_temp.staged")
        dimensions = [name for name in series.column_names if name not in ("series_high", "series_low")]
        names = {
            "all": sql.SQL(", ").join(map(sql.Identifier, series.column_names)),
            "fleet": sql.SQL(", ").join(map(sql.Identifier, _FLEET)),
            "new_fleet": digest("s", _FLEET),
            "old_fleet": digest("f", _FLEET),
            "new": digest("s", [name for name in dimensions if name != "rule"]),
            "old": digest("o", [name for name in dimensions if name != "rule"]),
        }
        for statement in (
            "INSERT INTO fleet_series ({fleet}, rule) SELECT {fleet}, rule FROM pg_temp.staged "
            "ORDER BY breakdown ON CONFLICT DO NOTHING",
            "UPDATE fleet_series f SET last_day = current_date FROM pg_temp.staged s "
            "WHERE {old_fleet} = {new_fleet} AND f.last_day < current_date",
            "UPDATE series o SET series_high = s.series_high, series_low = s.series_low, "
            "last_day = current_date FROM pg_temp.staged s "
            "WHERE o.series_high IS NULL AND {old} = {new}",
        ):
            self._cursor.execute(sql.SQL(statement).format(**names))
        has_reasons = pc.any(pc.or_(series["reason"].is_valid(), series["error"].is_valid())).as_py()
        folded = fold_reasons(self._cursor, dimensions, names) if has_reasons else []
        self._cursor.execute(
            sql.SQL(
                "INSERT INTO series (fleet_id, {all}) SELECT f.fleet_id, s.* FROM pg_temp.staged s "
                "JOIN fleet_series f ON {old_fleet} = {new_fleet} "
                "ON CONFLICT (series_high, series_low) DO NOTHING"
            ).format(**names)
        )
        self._cursor.execute(
            sql.SQL(
                "SELECT o.series_high, o.series_low, o.series_id, o.fleet_id, {old} = {new} "
                "FROM pg_temp.staged s JOIN series o USING (series_high, series_low)"
            ).format(**names)
        )
        found = self._cursor.fetchall()
        collisions = [series_id for _, _, series_id, _, is_same in found if not is_same]
        if collisions:
            raise StoreError(
                f"{len(collisions)} series have the hash of another series, for example of {collisions[0]}; "
                "the batch was rolled back. Stop all jobs of this database, delete the row of "
                "telemetry.id_key, and start them again"
            )
        rows = [*(row[:4] for row in found), *folded]
        self._series_cache.add(np.array(rows, np.int64).reshape(-1, 4))
        return len(folded)

    def contributions(self, pairs: Collection[tuple[int, int]]) -> dict[tuple[int, int], Contribution]:
        """Return the stored contributions by client key and minute."""
        keys, minutes = map(list, zip(*pairs, strict=True)) if pairs else ([], [])
        self._binary.execute(
            "WITH wanted AS ("
            "SELECT * FROM unnest(%(keys)s::bigint[], %(minutes)s::bigint[]) AS w (key, at)"
            "), found AS ("
            "SELECT key, at, entries, last_ns, packed, version FROM wanted "
            "JOIN contribution ON client_key = key AND minute = at "
            "UNION ALL "
            "SELECT key, at, entries, last_ns, packed, version FROM wanted "
            "JOIN contribution ON client_key = key AND minute < at AND minute > at - %(longest)s::bigint "
            "AND until IS NOT NULL AND until >= at"
            ") SELECT DISTINCT ON (key, at) key, at, entries, last_ns, packed FROM found "
            "ORDER BY key, at, version DESC",
            {"keys": keys, "minutes": minutes, "longest": MAX_RANGE_MINUTES},
        )
        return {
            (key, minute): Contribution(
                client_key=key, minute=minute, entries=entries, last_ns=last_ns, packed=packed
            )
            for key, minute, entries, last_ns, packed in self._binary
        }

    def put_contributions(self, contributions: Sequence[Contribution]) -> None:
        """Store contributions. Each replaces those of its client and minutes."""
        self._partitions.ensure("contribution", [self._now])
        # Packed here, because psycopg takes as long for each row as PostgreSQL does.
        layout = struct.Struct(">hiqiqiiiqi")
        until, no_until = struct.Struct(">iq"), struct.pack(">i", -1)
        rows = [
            b"".join(
                (
                    layout.pack(
                        6,
                        8,
                        one.client_key,
                        8,
                        one.minute,
                        4,
                        min(one.entries, _MAX_ENTRIES),
                        8,
                        one.last_ns,
                        len(one.packed),
                    ),
                    one.packed,
                    until.pack(8, one.until) if one.until > one.minute else no_until,
                )
            )
            for one in contributions
        ]
        with self._cursor.copy(
            "COPY contribution (client_key, minute, entries, last_ns, packed, until) "
            "FROM STDIN (FORMAT binary)"
        ) as copy:
            copy.write(b"".join((COPY_HEADER, *rows, COPY_TRAILER)))

    def client_keys(self, instances: Sequence[str]) -> dict[str, int]:
        """Return the keys of client instances. New instances get new keys.

        Args:
            instances: Distinct ids. :meth:`put_clients` must follow with an entry of each.
        """
        return clients.keys(self._cursor, instances)

    def clients(self, keys: Iterable[int]) -> dict[int, ClientState]:
        """Return the states of clients by key, without clients that have no state."""
        return clients.states(self._binary, sql.SQL("client_key = ANY(%s::bigint[])"), [list(keys)])

    def put_clients(self, states: Sequence[ClientState], entries: pa.Table) -> None:
        """Store the states and labels of clients.

        Args:
            states: Replace the stored states.
            entries: ``ENTRY_ROWS``. The newest of each client has its labels.

        Raises:
            StoreError: A state belongs to a client without an entry.
        """
        clients.put(self._cursor, states, entries)

    def read_until(self, time_ns: int | None) -> None:
        """Record that pushes received until this time were read. It never decreases."""
        if time_ns is not None:
            self._cursor.execute(
                "UPDATE horizon SET read_until = greatest(read_until, %s)",
                [EPOCH + timedelta(microseconds=time_ns // 1000)],
            )

    def add_client_minutes(self, entries: pa.Table) -> None:
        """Add the values by instance and minute of ``ENTRY_ROWS``."""
        values = [(name, clients.AGGREGATES[how]) for name, how in CLIENTS.values.items()]
        parts, left_out = self._by_grain(clients.by_instance(entries), GRAINS[:2])
        for grain, part in parts:
            # Single-threaded, because "last" depends on the order of rows.
            self._add(CLIENTS, grain, _summed(CLIENTS, part, values, use_threads=False))
        self._left_out += left_out

    def finish(self) -> None:
        """Check before the commit that every merged series exists.

        Raises:
            StoreError: A series of the totals was never added.
        """
        missing = self._series_cache.missing(self._cursor)
        if missing:
            raise StoreError(
                f"totals of {len(missing)} series that are not in the database, "
                f"one of them {min(missing)}: take ids from find_series()"
            )
        if self._newest:
            self._cursor.execute(
                "UPDATE horizon SET newest_minute = greatest(newest_minute, %s)", [max(self._newest.values())]
            )

    def _by_grain(
        self, rows: pa.Table, grains: Sequence[Grain] = GRAINS
    ) -> tuple[list[tuple[Grain, pa.Table]], int]:
        """Assign rows to grains and buckets. Also returns the number of rows left out."""
        minutes = rows["minute"].to_numpy()
        end = _minute(self._today + (DAYS_AHEAD + 1) * DAY)
        kept = np.zeros(len(minutes), dtype=bool)
        parts = []
        for grain in grains:
            since = _minute(self._horizons[grain.name])
            in_grain = (minutes >= since) & (minutes < end)
            end = min(end, since)
            kept |= in_grain
            if in_grain.any():
                part = rows if in_grain.all() else rows.filter(pa.array(in_grain))
                bucket = part["minute"].to_numpy() // grain.minutes * grain.minutes
                parts.append((grain, part.append_column("bucket", pa.array(bucket * 60_000_000).cast(TIME))))
        return parts, len(minutes) - int(kept.sum())

    def _add(self, totals: Totals, grain: Grain, sums: pa.Table) -> None:
        if sums.num_rows == 0:
            return
        buckets = sorted(pc.unique(sums["bucket"]).to_pylist())
        table = totals.table(grain)
        self._partitions.ensure(table, buckets)
        newest = None
        if grain is GRAINS[0]:
            # Known only for minutes, because maintenance also writes hours and days.
            newest = self._newest.get(table, self._newest_minute)
            self._newest[table] = max(newest, buckets[-1])
        totals.merge(self._cursor, grain, sums, newest=newest)
        self._mark_coarser(grain, buckets)

    def _mark_coarser(self, grain: Grain, buckets: Iterable[datetime]) -> None:
        for coarser in GRAINS[GRAINS.index(grain) + 1 :][:1]:
            starts = {EPOCH + (bucket - EPOCH) // coarser.length * coarser.length for bucket in buckets}
            self._cursor.execute(
                "INSERT INTO coarse (grain, bucket) SELECT %s, unnest(%s::timestamptz[]) "
                "ON CONFLICT (grain, bucket) DO UPDATE SET dirty = true WHERE NOT coarse.dirty",
                (coarser.name, sorted(starts)),
            )


def _summed(
    totals: Totals, rows: pa.Table, values: list[tuple[str, str]], *, use_threads: bool = True
) -> pa.Table:
    key = [totals.key[0], "bucket", *totals.key[1:]]
    # pyarrow's integer sums overflow silently. Float sums don't, but are not exact.
    huge = {name for name, how in values if how == "sum" and _may_exceed(rows[name])}
    for name in huge:
        rows = rows.set_column(
            rows.schema.get_field_index(name), name, rows[name].cast(pa.float64(), safe=False)
        )
    sums = rows.group_by(key, use_threads=use_threads).aggregate(values)
    sums = sums.rename_columns([*key, *(name for name, _ in values)])
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
