"""DescribeQuorum (API key 55): the metadata quorum (KIP-595, KIP-836).

Flexible from the start. Version 2 of the response lists the controllers with their listeners
(KIP-853). These listeners are not the broker's, and no port of the gateway leads to them. So they
are removed, and the controllers' ids stay.
"""

from __future__ import annotations

from typing import Final

from receiver.wire import api_keys
from receiver.wire.api_keys import check_version
from receiver.wire.broker_addresses import copy_fields
from receiver.wire.primitives import Reader
from receiver.wire.writer import Writer

#: The versions whose addresses this module removes.
SUPPORTED_VERSIONS: Final = range(3)

_FIRST_WITH_NODES = 2

# ReplicaId, ReplicaDirectoryId, LogEndOffset, LastFetchTimestamp and LastCaughtUpTimestamp.
_REPLICA_BYTES = 4 + 16 + 3 * 8

# PartitionIndex and ErrorCode; LeaderId, LeaderEpoch and HighWatermark.
_BEFORE_MESSAGE_BYTES = 4 + 2
_AFTER_MESSAGE_BYTES = 4 + 4 + 8


def remove_listeners(body: bytes, version: int) -> bytes:
    """Remove the controllers' listeners from a response body."""
    check_version(api_keys.DESCRIBE_QUORUM, version, SUPPORTED_VERSIONS)
    if version < _FIRST_WITH_NODES:
        return body
    reader, writer = Reader(body), Writer()
    copy_fields(reader, writer, _before_nodes)
    count = reader.compact_array_length("Nodes", item_size=6)
    writer.compact_array_length(count)
    for _ in range(count):
        writer.int32(reader.int32("NodeId"))
        for _ in range(reader.compact_array_length("Listeners", item_size=5)):
            _listener(reader)
        writer.compact_array_length(0)
        writer.tagged_fields(reader.tagged_fields("Node's tagged fields"))
    writer.raw(reader.rest_view())
    return writer.take()


def _before_nodes(reader: Reader) -> None:
    reader.int16("ErrorCode")
    reader.compact_nullable_string("ErrorMessage")
    for _ in range(reader.compact_array_length("Topics", item_size=3)):
        reader.compact_string("TopicName")
        for _ in range(reader.compact_array_length("Partitions", item_size=26)):
            reader.skip(_BEFORE_MESSAGE_BYTES, "PartitionIndex and ErrorCode")
            reader.compact_nullable_string("ErrorMessage")
            reader.skip(_AFTER_MESSAGE_BYTES, "LeaderId, LeaderEpoch and HighWatermark")
            for replicas in ("CurrentVoters", "Observers"):
                for _ in range(reader.compact_array_length(replicas, item_size=_REPLICA_BYTES + 1)):
                    reader.skip(_REPLICA_BYTES, "a replica's state")
                    reader.tagged_fields("replica's tagged fields")
            reader.tagged_fields("Partition's tagged fields")
        reader.tagged_fields("Topic's tagged fields")


def _listener(reader: Reader) -> None:
    reader.compact_string("Name")
    reader.compact_string("Host")
    reader.int16("Port")
    reader.tagged_fields("Listener's tagged fields")
