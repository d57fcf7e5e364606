"""Metadata (API key 3) for no topics: marker of telemetry requests, and probe.

Versions, as far as a request for no topics is concerned:

- 1: an empty list of topics means none (in version 0 it means all). The response has broker racks.
- 2: the response has the cluster id.
- 3: the response begins with the throttle time.
- 4: the request has whether topics may be created.
- 8: the request has whether to return authorized operations, of the cluster and of topics.
- 9: flexible (KIP-482).
- 11: the request lacks the authorized operations of the cluster (KIP-700).
- 13: the response has a top-level error code, after everything that is read here (KIP-1102).

Metadata requests of clients pass unread. In their responses the brokers' addresses are replaced if
the listener rewrites addresses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from receiver.wire import api_keys
from receiver.wire.api_keys import check_version
from receiver.wire.broker_addresses import BrokerAddress, ReplaceAddress, copy_brokers, copy_fields
from receiver.wire.primitives import Reader
from receiver.wire.writer import Buffer, Writer

#: The versions that this module reads and writes. Version 0 cannot ask for no topics.
SUPPORTED_VERSIONS: Final = range(1, 14)

#: The versions whose addresses this module replaces.
REPLACED_VERSIONS: Final = range(14)

_FIRST_WITH_RACKS = 1
_FIRST_WITH_CLUSTER_ID = 2
#: The first version whose response has a throttle time.
FIRST_WITH_THROTTLE_TIME: Final = 3
_FIRST_WITH_CREATION = 4
_WITH_CLUSTER_OPERATIONS = range(8, 11)
_FIRST_WITH_TOPIC_OPERATIONS = 8
_FIRST_FLEXIBLE = 9


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a Metadata response says of the cluster."""

    id: str | None
    """The cluster id; None if the broker names none, and always in version 1."""
    brokers: tuple[BrokerAddress, ...]
    """The brokers that are alive."""


def encode_no_topics_request(version: int) -> bytes:
    """Write the body of a request for no topics, the marker.

    It creates no topics and asks for no authorized operations.
    """
    check_version(api_keys.METADATA, version, SUPPORTED_VERSIONS)
    writer = Writer()
    if version >= _FIRST_FLEXIBLE:
        writer.compact_array_length(0)
    else:
        writer.array_length(0)
    if version >= _FIRST_WITH_CREATION:
        writer.boolean(value=False)
    if version in _WITH_CLUSTER_OPERATIONS:
        writer.boolean(value=False)
    if version >= _FIRST_WITH_TOPIC_OPERATIONS:
        writer.boolean(value=False)
    if version >= _FIRST_FLEXIBLE:
        writer.tagged_fields(())
    return writer.take()


def decode_cluster(reader: Reader, version: int) -> Cluster:
    """Read the brokers and the cluster id of a response body.

    The bytes after them stay unread.
    """
    check_version(api_keys.METADATA, version, SUPPORTED_VERSIONS)
    brokers = []
    for _ in range(_brokers(reader, version)):
        node_id = reader.int32("NodeId")
        if version >= _FIRST_FLEXIBLE:
            host, port = reader.compact_string("Host"), reader.int32("Port")
            reader.compact_nullable_string("Rack")
            reader.tagged_fields("Broker's tagged fields")
        else:
            host, port = reader.string("Host"), reader.int32("Port")
            reader.nullable_string("Rack")
        brokers.append(BrokerAddress(node_id, host, port))
    if version < _FIRST_WITH_CLUSTER_ID:
        return Cluster(None, tuple(brokers))
    if version >= _FIRST_FLEXIBLE:
        return Cluster(reader.compact_nullable_string("ClusterId"), tuple(brokers))
    return Cluster(reader.nullable_string("ClusterId"), tuple(brokers))


def decode_throttle_time_ms(reader: Reader, version: int) -> int:
    """Read only the throttle time of a response body.

    0 before version 3, which has none.
    """
    check_version(api_keys.METADATA, version, SUPPORTED_VERSIONS)
    return reader.int32("ThrottleTimeMs") if version >= FIRST_WITH_THROTTLE_TIME else 0


def is_error(reader: Reader, version: int) -> bool:
    """Return whether the broker refused a Metadata request as a whole.

    Metadata has no top-level error code before version 13. A broker refuses it until authentication
    is over, and its response then names neither a broker nor a cluster. A broker that has just
    started may know no brokers yet, but knows its cluster, which version 1 can't tell.

    Args:
        reader: At the response's body.
        version: The request's API version.

    Source: Kafka's MetadataRequest.getErrorResponse; KIP-152 for when a request is refused.
    """
    check_version(api_keys.METADATA, version, SUPPORTED_VERSIONS)
    if _brokers(reader, version):
        return False
    if version < _FIRST_WITH_CLUSTER_ID:
        return True
    if version >= _FIRST_FLEXIBLE:
        return reader.compact_nullable_string("ClusterId") is None
    return reader.nullable_string("ClusterId") is None


def _brokers(reader: Reader, version: int) -> int:
    if version >= FIRST_WITH_THROTTLE_TIME:
        reader.int32("ThrottleTimeMs")
    if version >= _FIRST_FLEXIBLE:
        return reader.compact_array_length("Brokers", item_size=11)
    return reader.array_length("Brokers", item_size=12)


def replace_addresses(body: Buffer, version: int, replace: ReplaceAddress) -> tuple[bytes, int]:
    """Replace the brokers' addresses at the beginning of a response body.

    Only the bytes up to the end of the brokers need to be there. Returns the new beginning, up to
    the end of the brokers, and where the brokers end in ``body``.

    Args:
        body: The response's body, or its beginning.
        version: The request's API version.
        replace: Gives the host and port of each broker.

    Raises:
        WireError: The brokers are malformed, or end after ``body``.
    """
    check_version(api_keys.METADATA, version, REPLACED_VERSIONS)
    reader, writer = Reader(body), Writer()
    if version >= FIRST_WITH_THROTTLE_TIME:
        copy_fields(reader, writer, lambda fields: fields.int32("ThrottleTimeMs"))
    copy_brokers(
        reader,
        writer,
        replace,
        flexible=version >= _FIRST_FLEXIBLE,
        rest=lambda fields: _after_port(fields, version),
    )
    return writer.take(), reader.offset


def _after_port(reader: Reader, version: int) -> None:
    if version >= _FIRST_FLEXIBLE:
        reader.compact_nullable_string("Rack")
        reader.tagged_fields("Broker's tagged fields")
    elif version >= _FIRST_WITH_RACKS:
        reader.nullable_string("Rack")
