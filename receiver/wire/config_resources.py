"""What DescribeConfigs, AlterConfigs and IncrementalAlterConfigs have in common.

Each request has an array of resources, of several types, and each response an array of one result
for each. So a request can be split by the type of its resources into two, and the two responses
merged into one. Resources and results are moved as bytes, so nothing of them is lost.

Source: the schemas of the three messages; KIP-714, "Client metrics configuration", for the resource
type CLIENT_METRICS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from receiver.wire import api_keys
from receiver.wire.either_form import EitherReader, EitherWriter, is_flexible
from receiver.wire.errors import BoundError

#: Resource types (Kafka's ``ConfigResource.Type``).
BROKER: Final = 4
CLIENT_METRICS: Final = 16

#: Most resources and configs of a request that is split, because reading them takes time.
MAX_ITEMS: Final = 2048

#: The longest response whose results are put in order, for the same reason.
MAX_ORDERED_BYTES: Final = 131_072

_INT32 = Struct(">i")

#: The fewest bytes of a resource: its type, and the lengths of its name and of its configs.
_LEAST_RESOURCE: Final = 3
#: The fewest bytes of a result: error code, null message, type, empty name.
_LEAST_RESULT: Final = 5
#: The fewest bytes of a config in a response: name, null value, and three of one byte.
_LEAST_CONFIG: Final = 5


class Resource(NamedTuple):
    """The type and the name of a resource."""

    type: int
    name: str


class Result(NamedTuple):
    """The beginning of a resource's result."""

    resource: Resource
    error_code: int
    error_message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A request with client metrics resources, split in two."""

    asked: tuple[Resource, ...]
    own: bytes
    """The body of a request for its client metrics resources."""
    others: bytes | None
    """The body of a request for the other ones; None: there are none."""


def split(body: bytes, api_key: int, version: int) -> Split | None:
    """Split the body of a request by the type of its resources.

    Returns:
        The two bodies; None if no resource is of the type CLIENT_METRICS, or if there are more than
        :data:`MAX_ITEMS` resources and configs.
    """
    reader = EitherReader(body, flexible=is_flexible(api_key, version))
    asked: list[Resource] = []
    pieces: list[tuple[int, int]] = []
    try:
        items = count = reader.count("Resources", item_size=_LEAST_RESOURCE)
        for _ in range(count):
            if items > MAX_ITEMS:
                return None
            begin = reader.offset
            asked.append(Resource(reader.int8("ResourceType"), reader.text("ResourceName")))
            items += _skip_rest_of_resource(reader, api_key)
            pieces.append((begin, reader.offset))
    except BoundError:
        return None
    if items > MAX_ITEMS or not any(resource.type == CLIENT_METRICS for resource in asked):
        return None
    end = body[reader.offset :]

    def with_resources(*, own: bool) -> bytes:
        chosen = [
            piece
            for resource, piece in zip(asked, pieces, strict=True)
            if (resource.type == CLIENT_METRICS) is own
        ]
        writer = EitherWriter(flexible=reader.flexible)
        writer.count(len(chosen))
        return b"".join((writer.take(), *(body[begin:after] for begin, after in chosen), end))

    are_mixed = any(resource.type != CLIENT_METRICS for resource in asked)
    return Split(
        asked=tuple(asked),
        own=with_resources(own=True),
        others=with_resources(own=False) if are_mixed else None,
    )


def _skip_rest_of_resource(reader: EitherReader, api_key: int) -> int:
    """Skip what follows a resource's name, and return its number of configs."""
    configs: int | None
    if api_key == api_keys.DESCRIBE_CONFIGS:
        configs = reader.nullable_count("ConfigurationKeys", item_size=1) or 0
        for _ in range(min(configs, MAX_ITEMS)):
            reader.skip_text("ConfigurationKey")
    else:
        configs = reader.count("Configs", item_size=2)
        for _ in range(min(configs, MAX_ITEMS)):
            reader.skip_text("Name")
            if api_key == api_keys.INCREMENTAL_ALTER_CONFIGS:
                reader.skip(1, "ConfigOperation")
            reader.skip_text("Value")
            reader.tags("Config's tagged fields")
    if configs <= MAX_ITEMS:
        reader.tags("Resource's tagged fields")
    return configs


