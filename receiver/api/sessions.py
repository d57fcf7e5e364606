"""Sessions of browsers: a cookie in the place of a bearer token.

A session stands for the token that opened it, and ends with that token. Nothing here does I/O. It
keeps digests of the cookies' values, never a value.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final

#: A working day. An open page asks for the token again after it.
SESSION_S: Final = 12 * 3600.0

#: One more ends the oldest.
MAX_SESSIONS: Final = 256

#: The header that a request of a session needs, unless it only reads. Pages of other origins can't
#: set it, and don't know its value.
CSRF_HEADER: Final = "kafka-telemetry-csrf"

#: The cookie; over TLS, with `__Host-` before it.
COOKIE_NAME: Final = "kafka-telemetry-session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session."""

    token_digest: bytes
    """The SHA-256 digest of its token."""
    csrf_token: str
    """The value of :data:`CSRF_HEADER`."""
    expires_at: float
    """When it ends, in the clock's seconds."""


class Sessions:
    """The open sessions, the oldest first. They end with the core."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._open: dict[bytes, Session] = {}

    def open(self, token_digest: bytes) -> tuple[str, Session]:
        """Open a session and return its cookie's value."""
        now = self.clock()
        for digest in [digest for digest, session in self._open.items() if session.expires_at <= now]:
            del self._open[digest]
        if len(self._open) >= MAX_SESSIONS:
            del self._open[next(iter(self._open))]
        value = secrets.token_urlsafe(32)
        session = Session(
            token_digest=token_digest,
            csrf_token=secrets.token_urlsafe(32),
            expires_at=now + SESSION_S,
        )
        self._open[_digest(value)] = session
        return value, session

    def find(self, value: str) -> Session | None:
        """Return the open session with this cookie's value."""
        session = self._open.get(_digest(value))
        return None if session is None or session.expires_at <= self.clock() else session

    def close(self, value: str) -> None:
        """End the session with this cookie's value, if there is one."""
        self._open.pop(_digest(value), None)


def cookie_value(headers: Iterable[bytes], *, secure: bool) -> str | None:
    """Return the session cookie's value from the ``Cookie`` headers of a request."""
    for header in headers:
        try:
            found = SimpleCookie(header.decode("latin-1")).get(_cookie_name(secure=secure))
        except CookieError:
            continue
        if found is not None:
            return found.value
    return None


def cookie_header(value: str, *, secure: bool) -> str:
    """Return ``Set-Cookie`` with this value; an empty one removes the cookie.

    Scripts can't read it, and browsers send it with requests of its own pages only. Over TLS it has
    the prefix that binds it to this host (RFC 6265bis, section 4.1.3.2).
    """
    age = int(SESSION_S) if value else 0
    attributes = f"Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"
    return f"{_cookie_name(secure=secure)}={value}; {attributes}"


def _cookie_name(*, secure: bool) -> str:
    return f"__Host-{COOKIE_NAME}" if secure else COOKIE_NAME


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "replace")).digest()
