"""Authenticates REST requests by bearer token or client certificate.

It keeps SHA-256 digests of tokens, never a token. No log line and no error repeats a token that a
caller sent.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Literal

from receiver.api.errors import ServerError
from receiver.api.sessions import Session, Sessions, cookie_value
from receiver.log import RateLimitedLog
from receiver.principal.distinguished_name import subject_name
from receiver.settings.rest import RestSettings, Role
from receiver.watch import Watch
from spark_streaming.files import FileError, token_digest

#: RFC 9110, section 9.2.1.
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


#: They change nothing of the receiver: a dry run, and the caller's own session.
_FOR_VIEWERS: Final = frozenset({("POST", "/v1/explain"), ("POST", "/v1/session"), ("DELETE", "/v1/session")})

#: The console's files, which hold nothing of the receiver.
CONSOLE_PREFIX: Final = "/console/"


def is_change(method: str, path: str) -> bool:
    """Whether a request may change something and so needs the role editor."""
    return method not in _SAFE_METHODS and (method, path) not in _FOR_VIEWERS


class Refusal(StrEnum):
    """Why a request is refused."""

    NO_CREDENTIALS = "no_credentials"
    MALFORMED_CREDENTIALS = "malformed_credentials"
    UNKNOWN_TOKEN = "unknown_token"  # noqa: S105 -- a reason
    UNKNOWN_CERTIFICATE = "unknown_certificate"
    UNKNOWN_SESSION = "unknown_session"
    CSRF = "csrf"
    ROLE = "role"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The person or program that sent a request, as named in the configuration."""

    name: str
    """The name for the audit log."""
    role: Role
    authenticated_by: Literal["token", "certificate", "session", "nothing"]
    csrf_token: str | None = None
    """What a request of a session must have, unless it only reads."""

    def may_send(self, method: str, csrf_token: bytes | None) -> bool:
        """Whether a request is not one that another page made a browser send."""
        if self.csrf_token is None or method in _SAFE_METHODS:
            return True
        return csrf_token is not None and hmac.compare_digest(csrf_token, self.csrf_token.encode())


_ANONYMOUS: Final = Caller(name="anonymous", role="editor", authenticated_by="nothing")


class Authenticator:
    """Finds the configured caller of a request.

    Without a usable token file it cannot be made (ServerError).

    Args:
        sessions: The open sessions, which outlive a reload; None: none.
    """

    def __init__(
        self,
        settings: RestSettings,
        clock: Callable[[], float] = time.monotonic,
        sessions: Sessions | None = None,
    ) -> None:
        self.settings = settings
        self.sessions = Sessions(clock) if sessions is None else sessions
        #: Whether cookies cross encrypted connections only.
        self.secure = settings.tls is not None
        self._open = frozenset(f"/{path}" for path in settings.open) | ({"/"} if settings.console else set())
        self._log = RateLimitedLog("receiver.api")
        self._watch = Watch((entry.file for entry in settings.tokens if entry.file is not None), clock)
        self._subjects = {
            entry.subject: Caller(name=entry.name, role=entry.role, authenticated_by="certificate")
            for entry in settings.clients
        }
        self._tokens = self._read_tokens(self._fail_to_start)

    def is_open(self, method: str, path: str) -> bool:
        """Whether anybody may send this request: ``rest.open``, and the console's files."""
        if is_change(method, path):
            return False
        return path in self._open or (self.settings.console and path.startswith(CONSOLE_PREFIX))

    def authenticate(
        self, authorization: Sequence[bytes], certificate: bytes | None, cookies: Sequence[bytes] = ()
    ) -> Caller | Refusal:
        """Find the caller of a request: by token, else session, else certificate.

        TLS has verified the certificate (DER). Every ``Authorization`` and ``Cookie`` header is
        given.
        """
        if not self.settings.authenticates:
            return _ANONYMOUS
        if authorization:
            return self._authenticate_token(authorization)
        value = cookie_value(cookies, secure=self.secure) if cookies else None
        session = self._authenticate_session(value) if value is not None else None
        if session is not None:
            return session
        if value is not None and certificate is None:
            return Refusal.UNKNOWN_SESSION
        if certificate is None or not self._subjects:
            return Refusal.NO_CREDENTIALS
        try:
            subject = subject_name(certificate)
        except ValueError:
            return Refusal.MALFORMED_CREDENTIALS
        return self._subjects.get(subject, Refusal.UNKNOWN_CERTIFICATE)

    def open_session(self, authorization: bytes) -> tuple[str, Session] | None:
        """Open a session for a token; return its cookie's value, or None."""
        token = _bearer_token(authorization)
        if token is None or not isinstance(self._authenticate_token([authorization]), Caller):
            return None
        return self.sessions.open(hashlib.sha256(token).digest())

    def _authenticate_session(self, value: str) -> Caller | None:
        session = self.sessions.find(value)
        caller = None if session is None else self._token_holder(session.token_digest)
        if session is None or caller is None:
            return None
        return replace(caller, authenticated_by="session", csrf_token=session.csrf_token)

    def _authenticate_token(self, authorization: Sequence[bytes]) -> Caller | Refusal:
        token = _bearer_token(authorization[0])
        if len(authorization) > 1 or token is None:
            return Refusal.MALFORMED_CREDENTIALS
        return self._token_holder(hashlib.sha256(token).digest()) or Refusal.UNKNOWN_TOKEN

    def _token_holder(self, digest: bytes) -> Caller | None:
        if self._watch.changed():
            self._tokens = self._read_tokens(self._warn)
        result = None
        # Compare with every token, because the time must not reveal which one matched.
        for caller, expected in self._tokens:
            if hmac.compare_digest(digest, expected):
                result = caller
        return result

    def _read_tokens(self, on_problem: Callable[[int, str], None]) -> list[tuple[Caller, bytes]]:
        tokens = []
        for index, entry in enumerate(self.settings.tokens):
            caller = Caller(name=entry.name, role=entry.role, authenticated_by="token")
            if entry.sha256 is not None:
                tokens.append((caller, bytes.fromhex(entry.sha256)))
            elif entry.file is not None:
                try:
                    tokens.append((caller, token_digest(entry.file)))
                except FileError as error:
                    on_problem(index, f"{entry.file}: {error}")
        return tokens

    @staticmethod
    def _fail_to_start(index: int, problem: str) -> None:
        raise ServerError(f"rest.tokens[{index}].file", problem)

    def _warn(self, index: int, problem: str) -> None:
        # Emptying or removing the file revokes the token, so the last good token is not kept.
        self._log.warning(
            "token file unusable, token revoked",
            kind=f"tokens[{index}]",
            setting=f"rest.tokens[{index}].file",
            problem=problem,
        )


def _bearer_token(authorization: bytes) -> bytes | None:
    scheme, _, token = authorization.partition(b" ")
    return token.strip() or None if scheme.lower() == b"bearer" else None
