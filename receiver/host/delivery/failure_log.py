"""Logs the failures of a plugin, at a limited rate and without secrets."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Any

import structlog
from pydantic import BaseModel, SecretBytes, SecretStr

from receiver.log import RateLimitedLog

__all__ = ["FailureLog", "Redaction"]

_MAX_CHARACTERS = 300
_HIDDEN = "**********"
#: Shorter values are not redacted, because they would blot out ordinary text.
_MIN_SECRET_CHARACTERS = 4


class Redaction:
    """Removes a plugin's secrets from texts and exceptions.

    Args:
        config: The plugin's settings; every ``SecretStr`` and ``SecretBytes`` in it is a secret.
    """

    def __init__(self, config: object) -> None:
        # The longest first, because one secret may contain another.
        self._secrets = sorted(
            {s for s in _secrets(config) if len(s) >= _MIN_SECRET_CHARACTERS}, key=len, reverse=True
        )

    def text(self, text: str) -> str:
        """Return the text on one line, without secrets, cut to a limit."""
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        line = "".join(c if c.isprintable() else " " for c in text)
        return line if len(line) <= _MAX_CHARACTERS else line[: _MAX_CHARACTERS - 3] + "..."

    def exception(self, error: BaseException) -> str:
        """Return an exception's type, source line and text, without secrets."""
        try:
            message = str(error)
        except BaseException as broken:  # a plugin's exception may fail in its own __str__
            message = f"<its text raised {type(broken).__name__}>"
        where = ""
        if frames := traceback.extract_tb(error.__traceback__):
            where = f" at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}"
        return self.text(f"{type(error).__name__}{where}{': ' if message else ''}{message}")


def _secrets(value: object) -> Iterator[str]:
    match value:
        case SecretStr():
            yield value.get_secret_value()
        case SecretBytes():
            yield value.get_secret_value().decode(errors="replace")
        case BaseModel():
            for name in type(value).model_fields:
                yield from _secrets(getattr(value, name))
        case Mapping():
            for item in value.values():
                yield from _secrets(item)
        case list() | tuple() | set() | frozenset():
            for item in value:
                yield from _secrets(item)
        case _:
            return


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

    def info(self, event: str, **fields: Any) -> None:
        """Log a step in the plugin's lifecycle."""
        with suppress(OSError):
            self._logger.info(event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log an error that does not repeat."""
        with suppress(OSError):
            self._logger.error(event, **fields)
