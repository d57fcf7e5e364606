"""One connection to the database: transactions, locks and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from spark_streaming.postgres.values import StoreDataError, StoreError, StoreUnavailableError
from spark_streaming.redaction import hide_secrets

#: Names of the roll-up's connections on the server begin with it.
APPLICATION: Final = "kafka-client-telemetry rollup"
#: Advisory locks. "rollup" in ASCII: batches and maintenances of all jobs on one database take
#: turns.
STORE_LOCK: Final = 0x726F6C6C7570
#: Tasks add series one after the other, and create partitions one after the other.
SERIES_LOCK: Final = STORE_LOCK + 1
TABLES_LOCK: Final = STORE_LOCK + 2
#: Packing runs beside batches, but not beside maintenance or a rebuild: it shares the lock, and
#: they don't. Taken before STORE_LOCK, so that nobody keeps batches waiting for it.
PACKING_LOCK: Final = STORE_LOCK + 3
#: Jobs plan what to pack one after the other.
PLAN_LOCK: Final = STORE_LOCK + 4
#: Defaults of a role or database that would change what is read or written. In each
#: transaction, because a pool such as PgBouncer may give it another connection.
_FORMATS: Final = (
    "SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL intervalstyle = 'postgres'; SET LOCAL timezone = 'UTC'; "
    "SET LOCAL extra_float_digits = 1; SET LOCAL bytea_output = 'hex'; "
    "SET LOCAL standard_conforming_strings = on; SET LOCAL transform_null_equals = off; "
    "SET LOCAL array_nulls = on; "
)
#: Waiting for another job's batch may take longer than waiting for a table, which readers block
#: only while a partition is dropped. A process that hangs is disconnected, so that the next one can
#: continue.
_BEGIN: Final = (
    f"{_FORMATS}SET LOCAL search_path = telemetry; SET LOCAL statement_timeout = '15min'; "
    "SET LOCAL idle_in_transaction_session_timeout = '30min'; SET LOCAL lock_timeout = '10min'; "
    "SET LOCAL work_mem = '64MB'"
)
_CANCEL_S: Final = 5.0
_AFTER_LOCK: Final = "SET LOCAL lock_timeout = '30s'"
#: SQLSTATE classes: cardinality violation, data exception, integrity violation, program limit
#: exceeded.
_DATA_ERRORS: Final = ("21", "22", "23", "54")


class Database:
    """A connection that is opened when it is needed. Not thread-safe.

    Args:
        url: ``postgresql://...`` or a libpq connection string.
        connected: Called for each new connection, which may reach another server.

    Raises:
        StoreError: The URL is invalid.
    """

    def __init__(self, url: str, *, application: str, connected: Callable[[], None]) -> None:
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
        self._application = application
        self._connected = connected
        self._connection: psycopg.Connection[Any] | None = None

    @contextmanager
    def transaction(self, *locks: int, shared: int | None = None) -> Iterator[psycopg.Connection[Any]]:
        """Run a block as a transaction.

        Args:
            locks: Advisory locks that the transaction holds. They are taken in this order.
            shared: An advisory lock that several transactions may hold. It is taken before.

        Raises:
            StoreError: A permanent error.
            StoreUnavailableError: The transaction was rolled back: try again.
        """
        try:
            connection = self._open()
            with connection.transaction():
                connection.execute(_BEGIN)
                if shared is not None:
                    connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", [shared])
                for lock in locks:
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", [lock])
                connection.execute(_AFTER_LOCK)
                yield connection
        except psycopg.Error as error:
            raise self._translated(error) from None

    def cancel(self) -> None:
        """Cancel the running statement, from any thread."""
        connection = self._connection
        if connection is not None and not connection.closed:
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=_CANCEL_S)

    def close(self) -> None:
        """Close the connection. The next use opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connected()
            # No prepared statements, because a plan for today's partitions is bad for tomorrow's.
            self._connection = psycopg.connect(
                self._url,
                autocommit=True,
                prepare_threshold=None,
                connect_timeout=10,
                application_name=self._application,
                keepalives_idle=30,
            )
            # A batch sees what its tasks commit while its transaction is open.
            self._connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return self._connection

    def _translated(self, error: psycopg.Error) -> StoreError:
        text = " ".join(str(error).split()) or type(error).__name__
        text = hide_secrets(text, [self._password])
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
