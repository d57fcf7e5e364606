"""Logs the failures of a plugin, at a limited rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog

from receiver.log import RateLimitedLog


class FailureLog:
    """The log of one plugin, with a rate limit for each event.

    Args:
        interval_s: The least time between two lines of one event, in seconds.
    """

    def __init__(
        self, plugin: str, *, interval_s: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        fields = {"plugin": plugin}
        # Not bound here, because a bound logger keeps its format and level, and SIGHUP may change
        # both.
        self._logger = structlog.get_logger("receiver.host", **fields)
        self._limited = RateLimitedLog("receiver.host", every_s=interval_s, clock=clock, fields=fields)

    # A log that can't be written, perhaps because the disk is full, must not stop the plugin's
    # threads.

    def limited(self, event: str, **fields: Any) -> None:
        """Log a warning that may repeat, at a limited rate."""
        with suppress(OSError):
            self._limited.warning(event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log a warning, whose rate the caller limits."""
        with suppress(OSError):
            self._logger.warning(event, **fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log a step in the plugin's lifecycle."""
        with suppress(OSError):
            self._logger.info(event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log an error that does not repeat."""
        with suppress(OSError):
            self._logger.error(event, **fields)
