"""Configures the log, and limits the rate of warnings that a peer can cause."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import structlog

from receiver.log_once import drop_repeats
from receiver.settings.model import LogSettings

_EVERY_S: Final = 10.0


def configure(settings: LogSettings) -> None:
    """Log to stderr in the configured format and level; may be called again."""
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if settings.format == "json"
        # repr() every text, because a client's text may hold terminal escapes or line ends.
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), repr_native_str=True)
    )
    values = () if settings.format == "json" else (_values_as_json,)
    structlog.configure(
        processors=[
            drop_repeats,
            _add_process,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *values,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


@contextmanager
def only_warnings(settings: LogSettings) -> Iterator[None]:
    """Log no less than warnings within the context, beside what a command prints."""
    before = structlog.get_config()
    configure(settings.model_copy(update={"level": "warning"}))
    try:
        yield
    finally:
        structlog.configure(**before)


class _Json(str):
    """JSON text, which the console shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _values_as_json(
    _logger: Any, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Show values that are neither text nor numbers as JSON."""
    for field, value in event.items():
        if value is None or isinstance(value, bool | dict | list | tuple):
            event[field] = _Json(json.dumps(value, default=str))
    return event


def name_process(name: str) -> None:
    """Add a field ``process`` to all lines of this process."""
    _process["process"] = name


_process: dict[str, str] = {}


def _add_process(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    event.update(_process)
    return event


class RateLimitedLog:
    """A log of warnings that a peer can cause: one of a kind each ``every_s`` seconds."""

    def __init__(
        self,
        name: str,
        *,
        every_s: float = _EVERY_S,
        clock: Callable[[], float] = time.monotonic,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        # Not bound here, because a bound logger keeps its format and level, and SIGHUP may change
        # both.
        self._log = structlog.get_logger(name, **(fields or {}))
        self._every_s = every_s
        self._clock = clock
        self._last: dict[str, float] = {}
        self._suppressed: dict[str, int] = {}

    def warning(self, event: str, *, kind: str | None = None, **fields: Any) -> None:
        """Log a warning, unless one of the same kind was logged recently.

        The field ``suppressed`` has the number of lines left out since the last one.

        Args:
            kind: Lines of one kind share a limit; the event by default. The number of kinds must be
                bounded.
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
