"""Translates OffsetDelete (API key 47) between version 1 and version 0.

Version 1 is KIP-1313's: the fields of version 0 (KIP-496) in the flexible encoding. OffsetDelete is
the one RPC whose body changes with the version that KIP-1313 adds. For all others the header alone
is translated.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from receiver.brokers.upstream import Upstream
from receiver.session.exchange import Connection, Exchange, Kind, Request, held_memory
from receiver.session.messages import answer_frame, with_correlation_id
from receiver.wire import api_keys
from receiver.wire.frame_rewriter import frame
from receiver.wire.headers import RequestHeader, at_body
from receiver.wire.primitives import Reader
from receiver.wire.writer import Writer

_PARTITION = Struct(">i")
_PARTITION_AND_ERROR = Struct(">ih")


class _Translated(Exchange):
    """A request of version 1, which the broker gets in version 0."""

    __slots__ = ("_header",)

    def __init__(self, header: RequestHeader) -> None:
        self._header = header

    def responded(self, response: bytes, connection: Connection) -> bytes:
        body = at_body(response, api_keys.OFFSET_DELETE, self._header.api_version - 1)
        return answer_frame(self._header, response_to_v1(body))


def _begin(request: Request, connection: Connection) -> bytes:
    if request.translated is None:
        return frame(request.data)
    head, body = request.data[: request.reader.offset], request_to_v0(request.reader)
    correlation_id = connection.expect(
        _Translated(request.translated), held_bytes=held_memory(request.translated)
    )
    return frame(with_correlation_id(correlation_id, head + body))


def _watched(upstream: Upstream) -> frozenset[int]:
    return KIND.keys if upstream.translates else frozenset()


KIND: Final = Kind(keys=frozenset({api_keys.OFFSET_DELETE}), begin=_begin, watched=_watched)


def request_to_v0(reader: Reader) -> bytes:
    """Translate a request body from version 1 to 0, without its tagged fields.

    Raises:
        WireError: The body is malformed, or has more topics and partitions than are read.
    """
    writer = Writer()
    writer.string(reader.compact_string("GroupId"))
    topics = reader.compact_array_length("Topics", item_size=3)
    writer.array_length(topics)
    for _ in range(topics):
        writer.string(reader.compact_string("Name"))
        partitions = reader.compact_array_length("Partitions", item_size=5)
        writer.array_length(partitions)
        for _ in range(partitions):
            writer.fixed(_PARTITION, *reader.fixed(_PARTITION, "PartitionIndex"))
            reader.tagged_fields("OffsetDeleteRequestPartition's tagged fields")
        reader.tagged_fields("OffsetDeleteRequestTopic's tagged fields")
    reader.tagged_fields("OffsetDeleteRequest's tagged fields")
    return writer.take()


def response_to_v1(reader: Reader) -> bytes:
    """Translate a response body from version 0 to version 1.

    Raises:
        WireError: The body is malformed, or has more topics and partitions than are read.
    """
    writer = Writer()
    writer.int16(reader.int16("ErrorCode"))
    writer.int32(reader.int32("ThrottleTimeMs"))
    topics = reader.array_length("Topics", item_size=6)
    writer.compact_array_length(topics)
    for _ in range(topics):
        writer.compact_string(reader.string("Name"))
        partitions = reader.array_length("Partitions", item_size=_PARTITION_AND_ERROR.size)
        writer.compact_array_length(partitions)
        for _ in range(partitions):
            writer.fixed(
                _PARTITION_AND_ERROR, *reader.fixed(_PARTITION_AND_ERROR, "PartitionIndex and ErrorCode")
            )
            writer.tagged_fields(())
        writer.tagged_fields(())
    writer.tagged_fields(())
    return writer.take()
