"""Builds raw requests by hand, well-formed and not, without the receiver's own codec.

Owns the bytes that a case sends. What they mean to whom is the cases' business.
"""

from __future__ import annotations

import struct
from typing import Final

import google_crc32c

PRODUCE: Final = 0
METADATA: Final = 3
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
GET_TELEMETRY_SUBSCRIPTIONS: Final = 71
PUSH_TELEMETRY: Final = 72

ZERO_ID: Final = bytes(16)
RESERVED_ID: Final = bytes(15) + b"\x01"

#: The bytes FF FE, as Python decodes them.
NO_UTF8: Final = "\udcff\udcfe"

NO_TAGS: Final = b"\0"
#: Two unknown tagged fields: 0x4000 of three bytes and 0x4001 of none.
UNKNOWN_TAGS: Final = b"\x02" + b"\x80\x80\x01\x03abc" + b"\x81\x80\x01\x00"


def frame(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode(errors="surrogateescape")
    return struct.pack(">h", len(data)) + data


def compact_bytes(data: bytes | None) -> bytes:
    return NO_TAGS if data is None else uvarint(len(data) + 1) + data


def compact_string(text: str | None) -> bytes:
    return compact_bytes(None if text is None else text.encode())


def header(
    api_key: int, version: int, correlation_id: int, client_id: str | None, tags: bytes | None = None
) -> bytes:
    """A request header; version 1 where ``tags`` is None, else version 2 with those tagged fields.

    In version 3 the client instance id is in front of them (KIP-1313).
    """
    return struct.pack(">hhi", api_key, version, correlation_id) + string(client_id) + (tags or b"")


def api_versions_body(
    version: int,
    name: str | None = "conformance",
    software_version: str | None = "1.0",
    cluster_id: str | None = None,
    node_id: int = -1,
    tags: bytes = NO_TAGS,
) -> bytes:
    if version < 3:
        return b""
    node = compact_string(cluster_id) + struct.pack(">i", node_id) if version >= 5 else b""
    return compact_string(name) + compact_string(software_version) + node + tags


def push_body(
    subscription_id: int,
    metrics: bytes | None,
    *,
    codec: int = 0,
    terminating: bool = False,
    tags: bytes = NO_TAGS,
) -> bytes:
    """PushTelemetry, behind the client instance id."""
    return struct.pack(">i?b", subscription_id, terminating, codec) + compact_bytes(metrics) + tags


def metadata_body() -> bytes:
    """Metadata v2 for no topics."""
    return struct.pack(">i", 0)


def produce_body(topic: str, acks: int, value: bytes) -> bytes:
    """Produce v3 of one record to partition 0."""
    batch = record_batch(value)
    partition = struct.pack(">iii", 1, 0, len(batch)) + batch
    return string(None) + struct.pack(">hii", acks, 10_000, 1) + string(topic) + partition


def record_batch(value: bytes) -> bytes:
    record = b"\0" + b"\0" + b"\0" + b"\x01" + _varint(len(value)) + value + b"\0"
    records = _varint(len(record)) + record
    checked = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + records
    after_length = struct.pack(">ibI", -1, 2, google_crc32c.value(checked)) + checked
    return struct.pack(">qi", 0, len(after_length)) + after_length


def _varint(value: int) -> bytes:
    return uvarint(value << 1)
