"""SaslHandshake, API key 17: which SASL mechanism a client authenticates with (KIP-43).

What the versions changed (none is flexible, and none ever will be: KIP-1313):

- 0: the tokens that follow are raw, each behind four bytes of length and with no Kafka header.
- 1: the same bytes; the tokens that follow are SaslAuthenticate requests (KIP-152).

This module owns the bytes of both. It must not say which mechanisms are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from receiver.wire.primitives import Reader, Writer

__all__ = [
    "SUPPORTED_VERSIONS",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

#: The versions that this module reads and writes.
SUPPORTED_VERSIONS: Final = range(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeRequest:
    """A client's choice.

    Attributes:
        mechanism: The SASL mechanism's name, ``PLAIN`` for instance.
    """

    mechanism: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeResponse:
    """The broker's answer.

    Attributes:
        error_code: An error code (int16); one that is not in ``ErrorCode`` is kept as it is.
        mechanisms: The mechanisms that the broker's listener has.
    """

    error_code: int
    mechanisms: tuple[str, ...] = ()


def decode_request(reader: Reader, version: int) -> SaslHandshakeRequest:
    """Read a request's body.

    Args:
        reader: At the body.
        version: The request's API version, one of :data:`SUPPORTED_VERSIONS`.

    Returns:
        The request.

    Raises:
        WireError: The bytes are no such body.
        ValueError: The version is not supported.

    Source: KIP-43.
    """
    _check_version(version)
    return SaslHandshakeRequest(mechanism=reader.string("Mechanism"))


def encode_request(value: SaslHandshakeRequest, version: int) -> bytes:
    """Write a request's body.

    Args:
        value: The request.
        version: One of :data:`SUPPORTED_VERSIONS`.

    Returns:
        The body.

    Raises:
        ValueError: The version is not supported, or the mechanism is too long.

    Source: KIP-43.
    """
    _check_version(version)
    writer = Writer()
    writer.string(value.mechanism)
    return writer.take()


def decode_response(reader: Reader, version: int) -> SaslHandshakeResponse:
    """Read a response's body.

    Args:
        reader: At the body.
        version: The request's API version, one of :data:`SUPPORTED_VERSIONS`.

    Returns:
        The response.

    Raises:
        WireError: The bytes are no such body.
        ValueError: The version is not supported.

    Source: KIP-43.
    """
    _check_version(version)
    error_code = reader.int16("ErrorCode")
    count = reader.array_length("Mechanisms", item_size=2)
    return SaslHandshakeResponse(
        error_code=error_code, mechanisms=tuple([reader.string("Mechanisms") for _ in range(count)])
    )


def encode_response(value: SaslHandshakeResponse, version: int) -> bytes:
    """Write a response's body.

    Args:
        value: The response.
        version: One of :data:`SUPPORTED_VERSIONS`.

    Returns:
        The body.

    Raises:
        ValueError: The version is not supported, or a mechanism is too long.

    Source: KIP-43.
    """
    _check_version(version)
    writer = Writer()
    writer.int16(value.error_code)
    writer.array_length(len(value.mechanisms))
    for mechanism in value.mechanisms:
        writer.string(mechanism)
    return writer.take()


def _check_version(version: int) -> None:
    if version not in SUPPORTED_VERSIONS:
        raise ValueError(
            f"SaslHandshake version {version} is not one of "
            f"{SUPPORTED_VERSIONS[0]} to {SUPPORTED_VERSIONS[-1]}"
        )
