"""One SASL login that passes through: who the broker let in.

Owns the reading of names from clients' tokens, as strictly as Kafka's own servers read them, and the rule
that a name counts only once the broker has said yes. Nothing is verified here, nothing of a token is kept but
the name it claims, and nothing that a client sends raises. Where two readers could disagree on a name, it is
unknown.
"""

from __future__ import annotations

import binascii
import json
import re
from typing import Any, Final

__all__ = ["UNKNOWN_PRINCIPAL", "SaslExchange"]

#: The principal of a client that the broker let in by a way which does not show who it is.
UNKNOWN_PRINCIPAL: Final = "User:unknown"

#: Longer tokens go by unread, in bytes. Kafka takes up to 524,288 (``sasl.server.max.receive.size``), but to
#: read so much of a client that nobody knows yet would keep other clients waiting.
MAX_TOKEN_BYTES: Final = 65_536

#: Longer names are not kept, in bytes of UTF-8. RFC 4616 asks for 255; a SPIFFE id may have 2,048.
MAX_NAME_BYTES: Final = 2048

# RFC 5802, section 7: comma and equals sign are escaped. Kafka takes ASCII alone.
_SASL_NAME = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = rb"[\x01-\x2b\x2d-\x7f]+"
# Kafka's ScramMessages.ClientFirstMessage, with the channel binding flag "n" alone.
_SCRAM_CLIENT_FIRST = re.compile(
    rb"n,(?:a=(?P<authzid>" + _SASL_NAME + rb"))?,"
    rb"(?:m=" + _VALUE + rb",)?"
    rb"n=(?P<name>" + _SASL_NAME + rb"),"
    rb"r=[\x21-\x2b\x2d-\x7e]+"
    rb"(?P<extensions>(?:,[A-Za-z]+=" + _VALUE + rb")*)"
)
# Kafka's OAuthBearerClientInitialResponse.
_PAIR = rb"[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01"
_OAUTHBEARER_CLIENT_FIRST = re.compile(
    rb"n,(?:a=(?P<authzid>" + _SASL_NAME + rb"))?,\x01(?P<pairs>(?:" + _PAIR + rb")*)\x01"
)
# RFC 7515, section 7.1: header, payload, signature, which an unsecured token leaves empty.
_BEARER_JWT = re.compile(
    rb"bearer +[-_A-Za-z0-9]+\.(?P<payload>[-_A-Za-z0-9]+)\.[-_A-Za-z0-9]*", re.IGNORECASE
)
_FROM_BASE64URL: Final = bytes.maketrans(b"-_", b"+/")
# What Java's String.trim takes away.
_BLANKS: Final = "".join(map(chr, range(0x21)))


