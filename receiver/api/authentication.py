"""Authenticates REST requests by bearer token or client certificate.

It keeps SHA-256 digests of tokens, never a token. No log line and no error repeats a token that a
caller sent.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal

from receiver.api.errors import ServerError
from receiver.log import RateLimitedLog
from receiver.principal.distinguished_name import subject_name
from receiver.settings.rest import RestSettings, Role
from receiver.watch import Watch

_MAX_FILE_BYTES: Final = 4096

#: RFC 6750, section 2.1. A token of fewer than 16 characters can be guessed.
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]{16,}=*")

#: RFC 9110, section 9.2.1.
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


#: A dry run has a body, so it is a POST, but it only reads.
_SAFE_POSTS: Final = frozenset({"/v1/explain"})

#: The console's files, which hold nothing of the receiver.
CONSOLE_PREFIX: Final = "/console/"


def is_change(method: str, path: str) -> bool:
    """Whether a request may change something and so needs the role editor."""
    return method not in _SAFE_METHODS and not (method == "POST" and path in _SAFE_POSTS)


class Refusal(StrEnum):
    """Why a request is refused."""

    NO_CREDENTIALS = "no_credentials"
    MALFORMED_CREDENTIALS = "malformed_credentials"
    UNKNOWN_TOKEN = "unknown_token"  # noqa: S105 -- a reason
    UNKNOWN_CERTIFICATE = "unknown_certificate"
    ROLE = "role"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The person or program that sent a request, as named in the configuration."""

    name: str
    role: Role
    authenticated_by: Literal["token", "certificate", "nothing"]


_ANONYMOUS: Final = Caller(name="anonymous", role="editor", authenticated_by="nothing")


class Authenticator:
    """Finds the configured caller of a request.

    Without a usable token file it cannot be made (ServerError). ``clock`` has monotonic seconds.
    """

    def __init__(self, settings: RestSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
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

    def authenticate(self, authorization: Sequence[bytes], certificate: bytes | None) -> Caller | Refusal:
        """Find the caller of a request. A token takes precedence over a certificate.

        TLS has verified the certificate (DER). Every ``Authorization`` header is given.
        """
        if not self.settings.authenticates:
            return _ANONYMOUS
        if authorization:
            return self._authenticate_token(authorization)
        if certificate is None or not self._subjects:
            return Refusal.NO_CREDENTIALS
        try:
            subject = subject_name(certificate)
        except ValueError:
            return Refusal.MALFORMED_CREDENTIALS
        return self._subjects.get(subject, Refusal.UNKNOWN_CERTIFICATE)

    def _authenticate_token(self, authorization: Sequence[bytes]) -> Caller | Refusal:
        if self._watch.changed():
            self._tokens = self._read_tokens(self._warn)
        scheme, _, token = authorization[0].partition(b" ")
        if len(authorization) > 1 or scheme.lower() != b"bearer" or not token.strip():
            return Refusal.MALFORMED_CREDENTIALS
        digest = hashlib.sha256(token.strip()).digest()
        result: Caller | Refusal = Refusal.UNKNOWN_TOKEN
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
                    tokens.append((caller, _digest_of_file(entry.file)))
                except (OSError, ValueError) as error:
                    on_problem(index, f"{entry.file}: {getattr(error, 'strerror', None) or error}")
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


def _digest_of_file(path: Path) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("is not a regular file")
    with path.open("rb") as file:
        content = file.read(_MAX_FILE_BYTES + 1)
    if len(content) > _MAX_FILE_BYTES:
        raise ValueError(f"has more than {_MAX_FILE_BYTES} bytes; expected one token")
    if not _TOKEN.fullmatch(content.strip()):
        raise ValueError(
            "expected one token: at least 16 letters, digits or any of ._~+/-, "
            "for example from `kafka-telemetry token new`"
        )
    return hashlib.sha256(content.strip()).digest()
