"""SaslAuthenticate, API key 36: one token of a SASL exchange (KIP-152).

What the versions changed:

- 0: the first.
- 1: the response tells for how long the session lasts (KIP-368).
- 2: flexible (KIP-482).

This module owns the bytes of both. It must not look into a token. Tokens hold passwords: they are left out of
the text form of the values here, and must never be logged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from receiver.wire.primitives import Reader, TaggedFields, Writer

__all__ = [
    "SUPPORTED_VERSIONS",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

#: The versions that this module reads and writes.
SUPPORTED_VERSIONS: Final = range(3)

_FIRST_WITH_LIFETIME = 1
_FIRST_FLEXIBLE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateRequest:
    """A client's token.

    Attributes:
        auth_bytes: The token, as the mechanism defines it: a secret.
        tagged_fields: Tagged fields, kept raw; empty before version 2.
    """

    auth_bytes: bytes = field(repr=False)
    tagged_fields: TaggedFields = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateResponse:
    """A broker's token, and whether it said no.

    Attributes:
        error_code: An error code (int16); one that is not in ``ErrorCode`` is kept as it is.
        error_message: What the broker says of the error, or None.
        auth_bytes: The token, as the mechanism defines it.
        session_lifetime_ms: Milliseconds after which the client must authenticate again; 0 for never, and
            before version 1.
        tagged_fields: Tagged fields, kept raw; empty before version 2.
    """

    error_code: int
    error_message: str | None = None
    auth_bytes: bytes = field(default=b"", repr=False)
    session_lifetime_ms: int = 0
    tagged_fields: TaggedFields = field(default=(), repr=False)


def decode_request(reader: Reader, version: int) -> SaslAuthenticateRequest:
    """Read a request's body.

    Args:
        reader: At the body.
        version: The request's API version, one of :data:`SUPPORTED_VERSIONS`.

    Returns:
        The request, with a copy of the token.

    Raises:
        WireError: The bytes are no such body.
        ValueError: The version is not supported.

    Source: KIP-152.
    """
    _check_version(version)
    if version >= _FIRST_FLEXIBLE:
        return SaslAuthenticateRequest(
            auth_bytes=bytes(reader.compact_bytes_view("AuthBytes")),
            tagged_fields=reader.tagged_fields("SaslAuthenticateRequest's tagged fields"),
        )
    return SaslAuthenticateRequest(auth_bytes=bytes(reader.bytes_view("AuthBytes")))


def encode_request(value: SaslAuthenticateRequest, version: int) -> bytes:
    """Write a request's body; what the version does not carry is left out.

    Args:
        value: The request.
        version: One of :data:`SUPPORTED_VERSIONS`.

    Returns:
        The body.

    Raises:
        ValueError: The version is not supported.

    Source: KIP-152.
    """
    _check_version(version)
    writer = Writer()
    if version >= _FIRST_FLEXIBLE:
        writer.compact_bytes(value.auth_bytes)
        writer.tagged_fields(value.tagged_fields)
    else:
        writer.bytes_(value.auth_bytes)
    return writer.take()


def decode_response(reader: Reader, version: int) -> SaslAuthenticateResponse:
    """Read a response's body.

    Args:
        reader: At the body.
        version: The request's API version, one of :data:`SUPPORTED_VERSIONS`.

    Returns:
        The response, with a copy of the token.

    Raises:
        WireError: The bytes are no such body.
        ValueError: The version is not supported.

    Source: KIP-152, KIP-368.
    """
    _check_version(version)
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


def encode_response(value: SaslAuthenticateResponse, version: int) -> bytes:
    """Write a response's body; what the version does not carry is left out.

    Args:
        value: The response.
        version: One of :data:`SUPPORTED_VERSIONS`.

    Returns:
        The body.

    Raises:
        ValueError: The version is not supported, or the message is too long.

    Source: KIP-152, KIP-368.
    """
    _check_version(version)
    flexible = version >= _FIRST_FLEXIBLE
    writer = Writer()
    writer.int16(value.error_code)
    if flexible:
        writer.compact_nullable_string(value.error_message)
        writer.compact_bytes(value.auth_bytes)
    else:
        writer.nullable_string(value.error_message)
        writer.bytes_(value.auth_bytes)
    if version >= _FIRST_WITH_LIFETIME:
        writer.int64(value.session_lifetime_ms)
    if flexible:
        writer.tagged_fields(value.tagged_fields)
    return writer.take()


def _check_version(version: int) -> None:
    if version not in SUPPORTED_VERSIONS:
        raise ValueError(
            f"SaslAuthenticate version {version} is not one of "
            f"{SUPPORTED_VERSIONS[0]} to {SUPPORTED_VERSIONS[-1]}"
        )
