"""Reads the principal's name from a SASL login that passes.

Names are read from the client's tokens as strictly as Kafka's own servers read them. A name counts
only once the broker has accepted the login. Nothing is verified here, and nothing of a token is
kept but the name. No input from a client raises. If two readers could disagree on a name, it is
unknown.
"""

from __future__ import annotations

import binascii
import json
import re
from typing import Any, Final

#: The principal of an accepted login whose name could not be read.
UNKNOWN_PRINCIPAL: Final = "User:unknown"

#: Longest token to read, in bytes. Kafka accepts up to 524,288 (``sasl.server.max.receive.size``),
#: but reading that much from an unauthenticated client would delay other clients.
MAX_TOKEN_BYTES: Final = 65_536

#: Longest name to keep, in bytes of UTF-8. RFC 4616 allows 255, and a SPIFFE id may have 2,048.
MAX_NAME_BYTES: Final = 2048

# RFC 5802, section 7: comma and equals sign are escaped. Kafka accepts only ASCII.
_SASL_NAME = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = rb"[\x01-\x2b\x2d-\x7f]+"
# Kafka's ScramMessages.ClientFirstMessage, but only with the channel binding flag "n".
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
# RFC 7515, section 7.1: header, payload and signature, which is empty in an unsecured token.
_BEARER_JWT = re.compile(
    rb"bearer +[-_A-Za-z0-9]+\.(?P<payload>[-_A-Za-z0-9]+)\.[-_A-Za-z0-9]*", re.IGNORECASE
)
_FROM_BASE64URL: Final = bytes.maketrans(b"-_", b"+/")
# The characters that Java's String.trim removes.
_BLANKS: Final = "".join(map(chr, range(0x21)))


class SaslExchange:
    """Follows one login from the first SaslAuthenticate request to its last response.

    Tokens are passed in as they arrive, in order for each direction. Requests may run ahead of
    their responses. A response with an error ends the login, and the exchange must then be
    discarded. Re-authentication (KIP-368) is a new exchange.

    Args:
        mechanism: The mechanism that the broker accepted in its answer to SaslHandshake.
        principal_claim: The claim of an OAUTHBEARER token that names the principal, as in the
            broker's ``sasl.oauthbearer.sub.claim.name``.
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
        """Whether the broker has accepted the login."""
        return self._principal is not None

    @property
    def principal(self) -> str | None:
        """``User:`` or ``DelegationToken:`` and a name; None until the login is accepted.

        For a delegation token the name is the token's id, because its owner is not in the exchange
        (KIP-48).
        """
        return self._principal

    @property
    def delegation_token_id(self) -> str | None:
        """Id of the delegation token (KIP-48) of an accepted login, else None."""
        return self._claimed if self.complete and self._by_delegation_token else None

    def client_token(self, token: bytes | memoryview) -> None:
        """Read ``auth_bytes`` of the client's next SaslAuthenticate request (KIP-152).

        Only the name in a mechanism's first message is kept.
        """
        if self.complete:
            return
        self._requests += 1
        if self._requests == 1 and len(token) <= MAX_TOKEN_BYTES:
            self._read(bytes(token))

    def server_token(self, token: bytes) -> None:
        """Read ``auth_bytes`` of the broker's next response without error (KIP-152).

        The bytes tell whether the login is accepted. In SCRAM the second response begins with
        ``v=`` (RFC 5802). In OAUTHBEARER the response is empty, and anything else is a refusal (RFC
        7628).
        """
        if self.complete or self._failed:
            return
        self._answers += 1
        if self._answers > self._requests:
            self._failed = True  # a response without a request
        elif self.mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            if self._answers == 2:
                self._failed = not token.startswith(b"v=")
                if not self._failed:
                    self._accept()
        elif self.mechanism == "OAUTHBEARER" and token:
            self._claimed = None  # Kafka may accept a further token, which is not read
        else:
            self._accept()

    def _accept(self) -> None:
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
    """Decode a name; None if it is empty, too long or invalid UTF-8.

    Java would replace invalid UTF-8, so the broker's name could differ.
    """
    if not 1 <= len(name) <= MAX_NAME_BYTES:
        return None
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None


def _plain_name(token: bytes) -> str | None:
    """Read the name of RFC 4616's ``[authzid] NUL authcid NUL passwd``."""
    parts = token.split(b"\0", 3)
    if len(parts) != 3 or parts[0] not in (b"", parts[1]) or not parts[2]:
        return None
    return _bounded(parts[1])


def _scram_name(token: bytes) -> tuple[str | None, bool]:
    """Read the name of RFC 5802's first message, and whether it is a token's id."""
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
    """Read a claim of the JSON Web Token (RFC 7519) in RFC 7628's first message."""
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
        claims = json.loads(text.decode(), object_pairs_hook=_unique_members)
        value = claims.get(claim) if isinstance(claims, dict) else None
        # Kafka's validators disagree on blanks around a name.
        if not isinstance(value, str) or value.strip(_BLANKS) != value:
            return None
        return _bounded(value.encode())
    except (ValueError, RecursionError):
        return None


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError  # RFC 8259, section 4: readers disagree on which member counts
    return members
