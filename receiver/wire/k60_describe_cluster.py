"""DescribeCluster (API key 60): the brokers or controllers of a cluster (KIP-700).

Flexible from the start. Versions of the response:

- 1: whether the nodes are brokers or controllers (KIP-919).
- 2: whether a broker is fenced (KIP-1073).
"""

from __future__ import annotations

from typing import Final

from receiver.wire import api_keys
from receiver.wire.api_keys import check_version
from receiver.wire.broker_addresses import ReplaceAddress, copy_brokers, copy_fields
from receiver.wire.primitives import Reader
from receiver.wire.writer import Writer

#: The versions whose addresses this module replaces.
SUPPORTED_VERSIONS: Final = range(3)

_FIRST_WITH_ENDPOINT_TYPE = 1
_FIRST_WITH_FENCED = 2


def replace_addresses(body: bytes, version: int, replace: ReplaceAddress) -> bytes:
    """Replace the addresses of brokers or controllers in a response body."""
    check_version(api_keys.DESCRIBE_CLUSTER, version, SUPPORTED_VERSIONS)
    reader, writer = Reader(body), Writer()
    copy_fields(reader, writer, lambda fields: _before_brokers(fields, version))
    copy_brokers(reader, writer, replace, flexible=True, rest=lambda fields: _after_port(fields, version))
    writer.raw(reader.rest_view())
    return writer.take()


def _before_brokers(reader: Reader, version: int) -> None:
    reader.int32("ThrottleTimeMs")
    reader.int16("ErrorCode")
    reader.compact_nullable_string("ErrorMessage")
    if version >= _FIRST_WITH_ENDPOINT_TYPE:
        reader.skip(1, "EndpointType")
    reader.compact_string("ClusterId")
    reader.int32("ControllerId")


def _after_port(reader: Reader, version: int) -> None:
    reader.compact_nullable_string("Rack")
    if version >= _FIRST_WITH_FENCED:
        reader.skip(1, "IsFenced")
    reader.tagged_fields("Broker's tagged fields")
