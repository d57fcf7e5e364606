"""Owns a real PostgreSQL for tests: an embedded one, or the server that ``TEST_POSTGRES`` names.

The variable is for other versions: a URL of a role that may create databases.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from spark_streaming.embedded import EmbeddedPostgres
from tests.testbed.process import ScratchFolder

_numbers = itertools.count(1)


class Postgres:
    """A server with a database for each test."""

    def __init__(self) -> None:
        self._external = os.environ.get("TEST_POSTGRES")
        self._scratch = ScratchFolder("postgres")
        self._embedded = None if self._external else EmbeddedPostgres(self._scratch.path / "data")

    def __enter__(self) -> Self:
        if self._embedded is not None:
            self._embedded.start()
            with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
                # Nobody needs a test's rows after a power failure.
                connection.execute("ALTER SYSTEM SET fsync = off")
                connection.execute("ALTER SYSTEM SET full_page_writes = off")
                connection.execute("ALTER SYSTEM SET max_wal_size = '4GB'")
                connection.execute("SELECT pg_reload_conf()")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._embedded is not None:
            self._embedded.__exit__(kind, error, trace)
        self._scratch.close()

    @contextmanager
    def database(self, encoding: str = "UTF8") -> Iterator[str]:
        """A fresh database; gone afterwards, whoever is still connected.

        Yields:
            Its URL.
        """
        name = f"test_{os.getpid()}_{next(_numbers)}"
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING {} LOCALE 'C'").format(
                    sql.Identifier(name), sql.Literal(encoding)
                )
            )
        try:
            yield self._url(name)
        finally:
            with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
                connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    @property
    def restartable(self) -> bool:
        """Whether :meth:`stop` and :meth:`start` work: not with somebody else's server."""
        return self._embedded is not None

    def stop(self) -> None:
        """Stop the server: connections end at once."""
        assert self._embedded is not None
        self._embedded.stop()

    def start(self) -> None:
        """Start it again where it was."""
        assert self._embedded is not None
        self._embedded.start()

    def _url(self, database: str) -> str:
        if self._embedded is not None:
            return self._embedded.url_of(database)
        return urlunsplit(urlsplit(self._external or "")._replace(path=f"/{database}"))
