"""AlterConfigs (API key 33) and IncrementalAlterConfigs (44).

AlterConfigs replaces all configs of a resource (KIP-133), and is flexible from version 2 on.
IncrementalAlterConfigs changes single ones (KIP-339), from version 1 on. Otherwise their bodies are
the same.

Source: the schemas of both messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from receiver.wire.api_keys import ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, check_version
from receiver.wire.config_resources import Resource, Result
from receiver.wire.either_form import EitherReader, EitherWriter, is_flexible

#: By API key: the versions that this module reads and writes.
SUPPORTED_VERSIONS: Final = {ALTER_CONFIGS: range(3), INCREMENTAL_ALTER_CONFIGS: range(2)}


class Operation(IntEnum):
    """What IncrementalAlterConfigs does (Kafka's ``AlterConfigOp.OpType``)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class AlteredConfig:
    """A change of one config."""

    name: str
    value: str | None
    operation: int = Operation.SET
    """An :class:`Operation`, or a number that Kafka does not know. AlterConfigs sets each config
    that it names."""


@dataclass(frozen=True, slots=True)
class AlteredResource:
    """The changes of a resource."""

    resource: Resource
    configs: tuple[AlteredConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsRequest:
    """A request to change the configs of resources."""

    resources: tuple[AlteredResource, ...]
    """The changes. AlterConfigs replaces all configs of each resource."""
    validate_only: bool = False
    """Whether the changes are checked and not made."""


def decode_request(body: bytes, api_key: int, version: int) -> AlterConfigsRequest:
    """Read a request body; tagged fields and what follows the body are ignored."""
    reader = EitherReader(body, flexible=_is_flexible(api_key, version))
    resources = []
    for _ in range(reader.count("Resources", item_size=3)):
        resource = Resource(reader.int8("ResourceType"), reader.text("ResourceName"))
        configs = []
        for _ in range(reader.count("Configs", item_size=2)):
            name = reader.text("Name")
            incremental = api_key == INCREMENTAL_ALTER_CONFIGS
            operation = reader.int8("ConfigOperation") if incremental else Operation.SET
            configs.append(AlteredConfig(name, reader.nullable_text("Value"), operation))
            reader.tags("Config's tagged fields")
        resources.append(AlteredResource(resource, tuple(configs)))
        reader.tags("Resource's tagged fields")
    return AlterConfigsRequest(resources=tuple(resources), validate_only=reader.boolean("ValidateOnly"))


def encode_request(value: AlterConfigsRequest, api_key: int, version: int) -> bytes:
    """Write a request body. AlterConfigs has no operations."""
    writer = EitherWriter(flexible=_is_flexible(api_key, version))
    writer.count(len(value.resources))
    for change in value.resources:
        writer.int8(change.resource.type)
        writer.text(change.resource.name)
        writer.count(len(change.configs))
        for config in change.configs:
            writer.text(config.name)
            if api_key == INCREMENTAL_ALTER_CONFIGS:
                writer.int8(config.operation)
            writer.nullable_text(config.value)
            writer.tags()
        writer.tags()
    writer.boolean(value.validate_only)
    writer.tags()
    return writer.take()


def encode_response(results: Sequence[Result], api_key: int, version: int) -> bytes:
    """Write a response body.

    :func:`receiver.wire.config_resources.read_results` reads it.
    """
    writer = EitherWriter(flexible=_is_flexible(api_key, version))
    writer.int32(0)
    writer.count(len(results))
    for result in results:
        writer.int16(result.error_code)
        writer.nullable_text(result.error_message)
        writer.int8(result.resource.type)
        writer.text(result.resource.name)
        writer.tags()
    writer.tags()
    return writer.take()


def _is_flexible(api_key: int, version: int) -> bool:
    check_version(api_key, version, SUPPORTED_VERSIONS[api_key])
    return is_flexible(api_key, version)
