"""Replaces leaders' addresses at the end of long responses (KIP-951).

Produce and Fetch have them as a tagged field of the body, ShareFetch and ShareAcknowledge as the
last field before the tagged fields. The fields before them may be long, and are walked over without
being kept (:mod:`receiver.wire.field_walk`).

The end of a response can be written in as many bytes as it had, because the response's length may
have been sent already. Unused bytes become a tagged field that no client knows, and clients skip
it (KIP-482). If the new addresses need more bytes, they are left out. A client that gets no address
asks with Metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from receiver.wire import (
    api_keys,
    k00_produce,
    k01_fetch,
    k78_share_fetch,
    k79_share_acknowledge,
)
from receiver.wire.broker_addresses import ReplaceAddress, copy_brokers
from receiver.wire.field_walk import Fields
from receiver.wire.primitives import Reader
from receiver.wire.writer import TaggedFields, Writer

#: By API key: the versions whose responses end with addresses.
VERSIONS: Final[Mapping[int, range]] = MappingProxyType(
    {
        api_keys.PRODUCE: k00_produce.SUPPORTED_VERSIONS,
        api_keys.FETCH: k01_fetch.SUPPORTED_VERSIONS,
        api_keys.SHARE_FETCH: k78_share_fetch.SUPPORTED_VERSIONS,
        api_keys.SHARE_ACKNOWLEDGE: k79_share_acknowledge.SUPPORTED_VERSIONS,
    }
)

_FIELDS_BEFORE: Final[Mapping[int, Callable[[int], Fields]]] = MappingProxyType(
    {
        api_keys.PRODUCE: k00_produce.fields_before_endpoints,
        api_keys.FETCH: k01_fetch.fields_before_endpoints,
        api_keys.SHARE_FETCH: k78_share_fetch.fields_before_endpoints,
        api_keys.SHARE_ACKNOWLEDGE: k79_share_acknowledge.fields_before_endpoints,
    }
)

#: The tag of NodeEndpoints in Produce and Fetch.
_NODE_ENDPOINTS: Final = 0

_TAGGED: Final = frozenset({api_keys.PRODUCE, api_keys.FETCH})

#: An empty compact array.
_NO_ENDPOINTS: Final = b"\x01"

#: By API key: the end of a response that names no leader and has no tagged fields.
PLAIN_ENDS: Final[Mapping[int, bytes]] = MappingProxyType(
    {key: b"\0" if key in _TAGGED else _NO_ENDPOINTS + b"\0" for key in VERSIONS}
)

_MAX_VARINT_BYTES: Final = 5

#: Tags for unused bytes, in one, two and three bytes. Kafka counts its tags from 0.
_PADDING_TAGS: Final = (127, 16_383, 2_097_151)


def fields_before(api_key: int, version: int) -> Fields:
    """Return the fields of a response's body before the end that may name brokers.

    Raises:
        ValueError: The version's responses name none; see :data:`VERSIONS`.
    """
    return _FIELDS_BEFORE[api_key](version)


def replace_addresses(end: bytes, api_key: int, replace: ReplaceAddress, *, same_size: bool) -> bytes:
    """Replace the addresses in the end of a response.

    Args:
        end: The bytes of the body behind :func:`fields_before`, to the end of the response.
        replace: Gives the host and port of each broker. It is also called for brokers that are left
            out then.
        same_size: Whether the result must have as many bytes as ``end``.
    """
    reader = Reader(end)
    if api_key in _TAGGED:
        tags = reader.tagged_fields("tagged fields")
        if all(tag != _NODE_ENDPOINTS for tag, _ in tags):
            return end
        before = before_if_none = b""
        others = tuple(field for field in tags if field[0] != _NODE_ENDPOINTS)
        tags = tuple(
            (tag, _endpoints(Reader(value), replace) if tag == _NODE_ENDPOINTS else value)
            for tag, value in tags
        )
    else:
        before = _endpoints(reader, replace)
        before_if_none = _NO_ENDPOINTS
        if before == before_if_none:
            return end
        tags = others = reader.tagged_fields("tagged fields")
    reader.expect_end("response")
    if not same_size:
        return before + _encoded(tags)
    for start, fields in ((before, tags), (before_if_none, others), (before_if_none, ())):
        padded = _padded(fields, len(end) - len(start))
        if padded is not None:
            return start + padded
    raise AssertionError("an end without addresses is shorter, and unused bytes fit into one field")


def _endpoints(reader: Reader, replace: ReplaceAddress) -> bytes:
    writer = Writer()
    copy_brokers(reader, writer, replace, flexible=True, rest=_after_port)
    return writer.take()


def _after_port(reader: Reader) -> None:
    reader.compact_nullable_string("Rack")
    reader.tagged_fields("NodeEndpoint's tagged fields")


def _encoded(tags: TaggedFields) -> bytes:
    writer = Writer()
    writer.tagged_fields(tags)
    return writer.take()


def _padded(tags: TaggedFields, size: int) -> bytes | None:
    """Write tagged fields in ``size`` bytes; None if that is impossible."""
    encoded = _encoded(tags)
    if len(encoded) == size:
        return encoded
    for padding_tag in _PADDING_TAGS:
        if any(tag == padding_tag for tag, _ in tags):
            continue
        unused = size - len(_encoded((*tags, (padding_tag, b""))))
        # A longer padding has a longer length of itself.
        for length in range(max(unused - _MAX_VARINT_BYTES, 0), unused + 1):
            padded = _encoded(tuple(sorted((*tags, (padding_tag, bytes(length))))))
            if len(padded) == size:
                return padded
    return None
