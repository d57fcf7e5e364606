"""Who asks the REST API, and what they may: bearer tokens, client certificates and roles.

Owns the decision. It keeps digests of tokens, never a token, and tells nobody what it was shown.
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

__all__ = ["Access", "Caller", "Refusal", "changes"]

_MAX_FILE_BYTES: Final = 4096

#: RFC 6750, section 2.1. Shorter ones can be guessed.
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]{16,}=*")

#: What changes nothing (RFC 9110, section 9.2.1).
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def changes(method: str) -> bool:
    """Whether a request of this method may change something, and so needs an editor."""
    return method not in _SAFE_METHODS


class Refusal(StrEnum):
    """Why a request is refused."""

    NO_CREDENTIALS = "no_credentials"
    MALFORMED_CREDENTIALS = "malformed_credentials"
    UNKNOWN_TOKEN = "unknown_token"  # noqa: S105 -- a reason
    UNKNOWN_CERTIFICATE = "unknown_certificate"
    ROLE = "role"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody who asks.

    Attributes:
        name: Theirs in the configuration.
        role: What they may do.
        authenticated_by: How they proved who they are.
    """

    name: str
    role: Role
    authenticated_by: Literal["token", "certificate", "nothing"]


_ANYBODY: Final = Caller(name="anonymous", role="editor", authenticated_by="nothing")


class Access:
    """Finds out who asks.

    Args:
        settings: Who there is.
        clock: Monotonic seconds.

    Raises:
        ServerError: A file that should hold a token doesn't.
    """

    def __init__(self, settings: RestSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._open = frozenset(f"/{path}" for path in settings.open)
        self._log = RateLimitedLog("receiver.api")
        self._watch = Watch((entry.file for entry in settings.tokens if entry.file is not None), clock)
        self._subjects = {
            entry.subject: Caller(name=entry.name, role=entry.role, authenticated_by="certificate")
            for entry in settings.clients
        }
        self._tokens = self._digests(self._refuse_to_start)

    def is_open(self, method: str, path: str) -> bool:
        """Whether a request needs no authentication though others do."""
        return not changes(method) and path in self._open

    def caller(self, authorization: Sequence[bytes], certificate: bytes | None) -> Caller | Refusal:
        """Find out who asks.

        Args:
            authorization: The request's ``Authorization`` headers.
            certificate: The client's certificate that TLS has verified, as DER; None without one.

        Returns:
            Who it is, or why nobody knows. A token that is shown counts, and not the certificate beside it.
        """
        if not self.settings.authenticates:
            return _ANYBODY
        if authorization:
            return self._by_token(authorization)
        if certificate is None or not self._subjects:
            return Refusal.NO_CREDENTIALS
        try:
            subject = subject_name(certificate)
        except ValueError:
            return Refusal.MALFORMED_CREDENTIALS
        return self._subjects.get(subject, Refusal.UNKNOWN_CERTIFICATE)

    def _by_token(self, authorization: Sequence[bytes]) -> Caller | Refusal:
        if self._watch.changed():
            self._tokens = self._digests(self._warn)
        scheme, _, token = authorization[0].partition(b" ")
        if len(authorization) > 1 or scheme.lower() != b"bearer" or not token.strip():
            return Refusal.MALFORMED_CREDENTIALS
        shown = hashlib.sha256(token.strip()).digest()
        found: Caller | Refusal = Refusal.UNKNOWN_TOKEN
        # To the end in any case: the time must not tell which one it was.
        for caller, digest in self._tokens:
            if hmac.compare_digest(shown, digest):
                found = caller
        return found

    def _digests(self, on_problem: Callable[[int, str], None]) -> list[tuple[Caller, bytes]]:
        digests = []
        for index, entry in enumerate(self.settings.tokens):
            caller = Caller(name=entry.name, role=entry.role, authenticated_by="token")
            if entry.sha256 is not None:
                digests.append((caller, bytes.fromhex(entry.sha256)))
            elif entry.file is not None:
                try:
                    digests.append((caller, _digest_in(entry.file)))
                except OSError as error:
                    on_problem(index, f"{entry.file}: {error.strerror or error}")
                except ValueError as error:
                    on_problem(index, f"{entry.file}: {error}")
        return digests

    @staticmethod
    def _refuse_to_start(index: int, problem: str) -> None:
        raise ServerError(f"rest.tokens[{index}].file", problem)

    def _warn(self, index: int, problem: str) -> None:
        # Whoever took the token away meant it: its holder is nobody from now on.
        self._log.warning(
            "a token file holds no token: nobody has this token now",
            kind=f"tokens[{index}]",
            setting=f"rest.tokens[{index}].file",
            problem=problem,
        )


def _digest_in(path: Path) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("is no regular file")
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
