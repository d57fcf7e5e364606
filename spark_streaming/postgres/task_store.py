"""The store of a task on an executor: look-ups, series, and one load."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
from psycopg import sql

from spark_streaming.contributions import ClientState, Contribution
from spark_streaming.postgres import clients, contributions, loads, overflow, pushes, series
from spark_streaming.postgres.database import APPLICATION, SERIES_LOCK, TABLES_LOCK, Database
from spark_streaming.postgres.horizons import Horizons
from spark_streaming.postgres.loads import Load
from spark_streaming.postgres.new_series import Newcomers, RefusedSeries
from spark_streaming.postgres.partitions import Partitions
from spark_streaming.postgres.series_cache import FoundSeries, SeriesCache
from spark_streaming.postgres.sums import Sums
from spark_streaming.settings import RetentionSettings

Ids = npt.NDArray[np.int64]


class TaskStore:
    """Reads what batches before have committed, and writes a load. Not thread-safe.

    The driver holds the store's lock while tasks run, so what they read does not change. Each
    method is a transaction of its own.

    Args:
        url: As for :class:`~spark_streaming.postgres.Store`.

    Raises:
        StoreError: The URL is invalid. Every method may raise it for a permanent error, and
            :class:`StoreUnavailableError` if the task must be repeated.
    """

    def __init__(self, url: str, *, retention: RetentionSettings) -> None:
        self._retention = retention
        self._cache = SeriesCache()
        self._refused = RefusedSeries()
        self._database = Database(url, application=f"{APPLICATION} task", connected=self._connected)

    def close(self) -> None:
        """Close the connection. The next use opens another."""
        self._database.close()

    def begin(self) -> Horizons:
        """Return since when rows are kept."""
        with self._database.transaction() as connection:
            horizons = Horizons.read(connection.cursor())
        self._cache.begin(horizons.today)
        self._refused.begin(horizons.now)
        return horizons

    def days_of(self, received_at_ns: Mapping[str, int], horizons: Horizons) -> dict[str, datetime]:
        """Return the day of each push, under which its id is stored.

        Args:
            received_at_ns: Times of receipt by push id, nanoseconds since the epoch.
        """
        return pushes.days_of(received_at_ns, today=horizons.today, kept_days=self._retention.hour_days)

    def known_pushes(self, days: Mapping[str, datetime]) -> set[str]:
        """Return the pushes that were counted, of those with these days."""
        with self._database.transaction() as connection:
            return pushes.known(connection.cursor(), days)

    def client_keys(self, instances: Sequence[str]) -> dict[str, int]:
        """Return the keys of client instances. New instances get new keys.

        Args:
            instances: Distinct ids. :meth:`Load.clients` must follow with an entry of each.
        """
        with self._database.transaction() as connection:
            return clients.keys(connection.cursor(), instances)

    def clients(self, keys: Iterable[int]) -> dict[int, ClientState]:
        """Return the states of clients by key, without clients that have no state."""
        with self._database.transaction() as connection:
            condition = sql.SQL("client_key = ANY(%s::bigint[])")
            return clients.states(connection.cursor(binary=True), condition, [list(keys)])

    def contributions(self, pairs: Collection[tuple[int, int]]) -> dict[tuple[int, int], Contribution]:
        """Return the stored contributions by client key and minute."""
        if not pairs:
            return {}
        with self._database.transaction() as connection:
            return contributions.read(connection.cursor(binary=True), pairs)

    def find_series(self, high: Ids, low: Ids) -> FoundSeries:
        """Find the ids of distinct series hashes, given by their halves."""
        found = self._cache.find(high, low)
        if found.known.all():
            return found
        with self._series() as cursor:
            return series.find(cursor, self._cache, high, low)

    def add_series(self, described: pa.Table, newcomers: Newcomers | None = None) -> series.Added:
        """Add distinct ``SERIES_ROWS``, within the bounds of new ones if there are any."""
        with self._series() as cursor:
            added = series.add(cursor, self._cache, described, newcomers)
        if added.refused is not None:
            self._refused.add(added.refused.high)
        return added

    def were_refused(self, high: Ids) -> npt.NDArray[np.bool_]:
        """Return which series were refused this minute."""
        return self._refused.contains(high)

    def overflow_series(self, clients: pa.Table) -> FoundSeries:
        """Find the overflow series of distinct clients, and add missing ones.

        Args:
            clients: The columns ``CLIENT_DIMENSIONS``. One without series of its own gets none.
        """
        found = self._cache.find(*overflow.keys(clients))
        if found.known.all():
            return found
        with self._series() as cursor:
            return overflow.find(cursor, self._cache, clients)

    @contextmanager
    def load(
        self, horizons: Horizons, sums: Sums, days: Mapping[str, datetime], batch: tuple[str, int]
    ) -> Iterator[Load]:
        """Write a load in one transaction. It stays pending.

        Args:
            batch: The query id and the number of the batch.

        Raises:
            StoreError: A series of the totals is not in the database.
        """
        if len(self._cache.without(sums.series)):
            with self._series() as cursor:
                series.require(cursor, self._cache, sums.series)
        self._ensure({**sums.minutes(), "push": sorted(set(days.values())), "contribution": [horizons.now]})
        with self._database.transaction() as connection:
            # The driver's commit, which lets the load count, flushes the log up to here. If a crash
            # loses the load before, the batch is repeated.
            connection.execute("SET LOCAL synchronous_commit = off")
            load = Load(connection, loads.next_id(connection.cursor()))
            yield load
            load.leave_pending(batch)

    def _connected(self) -> None:
        self._cache.clear()
        self._refused.clear()

    def _ensure(self, times: Mapping[str, Sequence[datetime]]) -> None:
        with self._database.transaction() as connection:
            partitions = Partitions(connection.cursor())
        lacking = {table: found for table, found in times.items() if partitions.lack(table, found)}
        if lacking:
            with self._database.transaction(TABLES_LOCK) as connection:
                partitions = Partitions(connection.cursor())
                for table, found in lacking.items():
                    partitions.ensure(table, found)

    @contextmanager
    def _series(self) -> Iterator[psycopg.Cursor[Any]]:
        try:
            with self._database.transaction(SERIES_LOCK) as connection:
                yield connection.cursor()
        except BaseException:
            # It may have series that were rolled back.
            self._cache.clear()
            raise
