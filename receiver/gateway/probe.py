"""The probe: asks a broker listener what it speaks and, where it may, which cluster it belongs to.

Owns one short connection at a time. It is how the receiver knows that an upstream is there before the first
client comes, and when it is back after it was away.
"""

from __future__ import annotations

import asyncio
import os
import socket
from struct import Struct
from typing import Final

from receiver.session.upstream import LEARNED_KEYS, Upstream
from receiver.settings.hostport import HostPort
from receiver.wire import api_keys, k03_metadata, k18_api_versions
from receiver.wire.error_codes import ErrorCode, error_name
from receiver.wire.errors import WireError
from receiver.wire.framing import LENGTH_BYTES, frame
from receiver.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    response_header_version,
)
from receiver.wire.primitives import Reader

__all__ = ["ProbeError", "probe", "reason_of"]

_CLIENT_ID: Final = "kafka-client-telemetry"
_MAX_ANSWER_BYTES: Final = 4_194_304
_LENGTH = Struct(">i")


class ProbeError(Exception):
    """The upstream is not there, or what is there is no Kafka broker. The message is for the operator."""


def reason_of(error: OSError) -> str:
    """Say in the system's words why a connection can't be made, without the address: that is known."""
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)


async def probe(
    address: HostPort, upstream: Upstream, *, ask_cluster_id: bool, timeout_s: float
) -> str | None:
    """Ask the broker at ``address`` once.

    Args:
        address: The upstream's address.
        upstream: Learns the version ranges.
        ask_cluster_id: Whether to ask for the cluster id; only a listener without SASL tells it to us.
        timeout_s: How long the whole may take.

    Returns:
        The cluster id, or None where it was not asked for or the broker has none.

    Raises:
        ProbeError: There was no usable answer.
    """
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            try:
                return await _ask(reader, writer, upstream, ask_cluster_id=ask_cluster_id)
            finally:
                writer.close()
    except TimeoutError:
        raise ProbeError(f"no answer within {timeout_s:g} s") from None
    except asyncio.IncompleteReadError:
        raise ProbeError(
            "the connection was closed before an answer; does that listener speak TLS?"
        ) from None
    except OSError as error:
        raise ProbeError(reason_of(error)) from None
    except WireError as error:
        raise ProbeError(f"the answer is not Kafka's: {error}") from None


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: Upstream, *, ask_cluster_id: bool
) -> str | None:
    writer.write(_request(api_keys.API_VERSIONS, 0, b""))
    answer = await _answer(reader, api_keys.API_VERSIONS, 0)
    error_code = k18_api_versions.read_error_code(answer)
    if error_code != ErrorCode.NONE:
        raise ProbeError(f"the broker answered ApiVersions with {error_name(error_code)}")
    upstream.learn(k18_api_versions.read_ranges(answer, 0, LEARNED_KEYS))
    if not ask_cluster_id:
        return None
    version = upstream.metadata_version()
    writer.write(_request(api_keys.METADATA, version, k03_metadata.encode_no_topics_request(version)))
    return k03_metadata.decode_cluster_id(Reader(await _answer(reader, api_keys.METADATA, version)), version)


def _request(api_key: int, version: int, body: bytes) -> bytes:
    header = RequestHeader(api_key=api_key, api_version=version, correlation_id=0, client_id=_CLIENT_ID)
    return frame(encode_request_header(header), body)


async def _answer(reader: asyncio.StreamReader, api_key: int, version: int) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(LENGTH_BYTES))
    if not 0 <= length <= _MAX_ANSWER_BYTES:
        raise WireError(
            expected=f"an answer of at most {_MAX_ANSWER_BYTES} bytes", offset=0, found=str(length)
        )
    response = await reader.readexactly(length)
    header = Reader(response)
    decode_response_header(header, response_header_version(api_key, version))
    return response[header.offset :]