def merge(asked: Sequence[Resource], api_key: int, version: int, own: bytes, others: bytes) -> bytes:
    """Merge the bodies of two responses into that of the whole request's response.

    Args:
        asked: The resources of the whole request.
        others: The response to :attr:`Split.others`. Its end is kept.

    Returns:
        The body, with the results in the order of ``asked``. If a response is longer than
        :data:`MAX_ORDERED_BYTES`, those of ``own`` come first.
    """
    if len(others) > MAX_ORDERED_BYTES or len(own) > MAX_ORDERED_BYTES:
        return _merge_unordered(api_key, version, own, others)
    found: dict[Resource, list[bytes]] = {}
    end = 0
    for body in (own, others):
        results, end = _results(body, api_key, version)
        for result, begin, after in results:
            found.setdefault(result.resource, []).append(body[begin:after])
    ordered = [pieces.pop(0) for resource in asked if (pieces := found.get(resource))]
    ordered += [piece for pieces in found.values() for piece in pieces]
    writer = EitherWriter(flexible=is_flexible(api_key, version))
    writer.int32(max(throttle_time_ms(own), throttle_time_ms(others)))
    writer.count(len(ordered))
    return b"".join((writer.take(), *ordered, others[end:]))


def check_response(body: bytes, api_key: int, version: int) -> None:
    """Check as much of a response as :func:`merge` reads of it."""
    throttle_time_ms(body)
    if len(body) > MAX_ORDERED_BYTES:
        at_results(body, api_key, version)
    else:
        _results(body, api_key, version)


def _merge_unordered(api_key: int, version: int, own: bytes, others: bytes) -> bytes:
    flexible = is_flexible(api_key, version)
    first, count = at_results(own, api_key, version)
    second, more = at_results(others, api_key, version)
    end = len(own) - 1 if flexible else len(own)  # our own responses have no tagged fields
    writer = EitherWriter(flexible=flexible)
    writer.int32(max(throttle_time_ms(own), throttle_time_ms(others)))
    writer.count(count + more)
    return b"".join((writer.take(), own[first.offset : end], others[second.offset :]))


def read_results(body: bytes, api_key: int, version: int) -> list[Result]:
    """Read the beginnings of all results of a response."""
    results, _ = _results(body, api_key, version)
    return [result for result, _, _ in results]


def throttle_time_ms(body: bytes) -> int:
    """Return a response's throttle time in ms, its first field (KIP-124)."""
    return EitherReader(body, flexible=False).int32("ThrottleTimeMs")


def with_throttle_time(body: bytes, throttle_time_ms: int) -> bytes:
    """Return a response's body with another throttle time (KIP-124)."""
    return _INT32.pack(throttle_time_ms) + body[_INT32.size :]


def at_results(body: bytes, api_key: int, version: int) -> tuple[EitherReader, int]:
    """Return a reader at the first result of a response, and the number of results."""
    reader = EitherReader(body, flexible=is_flexible(api_key, version))
    reader.int32("ThrottleTimeMs")
    return reader, reader.count("Results", item_size=_LEAST_RESULT)


def _results(body: bytes, api_key: int, version: int) -> tuple[list[tuple[Result, int, int]], int]:
    """Return each result with its begin and its end, and where all of them end."""
    reader, count = at_results(body, api_key, version)
    results = []
    for _ in range(count):
        begin = reader.offset
        error_code = reader.int16("ErrorCode")
        message = reader.nullable_text("ErrorMessage")
        resource = Resource(reader.int8("ResourceType"), reader.text("ResourceName"))
        if api_key == api_keys.DESCRIBE_CONFIGS:
            for _ in range(reader.count("Configs", item_size=_LEAST_CONFIG)):
                read_config(reader, version)
        reader.tags("Result's tagged fields")
        results.append((Result(resource, error_code, message), begin, reader.offset))
    return results, reader.offset


def read_config(reader: EitherReader, version: int) -> tuple[str, str | None]:
    """Read a config of a DescribeConfigs response; return its name and its value."""
    name, value = reader.text("Name"), reader.nullable_text("Value")
    reader.skip(3, "ReadOnly, ConfigSource and IsSensitive")
    if version >= 1:
        for _ in range(reader.count("Synonyms", item_size=3)):
            reader.skip_text("Name")
            reader.skip_text("Value")
            reader.skip(1, "Source")
            reader.tags("Synonym's tagged fields")
    if version >= 3:
        reader.skip(1, "ConfigType")
        reader.skip_text("Documentation")
    reader.tags("Config's tagged fields")
    return name, value
