"""OffsetDelete against kio, whose version 0 is made flexible here for KIP-1313's version 1."""

from __future__ import annotations

import contextlib
import io
import types
from dataclasses import field, fields, make_dataclass
from datetime import timedelta
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.offset_delete.v0 import request, response
from kio.serial import entity_writer

from receiver.session.exchanges.offset_delete import request_to_v0, response_to_v1
from receiver.wire.errors import WireError
from receiver.wire.primitives import Reader
from tests.property.wire.strategies import int32s, texts


def _flexible(kind: Any, **arrays: Any) -> Any:
    """Return a kio type in a flexible version, with other item types for its arrays."""
    named = {"__flexible__": True, "__type__": kind.__type__, "__version__": 1}
    columns = []
    for column in fields(kind):
        item = arrays.get(column.name)
        type_ = column.type if item is None else types.GenericAlias(tuple, (item, ...))
        columns.append((column.name, type_, field(metadata=column.metadata)))
    return make_dataclass(kind.__name__, columns, namespace=named, frozen=True, slots=True, kw_only=True)


_TOPIC_V1 = _flexible(
    request.OffsetDeleteRequestTopic, partitions=_flexible(request.OffsetDeleteRequestPartition)
)
_ANSWERED_TOPIC_V1 = _flexible(
    response.OffsetDeleteResponseTopic, partitions=_flexible(response.OffsetDeleteResponsePartition)
)
REQUESTS = (request.OffsetDeleteRequest, _flexible(request.OffsetDeleteRequest, topics=_TOPIC_V1))
RESPONSES = (
    response.OffsetDeleteResponse,
    _flexible(response.OffsetDeleteResponse, topics=_ANSWERED_TOPIC_V1),
)

error_codes = st.sampled_from(ErrorCode)


def _items(kind: Any, name: str) -> Any:
    (items,) = (column.type for column in fields(kind) if column.name == name)
    return get_args(items)[0]


def _written(kind: Any, topics: list[tuple[str, list[dict[str, Any]]]], **values: Any) -> bytes:
    topic = _items(kind, "topics")
    partition = _items(topic, "partitions")
    value = kind(
        topics=tuple(topic(name=name, partitions=tuple(partition(**p) for p in ps)) for name, ps in topics),
        **values,
    )
    buffer = io.BytesIO()
    entity_writer(kind)(buffer, value)
    return buffer.getvalue()


def _topics(**partition: st.SearchStrategy[Any]) -> Any:
    return st.lists(st.tuples(texts, st.lists(st.fixed_dictionaries(partition), max_size=5)), max_size=5)


@given(texts, _topics(partition_index=int32s))
def test_a_request_translated_to_version_0_has_the_same_fields(group: str, topics: Any) -> None:
    v0, v1 = (_written(kind, topics, group_id=group) for kind in REQUESTS)
    reader = Reader(v1)
    assert request_to_v0(reader) == v0
    reader.expect_end()


@given(error_codes, int32s, _topics(partition_index=int32s, error_code=error_codes))
def test_a_response_translated_to_version_1_has_the_same_fields(
    error: ErrorCode, throttle: int, topics: Any
) -> None:
    throttled = timedelta(milliseconds=throttle)
    v0, v1 = (_written(kind, topics, error_code=error, throttle_time=throttled) for kind in RESPONSES)
    reader = Reader(v0)
    assert response_to_v1(reader) == v1
    reader.expect_end()


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_wire_error(data: bytes) -> None:
    for translate in (request_to_v0, response_to_v1):
        with contextlib.suppress(WireError):
            translate(Reader(data))
