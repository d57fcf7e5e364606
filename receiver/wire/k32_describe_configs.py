"""DescribeConfigs (API key 32): the configs of resources. Version 4 is flexible.

Versions of the response: 1 has each config's source in place of a flag for defaults, and synonyms.
3 has types and documentation.

A broker describes the configuration of resource type BROKER for its own node id only, and answers
INVALID_REQUEST for another id. So it can be asked whether a node id is its own: the configuration
that it describes has its node id.

Source: the schemas of the request and the response; Kafka's ConfigHelper.describeConfigs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from receiver.wire.api_keys import DESCRIBE_CONFIGS, check_version
from receiver.wire.config_resources import BROKER, Resource, Result, at_results, read_config
from receiver.wire.either_form import EitherReader, EitherWriter, is_flexible
from receiver.wire.errors import WireError

#: The versions that this module reads and writes.
SUPPORTED_VERSIONS: Final = range(5)

#: The source of a config that nobody has set (Kafka's ``ConfigSource``).
DEFAULT_CONFIG: Final = 5

#: A node id is an int32.
_NODE_ID: Final = re.compile(r"[0-9]{1,10}")

_FIRST_WITH_SOURCES = 1
_FIRST_WITH_DOCUMENTATION = 3

#: Where a broker has its node id: a broker without KRaft under the second name.
_NODE_ID_KEYS: Final = ("node.id", "broker.id")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsRequest:
    """A request for the configs of resources."""

    resources: tuple[tuple[Resource, tuple[str, ...] | None], ...]
    """Each resource with the names of its configs to describe; None or none: all."""
    include_synonyms: bool = False
    """Whether the places are described from which a value could come."""
    include_documentation: bool = False
    """Whether each config is explained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConfig:
    """A config in a response, neither read-only nor secret."""

    name: str
    value: str
    source: int
    """Where the value comes from (Kafka's ``ConfigSource``). It is the source of the one synonym of
    a config that was set."""
    type: int
    """The type of its value (Kafka's ``ConfigType``)."""
    documentation: str
    """What it is for."""


@dataclass(frozen=True, slots=True)
class DescribedResource:
    """The result for a resource."""

    result: Result
    configs: tuple[DescribedConfig, ...] = ()


def decode_request(body: bytes, version: int) -> DescribeConfigsRequest:
    """Read a request body; tagged fields and what follows the body are ignored."""
    check_version(DESCRIBE_CONFIGS, version, SUPPORTED_VERSIONS)
    reader = EitherReader(body, flexible=is_flexible(DESCRIBE_CONFIGS, version))
    resources = []
    for _ in range(reader.count("Resources", item_size=3)):
        resource = Resource(reader.int8("ResourceType"), reader.text("ResourceName"))
        count = reader.nullable_count("ConfigurationKeys", item_size=1)
        keys = None if count is None else tuple(reader.text("ConfigurationKey") for _ in range(count))
        resources.append((resource, keys))
        reader.tags("Resource's tagged fields")
    return DescribeConfigsRequest(
        resources=tuple(resources),
        include_synonyms=version >= _FIRST_WITH_SOURCES and reader.boolean("IncludeSynonyms"),
        include_documentation=(
            version >= _FIRST_WITH_DOCUMENTATION and reader.boolean("IncludeDocumentation")
        ),
    )


def encode_request(value: DescribeConfigsRequest, version: int) -> bytes:
    """Write a request body; fields that the version lacks are left out."""
    check_version(DESCRIBE_CONFIGS, version, SUPPORTED_VERSIONS)
    writer = EitherWriter(flexible=is_flexible(DESCRIBE_CONFIGS, version))
    writer.count(len(value.resources))
    for resource, keys in value.resources:
        writer.int8(resource.type)
        writer.text(resource.name)
        writer.count(None if keys is None else len(keys))
        for key in keys or ():
            writer.text(key)
        writer.tags()
    if version >= _FIRST_WITH_SOURCES:
        writer.boolean(value.include_synonyms)
    if version >= _FIRST_WITH_DOCUMENTATION:
        writer.boolean(value.include_documentation)
    writer.tags()
    return writer.take()


def encode_response(
    results: Sequence[DescribedResource], version: int, request: DescribeConfigsRequest
) -> bytes:
    """Write a response body.

    It has synonyms and documentation if the request asks for them.
    """
    check_version(DESCRIBE_CONFIGS, version, SUPPORTED_VERSIONS)
    writer = EitherWriter(flexible=is_flexible(DESCRIBE_CONFIGS, version))
    writer.int32(0)
    writer.count(len(results))
    for described in results:
        writer.int16(described.result.error_code)
        writer.nullable_text(described.result.error_message)
        writer.int8(described.result.resource.type)
        writer.text(described.result.resource.name)
        writer.count(len(described.configs))
        for config in described.configs:
            _write_config(writer, config, version, request)
        writer.tags()
    writer.tags()
    return writer.take()


def _write_config(
    writer: EitherWriter, config: DescribedConfig, version: int, request: DescribeConfigsRequest
) -> None:
    writer.text(config.name)
    writer.nullable_text(config.value)
    writer.boolean(False)  # noqa: FBT003 - ReadOnly
    if version >= _FIRST_WITH_SOURCES:
        writer.int8(config.source)
    else:
        writer.boolean(config.source == DEFAULT_CONFIG)
    writer.boolean(False)  # noqa: FBT003 - IsSensitive
    if version >= _FIRST_WITH_SOURCES:
        has_synonym = request.include_synonyms and config.source != DEFAULT_CONFIG
        writer.count(int(has_synonym))
        if has_synonym:
            writer.text(config.name)
            writer.nullable_text(config.value)
            writer.int8(config.source)
            writer.tags()
    if version >= _FIRST_WITH_DOCUMENTATION:
        writer.int8(config.type)
        writer.nullable_text(config.documentation if request.include_documentation else None)
    writer.tags()


def encode_broker_request(node_id: int, version: int) -> bytes:
    """Write the body of a request for what a broker says of its own node id."""
    resources = ((Resource(BROKER, str(node_id)), _NODE_ID_KEYS),)
    return encode_request(DescribeConfigsRequest(resources=resources), version)


def decode_node_id(body: bytes, version: int) -> tuple[int, int | None]:
    """Read the response to :func:`encode_broker_request`: error code and node id.

    The node id is None if the broker has none of its own.

    Raises:
        WireError: The body is malformed, or is for more or less than one broker.
    """
    check_version(DESCRIBE_CONFIGS, version, SUPPORTED_VERSIONS)
    reader, count = at_results(body, DESCRIBE_CONFIGS, version)
    if count != 1:
        raise WireError(expected="one result", offset=reader.offset, found=str(count))
    error_code = reader.int16("ErrorCode")
    reader.nullable_text("ErrorMessage")
    reader.int8("ResourceType")
    reader.text("ResourceName")
    configs = dict(read_config(reader, version) for _ in range(reader.count("Configs", item_size=3)))
    stated = {configs.get(key) for key in _NODE_ID_KEYS} - {None}
    value = stated.pop() if len(stated) == 1 else None
    return error_code, int(value) if value is not None and _NODE_ID.fullmatch(value) else None
