"""Connects to PostgreSQL and runs the transactions of batches and maintenance.

What a transaction does is in batch.py and maintenance.py. An advisory lock serialises them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, Self

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from spark_streaming.postgres import migrations
from spark_streaming.postgres.batch import Batch
from spark_streaming.postgres.database import APPLICATION, PACKING_LOCK, STORE_LOCK, Database
from spark_streaming.postgres.findings import FindingReader
from spark_streaming.postgres.maintenance import Maintenance
from spark_streaming.postgres.packer import Packer
from spark_streaming.postgres.packing import Packing
from spark_streaming.postgres.partitions import Partitions
from spark_streaming.postgres.series_cache import SeriesCache
from spark_streaming.postgres.status import status
from spark_streaming.postgres.tables import EPOCH, GRAINS, TOTALS
from spark_streaming.postgres.values import IdKey, Status, StoreError, read_again_since
from spark_streaming.settings import RetentionSettings

#: Name files whose content the connection has read.
_FILES: Final = ("passfile", "service", "servicefile")


class Store:
    """The roll-up's tables in one database. Not thread-safe.

    Args:
        url: ``postgresql://...`` or a libpq connection string.
        reader_role: A role that may read the views, for Grafana. :meth:`migrate` creates it if
            needed.

    Raises:
        StoreError: The URL is invalid.
    """

    def __init__(self, url: str, *, retention: RetentionSettings, reader_role: str | None = None) -> None:
        self._series_cache = SeriesCache()
        self._database = Database(url, application=APPLICATION, connected=self._series_cache.clear)
        self._packer = Packer(url, retention=retention)
        self._url = url
        self._retention = retention
        self._reader_role = reader_role

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The connection string for tasks, with the password.

        It contains what the environment and files such as ``~/.pgpass`` add to the URL, because
        executors have neither.

        Raises:
            StoreUnavailableError: Try again.
        """
        with self._database.transaction() as connection:
            parameters = connection.info.get_parameters()
            if password := connection.info.password:
                parameters["password"] = password
        return make_conninfo(**{name: text for name, text in parameters.items() if name not in _FILES})

    def migrate(self) -> list[str]:
        """Apply and return migrations; refresh the catalogue and the reader's rights.

        Raises:
            StoreError: The schema is newer than this version, the server too old, or a right is
                missing.
            StoreUnavailableError: Try again.
        """
        with self._database.transaction(PACKING_LOCK, STORE_LOCK) as connection:
            return migrations.migrate(connection, retention=self._retention, reader_role=self._reader_role)

    def findings(self) -> FindingReader:
        """Return a reader of findings, with a connection of its own."""
        return FindingReader(self._url)

    def id_key(self) -> IdKey:
        """Return the key of the series hashes.

        Raises:
            StoreError: There is no schema yet.
            StoreUnavailableError: Try again.
        """
        with self._database.transaction() as connection:
            ((key_id, secret),) = connection.execute("SELECT key_id, secret FROM id_key")
            return IdKey(key_id=str(key_id), secret=bytes(secret))

    @contextmanager
    def batch(self, query_id: str, batch_id: int) -> Iterator[Batch | None]:
        """Run a block as the transaction of one batch.

        Yields:
            The batch. None if it was committed before.

        Raises:
            StoreError: A permanent error, or the ledger does not continue with this batch.
            StoreUnavailableError: Repeat the batch. If it was committed after all, that yields
                None.
        """
        with self._database.transaction(STORE_LOCK) as connection:
            ((last, read_only),) = connection.execute(
                "SELECT coalesce(max(batch_id), -1), current_setting('transaction_read_only')::boolean "
                "FROM ledger WHERE query_id = %s",
                [query_id],
            )
            if read_only:
                # Now, because tasks write before this transaction does.
                raise psycopg.errors.ReadOnlySqlTransaction("the transaction is read-only")
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
            yield Batch(connection, query_id=query_id, batch_id=batch_id)

    @contextmanager
    def maintenance(self, now_ns: int) -> Iterator[Maintenance]:
        """Run a block as a maintenance transaction, once a minute.

        Args:
            now_ns: The time, nanoseconds since the epoch.

        Raises:
            StoreError: A permanent error.
            StoreUnavailableError: The transaction was rolled back. The next one does its work.
        """
        try:
            with self._database.transaction(PACKING_LOCK, STORE_LOCK) as connection:
                yield Maintenance(
                    connection, retention=self._retention, series_cache=self._series_cache, now_ns=now_ns
                )
        except BaseException:
            self._series_cache.clear()
            raise

    def pack(self, now_ns: int, *, all_of_them: bool = False) -> dict[str, int]:
        """Merge and pack what is closed; see :meth:`Packer.pack`.

        It runs beside batches, over connections of its own.

        Args:
            all_of_them: Go on until nothing is left, instead of for some seconds.

        Raises:
            StoreError: A permanent error.
            StoreUnavailableError: Some windows were rolled back. The next call packs them.
        """
        return self._packer.pack(now_ns, all_of_them=all_of_them)

    def status(self) -> Status:
        """Read the status of the store.

        Raises:
            StoreError: There is no schema yet.
            StoreUnavailableError: Try again.
        """
        with self._database.transaction() as connection:
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
        with self._database.transaction(PACKING_LOCK, STORE_LOCK) as connection:
            since = EPOCH + timedelta(minutes=minute)
            (horizons,) = connection.execute("SELECT minutes_from, hours_from FROM horizon")
            for horizon, grain in zip(horizons, GRAINS[1:], strict=True):
                if since < horizon:
                    since = EPOCH - (EPOCH - since) // grain.length * grain.length
            cursor = connection.cursor()
            partitions = Partitions(cursor)
            Packing(cursor, partitions).forget_since(since)
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
                    "UPDATE coarse SET computed_until = NULL WHERE grain = %s AND bucket >= %s",
                    (grain.name, start),
                )
                cursor.execute(
                    "INSERT INTO coarse (grain, bucket) VALUES (%s, %s) "
                    "ON CONFLICT (grain, bucket) DO UPDATE SET dirty = true, due_at = '-infinity'",
                    (grain.name, start),
                )
            since_minute = (since - EPOCH) // timedelta(minutes=1)
            cursor.execute(
                "UPDATE horizon SET minutes_merged_until = least(minutes_merged_until, %s), "
                "minutes_covered_until = NULL",
                [since],
            )
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
        self._database.close()
