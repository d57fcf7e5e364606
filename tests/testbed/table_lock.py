"""Holds a lock on a table of the roll-up, so that a test knows where its transactions are."""

from __future__ import annotations

from typing import Any, Final, Literal, Self

import psycopg
from psycopg import sql

#: Who connects to PostgreSQL.
Connected = Literal["driver", "task"]

#: Names of their connections.
_NAMES: Final[dict[Connected, str]] = {
    "driver": "kafka-client-telemetry rollup",
    "task": "kafka-client-telemetry rollup task",
}


class TableLock:
    """Lets transactions read a table until the context is left, and lets none write it.

    Args:
        database: The URL of the database.
        table: A table in the schema ``telemetry``.
    """

    def __init__(self, database: str, table: str) -> None:
        self._database = database
        self._table = table
        self._connection: psycopg.Connection[Any] | None = None

    def __enter__(self) -> Self:
        self._connection = psycopg.connect(self._database)
        self._connection.execute(
            sql.SQL("LOCK TABLE telemetry.{} IN SHARE MODE").format(sql.Identifier(self._table))
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._connection is not None
        self._connection.close()

    def waiting(self, who: Connected) -> set[int]:
        """The ids of PostgreSQL's processes whose clients wait for this lock."""
        assert self._connection is not None
        # Otherwise a transaction always sees the same.
        self._connection.execute("SELECT pg_stat_clear_snapshot()")
        found = self._connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s "
            "AND pg_backend_pid() = ANY(pg_blocking_pids(pid))",
            [_NAMES[who]],
        )
        return {pid for (pid,) in found}
