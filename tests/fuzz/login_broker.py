"""The broker's side of SASL for a fuzzer, with its own decision about each principal.

It reads names like Kafka (``PlainServerCallbackHandler``, ``ScramMessages``), independently of the
receiver, whose result is compared with it. It checks no SCRAM proof, so that the fuzzer logs in
often.
"""

from __future__ import annotations

import re
import struct

from receiver.wire import k17_sasl_handshake, k36_sasl_authenticate
from receiver.wire.headers import (
    ResponseHeader,
    decode_request_header,
    encode_response_header,
    response_header_version,
)
from receiver.wire.k17_sasl_handshake import SaslHandshakeResponse
from receiver.wire.k36_sasl_authenticate import SaslAuthenticateResponse
from receiver.wire.primitives import Reader
from tests.testbed.scripted_broker import API_VERSIONS, SASL_HANDSHAKE, Answers

#: The principal of a login whose name the receiver cannot read.
UNKNOWN = "User:unknown"
PASSWORD = b"s3cret-Pa55word"
#: The broker's mechanisms; it accepts any token of the last.
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "GSSAPI")

#: The id and the owner of the only delegation token (KIP-48).
TOKEN_ID, OWNER = "token-id", "User:carol"

_SASL_AUTHENTICATE, _CREATE_DELEGATION_TOKEN, _DESCRIBE_DELEGATION_TOKEN = 36, 38, 41
_UNSUPPORTED_SASL_MECHANISM, _ILLEGAL_SASL_STATE, _AUTHENTICATION_FAILED = 33, 34, 58

_SASLNAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_CLIENT_FIRST = re.compile(
    f"n,(a=(?P<authzid>{_SASLNAME}))?,(m={_VALUE},)?n=(?P<name>{_SASLNAME}),"
    f"r=(?P<nonce>[\\x21-\\x2b\\x2d-\\x7e]+)(?P<extensions>(,[A-Za-z]+={_VALUE})*)"
)


def claimed_principal(mechanism: str, token: bytes) -> str | None:
    """Return the principal that a broker reads from a first token, or None.

    Args:
        mechanism: PLAIN or one of SCRAM's.
        token: The token; None is returned if the broker refuses it.
    """
    text = token.decode("utf-8", "replace")
    if mechanism == "PLAIN":
        parts = text.split("\0")
        if len(parts) != 3 or not parts[1] or not parts[2] or parts[0] not in ("", parts[1]):
            return None
        return f"User:{parts[1]}"
    first = _CLIENT_FIRST.fullmatch(text)
    if first is None:
        return None
    name = first["name"].replace("=2C", ",").replace("=3D", "=")
    if first["authzid"] not in (None, "", name):
        return None
    extensions = dict(pair.split("=", 1) for pair in first["extensions"].split(",")[1:])
    by_token = extensions.get("tokenauth", "").lower() == "true"  # KIP-48
    return f"DelegationToken:{name}" if by_token else f"User:{name}"


class LoginBroker:
    """The broker's end of a connection of a SASL listener.

    Args:
        answers: Its answers to authenticated clients.

    Attributes:
        principal: The principal of the client; None before a login.
        dead: Whether it has closed the connection.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.principal: str | None = None
        self.dead = False
        self._mechanism: str | None = None
        self._claimed: str | None = None

    def to(self, data: bytes) -> bytes | None:
        """Answer one frame (given and returned without its length); None for no answer."""
        key, version, correlation_id = struct.unpack_from(">hhi", data)
        if key == SASL_HANDSHAKE and version == 1:
            return self._handshake(data, version, correlation_id)
        if key == _SASL_AUTHENTICATE and version in k36_sasl_authenticate.SUPPORTED_VERSIONS:
            return self._authenticate(data, version, correlation_id)
        if self._mechanism is None and (key == API_VERSIONS or self.principal is not None):
            if key not in (_CREATE_DELEGATION_TOKEN, _DESCRIBE_DELEGATION_TOKEN):
                return self._answers.to(data)
            if (key, version) == (_DESCRIBE_DELEGATION_TOKEN, 1):
                return struct.pack(">i", correlation_id) + _TOKENS
        self.dead = True  # other requests before the end of a login
        return None

    def _handshake(self, data: bytes, version: int, correlation_id: int) -> bytes:
        reader = Reader(data)
        decode_request_header(reader)
        mechanism = k17_sasl_handshake.decode_request(reader, version).mechanism
        error = 0
        if self._mechanism is not None:
            error = _ILLEGAL_SASL_STATE
        elif mechanism not in MECHANISMS:
            error = _UNSUPPORTED_SASL_MECHANISM
        else:
            self._mechanism, self._claimed = mechanism, None
        self.dead = self.dead or error != 0
        answer = SaslHandshakeResponse(error_code=error, mechanisms=MECHANISMS)
        return correlation_id.to_bytes(4, "big", signed=True) + k17_sasl_handshake.encode_response(
            answer, version
        )

    def _authenticate(self, data: bytes, version: int, correlation_id: int) -> bytes:
        reader = Reader(data)
        decode_request_header(reader)
        token = k36_sasl_authenticate.decode_request(reader, version).auth_bytes
        answer = SaslAuthenticateResponse(error_code=_ILLEGAL_SASL_STATE)
        if self._mechanism is not None:
            answer = self._token(self._mechanism, token)
        self.dead = self.dead or answer.error_code != 0
        header = ResponseHeader(correlation_id=correlation_id)
        return encode_response_header(
            header, response_header_version(_SASL_AUTHENTICATE, version)
        ) + k36_sasl_authenticate.encode_response(answer, version)

    def _token(self, mechanism: str, token: bytes) -> SaslAuthenticateResponse:
        if mechanism == "GSSAPI":
            return self._let_in(UNKNOWN)
        if self._claimed is not None:  # SCRAM's second
            return self._let_in(self._claimed, b"v=c2lnbmF0dXJl") if token.startswith(b"c=") else _REFUSED
        claimed = claimed_principal(mechanism, token)
        if claimed is None:
            return _REFUSED
        if mechanism == "PLAIN":
            return self._let_in(claimed) if token.endswith(b"\0" + PASSWORD) else _REFUSED
        if claimed.startswith("DelegationToken:"):
            if claimed != f"DelegationToken:{TOKEN_ID}":
                return _REFUSED
            claimed = OWNER  # KIP-48: a login with a token is its owner's
        self._claimed = claimed
        return SaslAuthenticateResponse(error_code=0, auth_bytes=b"r=server,s=c2FsdA==,i=4096")

    def _let_in(self, principal: str, token: bytes = b"") -> SaslAuthenticateResponse:
        if self.principal not in (None, principal):
            return _REFUSED  # KIP-368: the principal must not change
        self.principal, self._mechanism = principal, None
        return SaslAuthenticateResponse(error_code=0, auth_bytes=token, session_lifetime_ms=60_000)


def _string(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


#: An answer to DescribeDelegationToken v1: no error, one token, no renewers, no throttling.
_TOKENS = b"".join(
    (
        struct.pack(">hi", 0, 1),
        *map(_string, OWNER.split(":")),
        bytes(24),
        _string(TOKEN_ID),
        struct.pack(">i", 4),
        b"hmac",
        bytes(8),
    )
)
_REFUSED = SaslAuthenticateResponse(error_code=_AUTHENTICATION_FAILED, error_message="no")
