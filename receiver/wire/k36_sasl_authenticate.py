"""SaslAuthenticate (API key 36): one token of a SASL exchange (KIP-152).

Versions:

- 0: the first.
- 1: the response has the lifetime of the session (KIP-368).
- 2: flexible (KIP-482).

Tokens hold passwords. They are not parsed here, are left out of ``repr()``, and must never be
logged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from receiver.wire import api_keys
from receiver.wire.api_keys import check_version
from receiver.wire.primitives import Reader
from receiver.wire.writer import TaggedFields, Writer

#: The versions that the receiver reads.
SUPPORTED_VERSIONS: Final = range(3)

_FIRST_WITH_LIFETIME = 1
_FIRST_FLEXIBLE = 2

_LIFETIME = Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateRequest:
    """A client's token."""

    auth_bytes: bytes = field(repr=False)
    """The token in the mechanism's format: a secret."""
    tagged_fields: TaggedFields = field(default=(), repr=False)
    """Unknown tagged fields; empty before version 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateResponse:
    """A broker's token, or its refusal."""

    error_code: int
    """Error code (int16), also one that is not in ``ErrorCode``."""
    error_message: str | None = None
    """The broker's text about the error, or None."""
    auth_bytes: bytes = field(default=b"", repr=False)
    """The token in the mechanism's format."""
    session_lifetime_ms: int = 0
    """Milliseconds after which the client must authenticate again. 0 means never, and is the value
    before version 1."""
    tagged_fields: TaggedFields = field(default=(), repr=False)
    """Unknown tagged fields; empty before version 2."""


def decode_request(reader: Reader, version: int) -> SaslAuthenticateRequest:
    """Read a request body; the token is copied (KIP-152)."""
    check_version(api_keys.SASL_AUTHENTICATE, version, SUPPORTED_VERSIONS)
    if version >= _FIRST_FLEXIBLE:
        return SaslAuthenticateRequest(
            auth_bytes=bytes(reader.compact_bytes_view("AuthBytes")),
            tagged_fields=reader.tagged_fields("SaslAuthenticateRequest's tagged fields"),
        )
    return SaslAuthenticateRequest(auth_bytes=bytes(reader.bytes_view("AuthBytes")))


def decode_response(reader: Reader, version: int) -> SaslAuthenticateResponse:
    """Read a response body; the token is copied (KIP-152, KIP-368)."""
    check_version(api_keys.SASL_AUTHENTICATE, version, SUPPORTED_VERSIONS)
    flexible = version >= _FIRST_FLEXIBLE
    return SaslAuthenticateResponse(
        error_code=reader.int16("ErrorCode"),
        error_message=(
            reader.compact_nullable_string("ErrorMessage")
            if flexible
            else reader.nullable_string("ErrorMessage")
        ),
        auth_bytes=bytes(
            reader.compact_bytes_view("AuthBytes") if flexible else reader.bytes_view("AuthBytes")
        ),
        session_lifetime_ms=reader.int64("SessionLifetimeMs") if version >= _FIRST_WITH_LIFETIME else 0,
        tagged_fields=reader.tagged_fields("SaslAuthenticateResponse's tagged fields") if flexible else (),
    )


def encode_request(request: SaslAuthenticateRequest, version: int) -> bytes:
    """Write a request body (KIP-152)."""
    check_version(api_keys.SASL_AUTHENTICATE, version, SUPPORTED_VERSIONS)
    writer = Writer()
    if version >= _FIRST_FLEXIBLE:
        writer.compact_bytes_field(request.auth_bytes)
        writer.tagged_fields(request.tagged_fields)
    else:
        writer.bytes_field(request.auth_bytes)
    return writer.take()


def encode_response(value: SaslAuthenticateResponse, version: int) -> bytes:
    """Write a response body, without fields that the version lacks (KIP-368)."""
    check_version(api_keys.SASL_AUTHENTICATE, version, SUPPORTED_VERSIONS)
    flexible = version >= _FIRST_FLEXIBLE
    writer = Writer()
    writer.int16(value.error_code)
    if flexible:
        writer.compact_nullable_string(value.error_message)
        writer.compact_bytes_field(value.auth_bytes)
    else:
        writer.nullable_string(value.error_message)
        writer.bytes_field(value.auth_bytes)
    if version >= _FIRST_WITH_LIFETIME:
        writer.fixed(_LIFETIME, value.session_lifetime_ms)
    if flexible:
        writer.tagged_fields(value.tagged_fields)
    return writer.take()
