"""Looks for findings once a minute, and less often where that takes long."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import psycopg

from spark_streaming.findings.find import FindingCounts, find
from spark_streaming.findings.settings import FindingSettings
from spark_streaming.pace import pause_s

#: Beside 10,000 clients a look takes half a second of PostgreSQL's CPU.
_USUAL_PAUSE_S: Final = 300.0


class PacedFindings:
    """Calls :func:`find` when it is due."""

    def __init__(self, settings: FindingSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._due_s = clock()

    def find(
        self,
        connection: psycopg.Connection[Any],
        now: datetime,
        *,
        at_once: bool,
        found_at: datetime | None = None,
    ) -> FindingCounts | None:
        """Look for findings if that is due; return how many changed, None if not due.

        Args:
            connection: As for :func:`find`. After a rollback, the next look finds the same.
            now: As for :func:`find`.
            found_at: As for :func:`find`.
        """
        began_s = self._clock()
        if not at_once and began_s < self._due_s:
            return None
        found = find(connection, self._settings, now, found_at=found_at)
        self._due_s = began_s + pause_s(self._clock() - began_s, usual_s=_USUAL_PAUSE_S)
        return found
