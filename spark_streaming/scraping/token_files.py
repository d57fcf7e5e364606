"""Bearer tokens from files, as those of the receiver's ``rest.tokens``."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

_log = structlog.get_logger("scraping")

_MAX_FILE_BYTES: Final = 4096
#: RFC 6750, section 2.1. A token of fewer than 16 characters can be guessed.
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]{16,}=*")


class TokenFileError(Exception):
    """A token file can't be used. The message names the file and the reason."""


class TokenFiles:
    """Accepts the tokens that files hold. Thread-safe.

    The files are read for each request, so a changed or removed file takes effect at once.

    Args:
        files: Each holds one token.

    Raises:
        TokenFileError: A file can't be read, or holds no token.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = tuple(files)
        for file in files:
            _digest(file)

    def __bool__(self) -> bool:
        return bool(self._files)

    def allows(self, authorization: str | None) -> bool:
        """Return whether a request's Authorization header has one of the tokens."""
        scheme, _, token = (authorization or "").partition(" ")
        given = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
        is_known = False
        for file in self._files:
            try:
                expected = _digest(file)
            except TokenFileError as error:
                _log.warning("token file unusable, token revoked", problem=str(error))
                continue
            # Each one, because the time must not reveal which one matched.
            is_known |= hmac.compare_digest(given, expected)
        return is_known and scheme.lower() == "bearer"


def _digest(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            content = stream.read(_MAX_FILE_BYTES + 1).strip()
    except OSError as error:
        raise TokenFileError(f"{file}: {error.strerror or error}") from None
    if not _TOKEN.fullmatch(content):
        raise TokenFileError(
            f"{file}: expected one token: at least 16 letters, digits or any of ._~+/-, for example from "
            "`kafka-telemetry token new`"
        )
    return hashlib.sha256(content).digest()
