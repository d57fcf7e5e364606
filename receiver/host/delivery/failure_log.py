"""What the log says of a failing plugin: enough to act on, never a flood, never a secret.

Owns the rate limit and the redaction. Counts nothing (the tally does) and decides nothing.
"""

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
#: A secret this short would blot out ordinary text, and is none.
_LEAST_SECRET = 4


class Redaction:
    """Turns an exception of a plugin into text that holds none of the plugin's secrets.

    Args:
        config: The plugin's settings; every ``SecretStr`` and ``SecretBytes`` in it is a secret.
    """

    def __init__(self, config: object) -> None:
        # The longest first: a secret may be a part of another.
        self._secrets = sorted(
            {s for s in _secrets(config) if len(s) >= _LEAST_SECRET}, key=len, reverse=True
        )

    def text(self, text: str) -> str:
        """The text on one line, without secrets, and not too long."""
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        line = "".join(c if c.isprintable() else " " for c in text)
        return line if len(line) <= _MAX_CHARACTERS else line[: _MAX_CHARACTERS - 3] + "..."

    def exception(self, error: BaseException) -> str:
        """What happened, and where in the plugin's code it did."""
        try:
            said = str(error)
        except BaseException as broken:  # a plugin's exception may fail in its own __str__
            said = f"<its text raised {type(broken).__name__}>"
        where = ""
        if frames := traceback.extract_tb(error.__traceback__):
            where = f" at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}"
        return self.text(
            f"{type(error).__name__}{where}: {said}" if said else f"{type(error).__name__}{where}"
        )


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
    """The log of one plugin; each kind of event is said at most once in an interval.

    Args:
        plugin: The plugin's name, said in every line.
        interval_s: The least time between two lines of one kind, in seconds.
        clock: Monotonic seconds.
    """

    def __init__(
        self, plugin: str, *, interval_s: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        fields = {"plugin": plugin}
        # Not bound here, as it would keep the form and level of now: SIGHUP may change both.
        self._logger = structlog.get_logger("receiver.host", **fields)
        self._limited = RateLimitedLog("receiver.host", every_s=interval_s, clock=clock, fields=fields)

    # A log that can't be written, on a disk that is full perhaps, must not stop the plugin's threads.

    def limited(self, event: str, **fields: Any) -> None:
        """Warn of something that may come again and again; says how many lines were left out."""
        with suppress(OSError):
            self._limited.warning(event, **fields)

    def info(self, event: str, **fields: Any) -> None:
        """Tell of a step in the plugin's lifecycle."""
        with suppress(OSError):
            self._logger.info(event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        """Tell of something that happens once and is bad."""
        with suppress(OSError):
            self._logger.error(event, **fields)
