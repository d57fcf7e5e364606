"""PostgreSQL with the settings of docs/sizing.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import psycopg
from psycopg import sql

from spark_streaming.embedded import EmbeddedPostgres

#: With the defaults, checkpoints are so frequent that much of the log is whole pages.
_SETTINGS: Final = {"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "15min"}


def tune(server: EmbeddedPostgres, further: Mapping[str, str] | None = None) -> None:
    """Change the settings of a server, and restart it.

    Args:
        server: A running server.
        further: Other settings, by name.
    """
    with psycopg.connect(server.url, autocommit=True) as connection:
        for name, value in {**_SETTINGS, **(further or {})}.items():
            connection.execute(
                sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
            )
    server.stop()
    server.start()
