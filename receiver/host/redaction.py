"""Removes a plugin's secrets from texts for a log or another process."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import PurePath

from pydantic import SecretBytes, SecretStr

from receiver.host.config_values import config_values
from spark_streaming.redaction import hide_secrets

_MAX_CHARACTERS = 300


class Redaction:
    """Removes a plugin's secrets from texts and exceptions.

    Args:
        config: The plugin's settings; every ``SecretStr`` and ``SecretBytes`` in it is a secret.
    """

    def __init__(self, config: object) -> None:
        self._secrets = set(_secrets(config))

    def add(self, config: object) -> None:
        """Hide the secrets of further settings too; earlier ones stay hidden."""
        self._secrets |= set(_secrets(config))

    def text(self, text: str) -> str:
        """Return the text on one line, without secrets, cut to a limit."""
        line = "".join(c if c.isprintable() else " " for c in hide_secrets(text, self._secrets))
        return line if len(line) <= _MAX_CHARACTERS else line[: _MAX_CHARACTERS - 3] + "..."

    def exception(self, error: BaseException) -> str:
        """Return an exception's type, source line and text, without secrets."""
        try:
            message = str(error)
        except BaseException as broken:  # a plugin's exception may fail in its own __str__
            message = f"<its text raised {type(broken).__name__}>"
        where = ""
        if frames := traceback.extract_tb(error.__traceback__):
            line = "" if frames[-1].lineno is None else f":{frames[-1].lineno}"
            where = f" at {PurePath(frames[-1].filename).name}{line}"
        return self.text(f"{type(error).__name__}{where}{': ' if message else ''}{message}")


def _secrets(config: object) -> Iterator[str]:
    for value in config_values(config):
        match value:
            case SecretStr():
                yield value.get_secret_value()
            case SecretBytes():
                yield value.get_secret_value().decode(errors="replace")
            case _:
                pass
