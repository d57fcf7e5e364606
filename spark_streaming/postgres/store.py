"""Connects to PostgreSQL and runs the transactions of batches and maintenance.

What a transaction does is in batch.py and maintenance.py. An advisory lock serialises them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from spark_streaming.postgres import migrations
from spark_streaming.postgres.batch import Batch
from spark_streaming.postgres.maintenance import Maintenance
from spark_streaming.postgres.partitions import Partitions
from spark_streaming.postgres.series_cache import SeriesCache
from spark_streaming.postgres.status import status
from spark_streaming.postgres.tables import GRAINS, TOTALS
from spark_streaming.postgres.transaction import EPOCH
from spark_streaming.postgres.values import (
    IdKey,
    Status,
    StoreDataError,
    StoreError,
    StoreUnavailableError,
    read_again_since,
)
from spark_streaming.settings import RetentionSettings

__all__ = ["Store"]

#: "rollup" in ASCII. Writers hold this advisory lock, so jobs on one database take turns.
_LOCK: Final = 0x726F6C6C7570
#: Waiting for another job's batch may take longer than waiting for a table, which readers block
#: only while a partition is dropped. A driver that hangs is disconnected, so that the next one can
#: continue.
_BEGIN: Final = (
    "SET LOCAL search_path = telemetry; SET LOCAL timezone = 'UTC'; SET LOCAL statement_timeout = '15min'; "
    "SET LOCAL idle_in_transaction_session_timeout = '30min'; SET LOCAL lock_timeout = '10min'; "
    "SET LOCAL work_mem = '64MB'"
)
#: SQLSTATE classes: cardinality violation, data exception, integrity violation, program limit
#: exceeded.
_DATA_ERRORS: Final = ("21", "22", "23", "54")
_AFTER_LOCK: Final = "SET LOCAL lock_timeout = '30s'"


class Store:
    """The roll-up's tables in one database. Not thread-safe.

    Args:
        url: ``postgresql://...`` or a libpq connection string.
        retention: How long rows are kept.
        reader_role: A role that may read the views, for Grafana. :meth:`migrate` creates it if
            needed.

    Raises:
        StoreError: The URL is invalid.
    """

    def __init__(self, url: str, *, retention: RetentionSettings, reader_role: str | None = None) -> None:
        try:
            parameters = conninfo_to_dict(url)
        except psycopg.Error:
            # psycopg's error contains the URL with the password.
            raise StoreError(
                "invalid PostgreSQL URL: give postgresql://USER:PASSWORD@HOST:PORT/DATABASE with special "
                "characters percent-encoded"
            ) from None
        self._url = url
        self._password = str(parameters.get("password") or "")
        self._retention = retention
        self._reader_role = reader_role
        self._connection: psycopg.Connection[Any] | None = None
        self._series_cache = SeriesCache()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def migrate(self) -> list[str]:
        """Migrate the schema, and refresh the catalogue and the reader's rights.

        Returns:
            The names of the migrations that were applied.

        Raises:
            StoreError: The schema is newer than this version, the server too old, or a right is
                missing.
            StoreUnavailableError: Try again.
        """
        with self._transaction() as connection:
            return migrations.migrate(connection, retention=self._retention, reader_role=self._reader_role)

    def id_key(self) -> IdKey:
        """Return the key of the series hashes.

        Raises:
            StoreError: There is no schema yet.
            StoreUnavailableError: Try again.
        """
        with self._transaction(lock=False) as connection:
            ((key_id, secret),) = connection.execute("SELECT key_id, secret FROM id_key")
            return IdKey(key_id=str(key_id), secret=bytes(secret))

    @contextmanager
    def batch(self, query_id: str, batch_id: int) -> Iterator[Batch | None]:
        """Run a block as the transaction of one batch.

        Args:
            query_id: Spark's id of the query.
            batch_id: Number of the batch in the query.

        Yields:
            The batch. None if it was committed before.

        Raises:
            StoreError: A permanent error, or the ledger does not continue with this batch.
            StoreUnavailableError: Repeat the batch. If it was committed after all, that yields
                None.
        """
        with self._transaction() as connection:
            ((last,),) = connection.execute(
                "SELECT coalesce(max(batch_id), -1) FROM ledger WHERE query_id = %s", [query_id]
            )
            if last == batch_id:
                yield None
                return
            if last != batch_id - 1:
                # Spark will not send the batches in between. After an older checkpoint, batches
                # with known numbers would be skipped although they contain other pushes.
                has = "no batches" if last < 0 else f"batches up to {last}"
                raise StoreError(
                    f"the checkpoint continues with batch {batch_id}, but the database has {has} of this "
                    "query. They do not belong together, or one is from a backup, or the database is a "
                    "standby that lacked batches when it took over. Use an empty --checkpoint folder: "
                    "everything is read again, and no push counts twice"
                )
            connection.execute(
                "INSERT INTO ledger (query_id, batch_id) VALUES (%s, %s)", [query_id, batch_id]
            )
            batch = Batch(
                connection,
                retention=self._retention,
                series_cache=self._series_cache,
                query_id=query_id,
                batch_id=batch_id,
            )
            yield batch
            batch.finish()
        self._series_cache.commit()

    @contextmanager
    def maintenance(self, now_ns: int) -> Iterator[Maintenance]:
        """Run a block as a maintenance transaction, once a minute.

        Args:
            now_ns: The time, nanoseconds since the epoch.

        Raises:
            StoreError: A permanent error.
            StoreUnavailableError: The transaction was rolled back. The next one does its work.
        """
        with self._transaction() as connection:
            maintenance = Maintenance(
                connection, retention=self._retention, series_cache=self._series_cache, now_ns=now_ns
            )
            yield maintenance
            maintenance.finish()
        self._series_cache.commit()

    def status(self) -> Status:
        """Read the status of the store.

        Raises:
            StoreError: There is no schema yet.
            StoreUnavailableError: Try again.
        """
        with self._transaction(lock=False) as connection:
            return status(connection)

    def forget_since(self, minute: int) -> int:
        """Delete what is derived from pushes since a minute, to read them again.

        Deletes totals, contributions, and the ids of pushes received from :func:`read_again_since`
        on. If only hours or days are kept, it starts with the next whole hour or day, because
        everything that is deleted must be read again.

        Args:
            minute: Whole minutes since the epoch.

        Returns:
            The first deleted minute, at or after ``minute``. Minutes before it must not be changed
            when pushes are read again.

        Raises:
            StoreUnavailableError: Nothing was deleted. Try again.
        """
        with self._transaction() as connection:
            since = EPOCH + timedelta(minutes=minute)
            (horizons,) = connection.execute("SELECT minutes_from, hours_from FROM horizon")
            for horizon, grain in zip(horizons, GRAINS[1:], strict=True):
                if since < horizon:
                    since = EPOCH - (EPOCH - since) // grain.length * grain.length
            cursor = connection.cursor()
            partitions = Partitions(cursor)
            for totals in TOTALS:
                for grain in (grain for grain in GRAINS if grain.name in totals.grains):
                    start = EPOCH + (since - EPOCH) // grain.length * grain.length
                    partitions.drop(totals.table(grain), since=start)
                    cursor.execute(
                        sql.SQL("DELETE FROM {} WHERE bucket >= %s").format(
                            sql.Identifier(totals.table(grain))
                        ),
                        [start],
                    )
            for grain in GRAINS[1:]:
                start = EPOCH + (since - EPOCH) // grain.length * grain.length
                cursor.execute(
                    "INSERT INTO coarse (grain, bucket) VALUES (%s, %s) "
                    "ON CONFLICT (grain, bucket) DO UPDATE SET dirty = true, due_at = '-infinity'",
                    (grain.name, start),
                )
            since_minute = (since - EPOCH) // timedelta(minutes=1)
            partitions.drop("push", since=read_again_since(since_minute))
            cursor.execute("DELETE FROM contribution WHERE minute >= %s", [since_minute])
            cursor.execute(
                "UPDATE contribution SET until = %(last)s WHERE until > %(last)s", {"last": since_minute - 1}
            )
            cursor.execute(
                "UPDATE client_state SET minute = NULL, last_ns = NULL, covered_until = NULL, "
                "carried_from = NULL, counts = NULL, cumulative = NULL, "
                "terminated = false, terminated_at = NULL WHERE minute >= %s",
                [since_minute],
            )
            cursor.execute(
                "UPDATE client_state SET covered_until = %(last)s, "
                "carried_from = least(carried_from, %(last)s + 1) WHERE covered_until > %(last)s",
                {"last": since_minute - 1},
            )
            return since_minute

    def close(self) -> None:
        """Close the connection. The next use opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _transaction(self, *, lock: bool = True) -> Iterator[psycopg.Connection[Any]]:
        try:
            connection = self._connected()
            with connection.transaction():
                connection.execute(_BEGIN)
                if lock:
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
                connection.execute(_AFTER_LOCK)
                yield connection
        except psycopg.Error as error:
            raise self._translated(error) from None

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            # A new connection may reach another server, which may lack series.
            self._series_cache = SeriesCache()
            # No prepared statements, because a plan for today's partitions is bad for tomorrow's.
            self._connection = psycopg.connect(
                self._url,
                autocommit=True,
                prepare_threshold=None,
                connect_timeout=10,
                application_name="kafka-client-telemetry rollup",
                keepalives_idle=30,
            )
        return self._connection

    def _translated(self, error: psycopg.Error) -> StoreError:
        text = " ".join(str(error).split()) or type(error).__name__
        if self._password:
            text = text.replace(self._password, "***")
        if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName):
            return StoreError(f"PostgreSQL: {text}: run `kafka-telemetry rollup migrate`")
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            # A primary that becomes a standby keeps its connections. A new one may find the new
            # primary.
            self.close()
            text += ": a standby? List all hosts in the URL, with target_session_attrs=read-write"
            return StoreUnavailableError(f"PostgreSQL: {text}")
        if (error.sqlstate or "")[:2] in _DATA_ERRORS:
            return StoreDataError(f"PostgreSQL: {text}")
        # OperationalError has external causes: connections, timeouts, shutdowns, a full disk.
        kind = StoreUnavailableError if isinstance(error, psycopg.OperationalError) else StoreError
        return kind(f"PostgreSQL: {text}")
