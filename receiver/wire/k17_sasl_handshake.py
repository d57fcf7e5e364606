"""SaslHandshake (API key 17): a client's choice of SASL mechanism (KIP-43).

Versions (none is flexible, and none will be, by KIP-1313):

- 0: raw tokens follow, each after a length of four bytes and without a Kafka header.
- 1: the same bytes. SaslAuthenticate requests follow (KIP-152).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from receiver.wire import api_keys
from receiver.wire.api_keys import check_version
from receiver.wire.primitives import Reader
from receiver.wire.writer import Writer

#: The versions that the receiver reads.
SUPPORTED_VERSIONS: Final = range(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeRequest:
    """A client's choice of a SASL mechanism."""

    mechanism: str
    """The mechanism's name, for example ``PLAIN``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeResponse:
    """The broker's answer."""

    error_code: int
    """Error code (int16), also one that is not in ``ErrorCode``."""
    mechanisms: tuple[str, ...] = ()
    """The mechanisms that the broker's listener supports."""


def decode_request(reader: Reader, version: int) -> SaslHandshakeRequest:
    """Read a request body (KIP-43)."""
    check_version(api_keys.SASL_HANDSHAKE, version, SUPPORTED_VERSIONS)
    return SaslHandshakeRequest(mechanism=reader.string("Mechanism"))


def decode_response(reader: Reader, version: int) -> SaslHandshakeResponse:
    """Read a response body (KIP-43)."""
    check_version(api_keys.SASL_HANDSHAKE, version, SUPPORTED_VERSIONS)
    error_code = reader.int16("ErrorCode")
    count = reader.array_length("Mechanisms", item_size=2)
    return SaslHandshakeResponse(
        error_code=error_code, mechanisms=tuple([reader.string("Mechanisms") for _ in range(count)])
    )


def encode_request(request: SaslHandshakeRequest, version: int) -> bytes:
    """Write a request body (KIP-43)."""
    check_version(api_keys.SASL_HANDSHAKE, version, SUPPORTED_VERSIONS)
    writer = Writer()
    writer.string(request.mechanism)
    return writer.take()


def encode_response(value: SaslHandshakeResponse, version: int) -> bytes:
    """Write a response body (KIP-43)."""
    check_version(api_keys.SASL_HANDSHAKE, version, SUPPORTED_VERSIONS)
    writer = Writer()
    writer.int16(value.error_code)
    writer.array_length(len(value.mechanisms))
    for mechanism in value.mechanisms:
        writer.string(mechanism)
    return writer.take()
