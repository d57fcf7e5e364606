"""OffsetDelete, API key 47: a group's offsets to forget (KIP-496).

What the versions changed:

- 0: the first, not flexible.
- 1: flexible; the same fields (KIP-1313).

It is the one RPC whose body changes with the version that KIP-1313 adds, so this module owns how a request of
version 1 is said in version 0, and its response the other way. It must not know whose offsets they are.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from receiver.wire.errors import WireError
from receiver.wire.primitives import Reader, Writer

__all__ = ["request_to_v0", "response_to_v1"]

#: Topics and partitions of one message: far more than a group has, and what takes a fifth of a second.
_MOST_ITEMS: Final = 65_536

_PARTITION = Struct(">i")
_PARTITION_AND_ERROR = Struct(">ih")


def request_to_v0(reader: Reader) -> bytes:
    """Say a request of version 1 in version 0, which has no room for tagged fields: they are left out.

    Args:
        reader: At the body; afterwards at its end.

    Returns:
        The body in version 0.

    Raises:
        WireError: The bytes are no such body, or it has more than 65,536 topics and partitions.

    Source: KIP-1313, "OffsetDelete API".
    """
    writer = Writer()
    writer.string(reader.compact_string("GroupId"))
    topics = items = reader.compact_array_length("Topics", item_size=3)
    writer.array_length(topics)
    for _ in range(topics):
        writer.string(reader.compact_string("Name"))
        partitions = reader.compact_array_length("Partitions", item_size=5)
        items = _counted(reader, items + partitions)
        writer.array_length(partitions)
        for _ in range(partitions):
            writer.fixed(_PARTITION, *reader.fixed(_PARTITION, "PartitionIndex"))
            reader.tagged_fields("OffsetDeleteRequestPartition's tagged fields")
        reader.tagged_fields("OffsetDeleteRequestTopic's tagged fields")
    reader.tagged_fields("OffsetDeleteRequest's tagged fields")
    return writer.take()


def response_to_v1(reader: Reader) -> bytes:
    """Say a response of version 0 in version 1.

    Args:
        reader: At the body; afterwards at its end.

    Returns:
        The body in version 1.

    Raises:
        WireError: The bytes are no such body, or it has more than 65,536 topics and partitions.

    Source: KIP-1313, "OffsetDelete API".
    """
    writer = Writer()
    writer.int16(reader.int16("ErrorCode"))
    writer.int32(reader.int32("ThrottleTimeMs"))
    topics = items = reader.array_length("Topics", item_size=6)
    writer.compact_array_length(topics)
    for _ in range(topics):
        writer.compact_string(reader.string("Name"))
        partitions = reader.array_length("Partitions", item_size=_PARTITION_AND_ERROR.size)
        items = _counted(reader, items + partitions)
        writer.compact_array_length(partitions)
        for _ in range(partitions):
            writer.fixed(
                _PARTITION_AND_ERROR, *reader.fixed(_PARTITION_AND_ERROR, "PartitionIndex and ErrorCode")
            )
            writer.tagged_fields(())
        writer.tagged_fields(())
    writer.tagged_fields(())
    return writer.take()


def _counted(reader: Reader, items: int) -> int:
    if items > _MOST_ITEMS:
        raise WireError(
            expected=f"at most {_MOST_ITEMS} topics and partitions", offset=reader.offset, found=str(items)
        )
    return items
