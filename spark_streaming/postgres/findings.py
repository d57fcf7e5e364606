"""Reads findings for REST and the command line, over a connection of its own."""

from __future__ import annotations

import threading
from typing import Any, Final

from spark_streaming.findings.answers import FindingFilter, answers
from spark_streaming.postgres.database import APPLICATION, Database

#: An answer takes milliseconds. A statement that takes long holds up the other requests.
_LIMITS: Final = "SET LOCAL statement_timeout = '10s'; SET TRANSACTION READ ONLY"


class FindingReader:
    """Answers questions about findings. Thread-safe: one question at a time.

    Args:
        url: ``postgresql://...`` or a libpq connection string. Its role may be a reader.

    Raises:
        StoreError: The URL is invalid.
    """

    def __init__(self, url: str) -> None:
        self._database = Database(url, application=f"{APPLICATION} findings", connected=lambda: None)
        self._lock = threading.Lock()

    def read(self, asked: FindingFilter) -> list[dict[str, Any]]:
        """Return findings, the most severe first.

        Raises:
            StoreError: The database can't be read, or has no tables of the roll-up.
        """
        with self._lock, self._database.transaction() as connection:
            connection.execute(_LIMITS)
            return answers(connection, asked)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._database.close()
