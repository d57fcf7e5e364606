"""Owns the connection to PostgreSQL and the transactions: one a batch, one a tick, in turns.

What happens within one is in batch.py and tick.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
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

#: "rollup" in ASCII: whoever writes holds this lock, so that jobs on one database take turns.
_LOCK: Final = 0x726F6C6C7570
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Another job's batch may be waited for longer than any table: readers hold no locks that are in the way
#: but while a partition is dropped. A driver that hangs is cut off, so that the next one can go on.
_BEGIN: Final = (
    "SET LOCAL search_path = telemetry; SET LOCAL timezone = 'UTC'; SET LOCAL statement_timeout = '15min'; "
    "SET LOCAL idle_in_transaction_session_timeout = '30min'; SET LOCAL lock_timeout = '10min'; "
    "SET LOCAL work_mem = '64MB'"
)
#: SQLSTATE classes: cardinality violation, data exception, integrity violation, program limit exceeded.
_OF_DATA: Final = ("21", "22", "23", "54")
_THEN: Final = "SET LOCAL lock_timeout = '30s'"


class Store:
    """The roll-up's tables in one database. Not for several threads at once.

    Args:
        url: ``postgresql://...``, or a libpq connection string.
        retention: How long things are kept.
        reader_role: A role that may read the views, for Grafana; made by :meth:`migrate` when it is missing.

    Raises:
        StoreError: The URL can't be read.
    """

    def __init__(self, url: str, *, retention: RetentionSettings, reader_role: str | None = None) -> None:
        try:
            parameters = conninfo_to_dict(url)
        except psycopg.Error:
            # The error quotes the URL, and that has the password.
            raise StoreError(
                "the PostgreSQL URL can't be read: give postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
                "with what is special in a part percent-encoded"
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
        """Bring the schema to what this version knows, with the catalogue of metrics and the reader's rights.

        Returns:
            The names of the migrations that were done.

        Raises:
            StoreError: The schema is newer than this version, the server too old, or a right is missing.
            StoreUnavailableError: Try again.
        """
        with self._transaction() as connection:
            return migrations.migrate(connection, retention=self._retention, reader_role=self._reader_role)

    def id_key(self) -> IdKey:
        """The key of the hashes by which pushes are matched to series.

        Raises:
            StoreError: There is no schema yet.
            StoreUnavailableError: Try again.
        """
        with self._transaction(turn=False) as connection:
            ((key_id, secret),) = connection.execute("SELECT key_id, secret FROM id_key")
            return IdKey(key_id=str(key_id), secret=bytes(secret))

    @contextmanager
    def batch(self, query_id: str, batch_id: int) -> Iterator[Batch | None]:
        """One transaction for one batch, committed at the end of the block, rolled back on an exception.

        Args:
            query_id: Spark's id of the query.
            batch_id: Its number of the batch.

        Yields:
            The batch; None when it was committed before.

        Raises:
            StoreError: What the block did can't be kept, or the ledger does not go on with this batch.
            StoreUnavailableError: Repeat the batch. Should it have been committed after all, None comes.
        """
        with self._transaction() as connection:
            ((last,),) = connection.execute(
                "SELECT coalesce(max(batch_id), -1) FROM ledger WHERE query_id = %s", [query_id]
            )
            if last == batch_id:
                yield None
                return
            if last != batch_id - 1:
                # Spark takes those between for done and brings them no more; those that are in, as they
                # were cut by an older checkpoint, would be passed over with other pushes in them.
                has = "none of it" if last < 0 else f"those up to {last}"
                raise StoreError(
                    f"the checkpoint goes on with batch {batch_id}, and the database has {has}: one of both "
                    "is another one or from a backup, or the database is a standby that had not got all when "
                    "it took over. Give an empty --checkpoint: everything is read again, and pushes that are "
                    "in count once"
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
        """One transaction for what is done once a minute.

        Args:
            now_ns: The time, nanoseconds since the epoch.

        Yields:
            What can be done in it.

        Raises:
            StoreError: What the block did can't be kept.
            StoreUnavailableError: Nothing of it was kept; the next tick does it.
        """
        with self._transaction() as connection:
            maintenance = Maintenance(
                connection, retention=self._retention, series_cache=self._series_cache, now_ns=now_ns
            )
            yield maintenance
            maintenance.finish()
        self._series_cache.commit()

    def status(self) -> Status:
        """How the store stands.

        Raises:
            StoreError: There is no schema yet.
            StoreUnavailableError: Try again.
        """
        with self._transaction(turn=False) as connection:
            return status(connection)

    def forget_since(self, minute: int) -> int:
        """Forget what is derived from pushes since a minute, so that they can be read once more.

        Totals from then on go, and what clients added to them, and the ids of pushes that were received from
        :func:`read_again_since` on. Where only hours or days are kept, it begins with the next whole hour or
        day, as nothing must go that is not read again.

        Args:
            minute: Whole minutes since the epoch.

        Returns:
            The minute from which on all was forgotten: at or after the one that was asked for.
            Entries before it must be left out when pushes are read again.

        Raises:
            StoreUnavailableError: Nothing was forgotten; try again.
        """
        with self._transaction() as connection:
            since = _EPOCH + timedelta(minutes=minute)
            (horizons,) = connection.execute("SELECT minutes_from, hours_from FROM horizon")
            for horizon, grain in zip(horizons, GRAINS[1:], strict=True):
                if since < horizon:
                    since = _EPOCH - (_EPOCH - since) // grain.length * grain.length
            cursor = connection.cursor()
            partitions = Partitions(cursor)
            for totals in TOTALS:
                for grain in (grain for grain in GRAINS if grain.name in totals.grains):
                    start = _EPOCH + (since - _EPOCH) // grain.length * grain.length
                    partitions.drop(totals.table(grain), since=start)
                    cursor.execute(
                        sql.SQL("DELETE FROM {} WHERE bucket >= %s").format(
                            sql.Identifier(totals.table(grain))
                        ),
                        [start],
                    )
            for grain in GRAINS[1:]:
                start = _EPOCH + (since - _EPOCH) // grain.length * grain.length
                cursor.execute(
                    "INSERT INTO coarse (grain, bucket) VALUES (%s, %s) "
                    "ON CONFLICT (grain, bucket) DO UPDATE SET dirty = true, due_at = '-infinity'",
                    (grain.name, start),
                )
            since_minute = (since - _EPOCH) // timedelta(minutes=1)
            partitions.drop("push", since=read_again_since(since_minute))
            cursor.execute("DELETE FROM contribution WHERE minute >= %s", [since_minute])
            cursor.execute(
                "UPDATE client_state SET minute = NULL, last_ns = NULL, covered_until = NULL, counts = NULL, "
                "cumulative = NULL, terminated = false, terminated_at = NULL WHERE minute >= %s",
                [since_minute],
            )
            cursor.execute(
                "UPDATE client_state SET covered_until = %(last)s WHERE covered_until > %(last)s",
                {"last": since_minute - 1},
            )
            return since_minute

    def close(self) -> None:
        """End the connection; the next use makes another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _transaction(self, *, turn: bool = True) -> Iterator[psycopg.Connection[Any]]:
        try:
            connection = self._connected()
            with connection.transaction():
                connection.execute(_BEGIN)
                if turn:
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
                connection.execute(_THEN)
                yield connection
        except psycopg.Error as error:
            raise self._translated(error) from None

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            # It may be to another server, which has not got all that this one had.
            self._series_cache = SeriesCache()
            # Nothing is prepared: a plan that fits one day's partitions does not fit the next day's.
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
            # A primary that has become a standby keeps its connections; a new one may find the new primary.
            self.close()
            text += (
                ": a standby? With all hosts in the URL, target_session_attrs=read-write finds the primary"
            )
            return StoreUnavailableError(f"PostgreSQL: {text}")
        if (error.sqlstate or "")[:2] in _OF_DATA:
            return StoreDataError(f"PostgreSQL: {text}")
        # OperationalError is what comes of outside: connections, timeouts, shutdowns, a full disk.
        kind = StoreUnavailableError if isinstance(error, psycopg.OperationalError) else StoreError
        return kind(f"PostgreSQL: {text}")
