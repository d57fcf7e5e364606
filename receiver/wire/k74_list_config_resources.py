"""ListConfigResources (API key 74): the names of resources that have configs.

Version 0 is ListClientMetricsResources: it has no types, and lists client metrics resources
(KIP-714). Version 1 lists the types that the request names, or all that the broker knows
(KIP-1142). Both are flexible.

Source: the schemas of the request and the response.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from receiver.wire.api_keys import LIST_CONFIG_RESOURCES, check_version
from receiver.wire.config_resources import CLIENT_METRICS
from receiver.wire.either_form import EitherReader, EitherWriter

#: The versions that this module reads.
SUPPORTED_VERSIONS: Final = range(2)

#: The version that lists client metrics resources only.
LIST_ONLY: Final = 0

#: The fewest bytes of a resource in a response: an empty name, and its tagged fields.
_LEAST_RESOURCE: Final = 2


def asks_for(body: bytes, version: int, resource_type: int) -> bool:
    """Return whether a request asks for resources of a type."""
    check_version(LIST_CONFIG_RESOURCES, version, SUPPORTED_VERSIONS)
    reader = EitherReader(body, flexible=True)
    if version == LIST_ONLY:
        reader.tags("ListConfigResourcesRequest's tagged fields")
        return resource_type == CLIENT_METRICS
    count = reader.count("ResourceTypes", item_size=1)
    types = {reader.int8("ResourceType") for _ in range(count)}
    reader.tags("ListConfigResourcesRequest's tagged fields")
    return not types or resource_type in types


def encode_response(names: Sequence[str], *, error_code: int) -> bytes:
    """Write a response body of version 0."""
    writer = EitherWriter(flexible=True)
    writer.int32(0)
    writer.int16(error_code)
    writer.count(len(names))
    for name in names:
        writer.text(name)
        writer.tags()
    writer.tags()
    return writer.take()


def decode_response(body: bytes) -> tuple[int, tuple[str, ...]]:
    """Read the error code and the names of a response body of version 0."""
    reader = EitherReader(body, flexible=True)
    reader.int32("ThrottleTimeMs")
    error_code = reader.int16("ErrorCode")
    names = []
    for _ in range(reader.count("ConfigResources", item_size=_LEAST_RESOURCE)):
        names.append(reader.text("ResourceName"))
        reader.tags("ConfigResource's tagged fields")
    return error_code, tuple(names)
