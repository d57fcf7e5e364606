"""DescribeConfigs (API key 32), to ask a broker whether a node id is its own.

A broker describes the configuration of resource type BROKER for its own node id only; for another
id it answers INVALID_REQUEST. Versions 1 to 3 have the same bytes as far as they are used here,
except that version 3 also asks whether to include documentation. Version 4, which is flexible, is
not needed: every broker that has it has version 1 too.

Source: Kafka's ConfigHelper.describeConfigs, and the schemas of the request and the response.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from receiver.wire import api_keys
from receiver.wire.api_keys import check_version
from receiver.wire.error_codes import ErrorCode
from receiver.wire.primitives import Reader, Writer

__all__ = ["SUPPORTED_VERSIONS", "decode_own_node_ids", "encode_brokers_request"]

#: The versions that this module reads and writes.
SUPPORTED_VERSIONS: Final = range(1, 4)

_BROKER: Final = 4
_FIRST_WITH_DOCUMENTATION = 3

#: A config that every broker has, so that the response stays short.
_KEY: Final = "node.id"

#: Error code, null message, type, empty name, no configs.
_LEAST_RESULT: Final = 2 + 2 + 1 + 2 + 4


def encode_brokers_request(node_ids: Sequence[int], version: int) -> bytes:
    """Write the body of a request for one config of each of these brokers."""
    check_version(api_keys.DESCRIBE_CONFIGS, version, SUPPORTED_VERSIONS)
    writer = Writer()
    writer.array_length(len(node_ids))
    for node_id in node_ids:
        writer.int8(_BROKER)
        writer.string(str(node_id))
        writer.array_length(1)
        writer.string(_KEY)
    writer.boolean(value=False)
    if version >= _FIRST_WITH_DOCUMENTATION:
        writer.boolean(value=False)
    return writer.take()


def decode_own_node_ids(reader: Reader, version: int) -> list[int]:
    """Read a response body; return the node ids that the broker calls its own.

    Raises:
        WireError: The body is malformed, or names a resource that is no node id.
    """
    check_version(api_keys.DESCRIBE_CONFIGS, version, SUPPORTED_VERSIONS)
    reader.int32("ThrottleTimeMs")
    own = []
    for _ in range(reader.array_length("Results", item_size=_LEAST_RESULT)):
        error_code = reader.int16("ErrorCode")
        reader.nullable_string("ErrorMessage")
        reader.int8("ResourceType")
        name = reader.string("ResourceName")
        for _ in range(reader.array_length("Configs", item_size=9)):
            _skip_config(reader, version)
        if error_code == ErrorCode.NONE and name.isdecimal():
            own.append(int(name))
    return own


def _skip_config(reader: Reader, version: int) -> None:
    reader.string("Name")
    reader.nullable_string("Value")
    reader.int8("ReadOnly")
    reader.int8("ConfigSource")
    reader.int8("IsSensitive")
    for _ in range(reader.array_length("Synonyms", item_size=5)):
        reader.string("Name")
        reader.nullable_string("Value")
        reader.int8("Source")
    if version >= _FIRST_WITH_DOCUMENTATION:
        reader.int8("ConfigType")
        reader.nullable_string("Documentation")