class SaslExchange:
    """Watches one login, from the client's first SaslAuthenticate request to the broker's last answer to it.

    It takes the tokens as they pass, each direction in its order; requests may run ahead of their answers. An
    answer with an error ends a login: forget the exchange then. Logging in again (KIP-368) is a new exchange.

    Args:
        mechanism: The mechanism that the broker agreed to in its answer to SaslHandshake.
        principal_claim: The claim of an OAUTHBEARER token that names the principal, as the broker's
            ``sasl.oauthbearer.sub.claim.name``.

    Attributes:
        mechanism: As given.
    """

    __slots__ = (
        "_answers",
        "_by_delegation_token",
        "_claimed",
        "_failed",
        "_principal",
        "_principal_claim",
        "_requests",
        "mechanism",
    )

    def __init__(self, mechanism: str, *, principal_claim: str = "sub") -> None:
        self.mechanism: Final = mechanism
        self._principal_claim: Final = principal_claim
        self._requests = 0
        self._answers = 0
        self._claimed: str | None = None
        self._by_delegation_token = False
        self._failed = False
        self._principal: str | None = None

    @property
    def complete(self) -> bool:
        """Whether the broker has let the client in."""
        return self._principal is not None

    @property
    def principal(self) -> str | None:
        """``User:`` or ``DelegationToken:`` and a name once the broker has let the client in; None before.

        A delegation token's owner is not in the exchange (KIP-48): the name is then the token's id.
        """
        return self._principal

    @property
    def delegation_token_id(self) -> str | None:
        """The id of the delegation token (KIP-48) that the broker has let the client in with, else None."""
        return self._claimed if self.complete and self._by_delegation_token else None

    def client_token(self, token: bytes | memoryview) -> None:
        """Take ``auth_bytes`` of the client's next SaslAuthenticate request (KIP-152).

        Args:
            token: The bytes; nothing of them is kept but the name in a mechanism's first message.
        """
        if self.complete:
            return
        self._requests += 1
        if self._requests == 1 and len(token) <= MAX_TOKEN_BYTES:
            self._read(bytes(token))

    def server_token(self, token: bytes) -> None:
        """Take ``auth_bytes`` of the broker's next SaslAuthenticate answer that has no error (KIP-152).

        Args:
            token: The bytes. They are how the broker says yes: ``v=`` in SCRAM's second answer (RFC 5802),
                nothing in OAUTHBEARER's (RFC 7628), where anything else says no.
        """
        if self.complete or self._failed:
            return
        self._answers += 1
        if self._answers > self._requests:
            self._failed = True  # nobody asked
        elif self.mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            if self._answers == 2:
                self._failed = not token.startswith(b"v=")
                if not self._failed:
                    self._let_in()
        elif self.mechanism == "OAUTHBEARER" and token:
            self._claimed = None  # Kafka may yet take another token, which is not read
        else:
            self._let_in()

    def _let_in(self) -> None:
        if self._claimed is None:
            self._principal = UNKNOWN_PRINCIPAL
        else:
            self._principal = f"{'DelegationToken' if self._by_delegation_token else 'User'}:{self._claimed}"

    def _read(self, token: bytes) -> None:
        name: str | None = None
        if self.mechanism == "PLAIN":
            name = _plain_name(token)
        elif self.mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            name, self._by_delegation_token = _scram_name(token)
        elif self.mechanism == "OAUTHBEARER":
            name = _oauthbearer_name(token, self._principal_claim)
        self._claimed = name


def _bounded(name: bytes) -> str | None:
    """Decode a name; None where it is empty, too long, or no UTF-8, which Java would patch up."""
    if not 1 <= len(name) <= MAX_NAME_BYTES:
        return None
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None


def _plain_name(token: bytes) -> str | None:
    """Read RFC 4616's ``[authzid] NUL authcid NUL passwd``."""
    parts = token.split(b"\0", 3)
    if len(parts) != 3 or parts[0] not in (b"", parts[1]) or not parts[2]:
        return None
    return _bounded(parts[1])


def _scram_name(token: bytes) -> tuple[str | None, bool]:
    """Read a name from RFC 5802's client-first-message, and whether it is the id of a delegation token."""
    found = _SCRAM_CLIENT_FIRST.fullmatch(token)
    if found is None:
        return None, False
    name = found["name"].replace(b"=2C", b",").replace(b"=3D", b"=")
    if found["authzid"] not in (None, name):
        return None, False
    token_auth = [
        pair[10:].lower() for pair in found["extensions"].split(b",") if pair.startswith(b"tokenauth=")
    ]
    if len(token_auth) > 1:
        return None, False
    return _bounded(name), token_auth == [b"true"]


def _oauthbearer_name(token: bytes, claim: str) -> str | None:
    """Read a claim from the JSON Web Token (RFC 7519) in RFC 7628's first message."""
    found = _OAUTHBEARER_CLIENT_FIRST.fullmatch(token)
    if found is None:
        return None
    credentials = [pair[5:] for pair in found["pairs"].split(b"\x01") if pair.startswith(b"auth=")]
    bearer = _BEARER_JWT.fullmatch(credentials[0]) if len(credentials) == 1 else None
    if bearer is None:
        return None
    name = _claim(bearer["payload"], claim)
    return name if name is not None and found["authzid"] in (None, name.encode()) else None


def _claim(payload: bytes, claim: str) -> str | None:
    try:
        text = binascii.a2b_base64(payload.translate(_FROM_BASE64URL) + b"=" * (-len(payload) % 4))
        claims = json.loads(text.decode(), object_pairs_hook=_without_repetition)
        value = claims.get(claim) if isinstance(claims, dict) else None
        # Kafka's validators do not agree on blanks around a name.
        if not isinstance(value, str) or value.strip(_BLANKS) != value:
            return None
        return _bounded(value.encode())
    except (ValueError, RecursionError):
        return None


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError  # RFC 8259, section 4: which of them counts, each reader decides
    return members
