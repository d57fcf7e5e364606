"""The file of the bridges' tokens. It is read again when it changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from receiver.bridge.tokens import TokenError, parse_tokens
from receiver.log import RateLimitedLog
from receiver.watch import Watch
from spark_streaming.files import MAX_TOKEN_BYTES, FileError, read_bounded

_SETTING: Final = "bridge.token.file"


class TokenFile:
    """The tokens of a file.

    Args:
        clock: Monotonic seconds.

    Raises:
        TokenError: The file can't be used; the text names the setting.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._log = RateLimitedLog("receiver.bridge")
        self._watch = Watch((path,), clock)
        self._tokens = self._read()

    def current(self) -> tuple[bytes, ...]:
        """Return the tokens; those from before while a changed file can't be used."""
        if self._watch.changed():
            try:
                self._tokens = self._read()
            except TokenError as error:
                self._watch.remind()
                self._log.warning("token file not read, the tokens from before stay", problem=str(error))
        return self._tokens

    def _read(self) -> tuple[bytes, ...]:
        try:
            return parse_tokens(read_bounded(self._path, MAX_TOKEN_BYTES))
        except (FileError, TokenError) as error:
            raise TokenError(f"{_SETTING}: {self._path} {error}") from None
