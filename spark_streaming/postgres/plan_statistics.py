"""Statistics of whole packed tables.

Autovacuum gathers only those of their partitions.

Without them PostgreSQL guesses that a packed table has 200 windows. It then expects hardly any rows
where the views join packed rows with the buckets of their window, and may read a whole partition
instead of the rows of some series.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg import sql

from spark_streaming.postgres.partitions import PACKED

#: From this version on, a table can be analyzed without its partitions.
_ANALYZES_ONLY: Final = 180_000


def lacking(cursor: psycopg.Cursor[Any]) -> list[str]:
    """Return the packed tables with partitions that lack recent statistics.

    Raises:
        psycopg.Error: The query failed.
    """
    cursor.execute(
        "SELECT parent.relname FROM pg_class AS parent JOIN pg_stat_all_tables AS gathered "
        "ON gathered.relid = parent.oid "
        "WHERE parent.relnamespace = 'telemetry'::regnamespace AND parent.relname = ANY (%s) "
        "AND (gathered.last_analyze < now() - interval '1 day' OR gathered.last_analyze IS NULL) "
        "AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = parent.oid) ORDER BY 1",
        [list(PACKED)],
    )
    return [name for (name,) in cursor]


def gather(cursor: psycopg.Cursor[Any], table: str) -> None:
    """Gather the statistics of a packed table from a sample of its rows.

    Before PostgreSQL 18 that analyzes each partition, too.

    Raises:
        psycopg.Error: The table is not there, or a lock was not free in time.
    """
    only = "ONLY " if cursor.connection.info.server_version >= _ANALYZES_ONLY else ""
    cursor.execute(sql.SQL("ANALYZE {}{} (start)").format(sql.SQL(only), sql.Identifier(table)))
