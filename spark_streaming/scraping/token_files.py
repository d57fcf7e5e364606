"""Bearer tokens from files, as those of the receiver's ``rest.tokens``."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path

import structlog

from spark_streaming.files import FileError, token_digest

_log = structlog.get_logger("scraping")


class TokenFiles:
    """Accepts the tokens that files hold. Thread-safe.

    The files are read for each request, so a changed or removed file takes effect at once.

    Args:
        files: Each holds one token.

    Raises:
        FileError: A file can't be read, or holds no token; the text names it.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = tuple(files)
        for file in files:
            try:
                token_digest(file)
            except FileError as error:
                raise FileError(f"{file}: {error}") from None

    def __bool__(self) -> bool:
        return bool(self._files)

    def allows(self, authorization: str | None) -> bool:
        """Return whether a request's Authorization header has one of the tokens."""
        scheme, _, token = (authorization or "").partition(" ")
        given = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
        is_known = False
        for file in self._files:
            try:
                expected = token_digest(file)
            except FileError as error:
                _log.warning("token file unusable, token revoked", problem=f"{file}: {error}")
                continue
            # Each one, because the time must not reveal which one matched.
            is_known |= hmac.compare_digest(given, expected)
        return is_known and scheme.lower() == "bearer"
