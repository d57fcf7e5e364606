"""The log: its form, and the limit on what somebody else's doing can write into it.

Owns the configuration of structlog and the rate limit. What is said, and to whom it may be said, is up to
those who log.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from receiver.settings.model import LogSettings

__all__ = ["RateLimitedLog", "configure"]

_EVERY_S: Final = 10.0


def configure(settings: LogSettings) -> None:
    """Log to stderr in the configured form from the configured level on; may be called again."""
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if settings.format == "json"
        # Every text as Python writes it: a client's may hold what moves a terminal's cursor, or ends a line.
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), repr_native_str=True)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


class RateLimitedLog:
    """Warnings of things that a peer can make happen as often as it likes.

    Args:
        name: The logger's name.
        every_s: The least time between two lines of one kind, in seconds.
        clock: Monotonic seconds.
        fields: What every line says.
    """

    def __init__(
        self,
        name: str,
        *,
        every_s: float = _EVERY_S,
        clock: Callable[[], float] = time.monotonic,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        # Not bound here: a bound logger would keep the form and the level that were configured until now.
        self._log = structlog.get_logger(name, **(fields or {}))
        self._every_s = every_s
        self._clock = clock
        self._last: dict[str, float] = {}
        self._suppressed: dict[str, int] = {}

    def warning(self, event: str, *, kind: str | None = None, **fields: Any) -> None:
        """Log, unless a line of the same kind was logged a moment ago; say how many lines were left out.

        Args:
            event: What happened.
            kind: What is limited together; the event by default. There must be a bounded number of kinds.
            fields: The facts.
        """
        kind = kind or event
        now = self._clock()
        last = self._last.get(kind)
        if last is not None and now - last < self._every_s:
            self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
            return
        self._last[kind] = now
        if suppressed := self._suppressed.pop(kind, 0):
            fields["suppressed"] = suppressed
        self._log.warning(event, **fields)
