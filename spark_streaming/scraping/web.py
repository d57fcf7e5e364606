"""Who may scrape, and over what, by the web configuration file.

The file and the certificates are read again when they change, so a rotated certificate needs no
restart. Until a changed file is valid, the last valid ones stay in force.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import os
import ssl
import threading
from pathlib import Path
from typing import Final

import bcrypt
import structlog

from spark_streaming.files import Stamp, stamp
from spark_streaming.scraping.web_config import WebConfig, WebConfigError, read

_log = structlog.get_logger("scraping")

#: bcrypt reads no further (and its library refuses more).
_MAX_PASSWORD_BYTES: Final = 72
#: Logins remembered, because bcrypt is slow by design and Prometheus logs in with each scrape.
_MAX_REMEMBERED: Final = 100
#: Compared with the password of an unknown user, so that it takes as long as that of a known one.
_NOBODY: Final = b"$2b$10$xDUtqJGsH.fI1bqbEgiNyewkzcw517kgvevfRwsj3Ab4hB/1HkVfS"


class Web:
    """TLS and logins of the scrape endpoint. Thread-safe.

    Raises:
        WebConfigError: The file, or a file that it names, is invalid.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        # One at a time, so that guesses of passwords take one core at most.
        self._comparing = threading.Lock()
        self._remembered: dict[bytes, None] = {}
        self._key = os.urandom(32)
        self._config = WebConfig()
        self._context: ssl.SSLContext | None = None
        self._files: list[Path] = []
        self._stamps: list[Stamp] = []
        if path is not None:
            self._load(path)

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context of a new connection; None: plaintext."""
        with self._lock:
            if self._path is not None and self._stamps != _stamps(self._files):
                try:
                    self._load(self._path)
                except WebConfigError as error:
                    self._stamps = _stamps(self._files)
                    _log.error("web config refused", problem=str(error), kept="the last valid one")
            return self._context

    @property
    def has_users(self) -> bool:
        """Whether a login is needed."""
        return bool(self._config.basic_auth_users)

    def allows(self, authorization: str | None) -> bool:
        """Return whether a request's Authorization header is a login, or none is needed."""
        users = self._config.basic_auth_users
        if not users:
            return True
        login = _login(authorization or "")
        if login is None:
            return False
        user, password = login
        expected = users.get(user, "").encode()
        given = password.encode()
        known = hmac.digest(self._key, b"\0".join((user.encode(), expected, given)), "sha256")
        if known in self._remembered:
            return True
        with self._comparing:
            if not bcrypt.checkpw(given[:_MAX_PASSWORD_BYTES], expected or _NOBODY) or not expected:
                return False
            if len(self._remembered) >= _MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[known] = None
            return True

    def _load(self, path: Path) -> None:
        config = read(path)
        tls, folder = config.tls_server_config, path.parent
        files = [path, *(tls.files(folder) if tls else ())]
        # Before they are read: a file that changes meanwhile is read again.
        stamps = _stamps(files)
        context = tls.context(folder) if tls else None
        self._config, self._context, self._files, self._stamps = config, context, files, stamps


def _login(authorization: str) -> tuple[str, str] | None:
    """Read the user and password of HTTP Basic (RFC 7617)."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    with contextlib.suppress(binascii.Error, UnicodeDecodeError, ValueError):
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        if colon:
            return user, password
    return None


def _stamps(files: list[Path]) -> list[Stamp]:
    return [stamp(file) for file in files]
