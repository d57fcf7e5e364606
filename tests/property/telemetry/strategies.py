"""Hypothesis strategies: pushes, and unusual encodings of them that protobuf accepts."""

from __future__ import annotations

import struct
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from receiver.telemetry.labels import OWNED_LABELS

names = st.sampled_from(["a", "org.apache.kafka.x", "listener", "!", ""])
keys = st.sampled_from(["topic", "node_id", "client_rack", "group_id", "!", *OWNED_LABELS])
values = st.one_of(
    st.text(max_size=3).map(lambda text: AnyValue(string_value=text)),
    st.integers(-5, 5).map(lambda number: AnyValue(int_value=number)),
    st.floats().map(lambda number: AnyValue(double_value=number)),
)
attributes = st.lists(st.builds(KeyValue, key=keys, value=values), max_size=3)
times = st.one_of(
    st.integers(0, 2**64 - 1), st.sampled_from([0x21 << 56, 0xF8_21 << 48, 0x7F_FF_21_21 << 32])
)
points = st.one_of(
    st.builds(NumberDataPoint, as_double=st.floats(), time_unix_nano=times, attributes=attributes),
    st.builds(NumberDataPoint, as_int=st.integers(-(2**63), 2**63 - 1), attributes=attributes),
    st.builds(NumberDataPoint, start_time_unix_nano=times),
)
metrics = st.one_of(
    st.builds(Metric, name=names, gauge=st.builds(Gauge, data_points=st.lists(points, max_size=3))),
    st.builds(
        Metric,
        name=names,
        sum=st.builds(Sum, data_points=st.lists(points, max_size=3), is_monotonic=st.booleans()),
    ),
    st.builds(
        Metric,
        name=names,
        histogram=st.builds(
            Histogram,
            data_points=st.lists(
                st.builds(HistogramDataPoint, sum=st.floats(), attributes=attributes), max_size=2
            ),
        ),
    ),
    st.builds(Metric, name=names, unit=names),
)
scopes = st.one_of(
    st.none(),
    st.just(InstrumentationScope()),
    st.builds(InstrumentationScope, name=names, attributes=attributes),
)
schema_urls = st.sampled_from(["", "", "", "u"])
scope_metrics = st.builds(
    ScopeMetrics, scope=scopes, metrics=st.lists(metrics, max_size=3), schema_url=schema_urls
)
resources = st.one_of(
    st.none(),
    st.just(Resource()),
    st.builds(Resource, attributes=attributes, dropped_attributes_count=st.integers(0, 1)),
)
resource_metrics = st.builds(
    ResourceMetrics,
    resource=resources,
    scope_metrics=st.lists(scope_metrics, max_size=3),
    schema_url=schema_urls,
)


@st.composite
def like_java(draw: st.DrawFn) -> MetricsData:
    """A push with one ResourceMetrics for each metric, all with the same Resource."""
    resource = draw(resources)
    return MetricsData(
        resource_metrics=[
            ResourceMetrics(resource=resource, scope_metrics=[ScopeMetrics(metrics=[metric])])
            for metric in draw(st.lists(metrics, min_size=1, max_size=8))
        ]
    )


pushes = st.one_of(
    like_java(), st.builds(MetricsData, resource_metrics=st.lists(resource_metrics, max_size=4))
)


def _varint(number: int, extra: int = 0) -> bytes:
    """Encode a varint with ``extra`` unnecessary bytes."""
    out = bytearray()
    number &= 2**64 - 1
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    if not extra:
        return bytes([*out, number])
    return bytes([*out, number | 0x80, *[0x80] * (extra - 1), 0])


class OddWriter:
    """Encodes a message unusually: long varints, submessages in pieces, fields out of order.

    Args:
        draw: Hypothesis' source of choices.
        unknown: Whether to add unknown fields.
    """

    def __init__(self, draw: st.DrawFn, *, unknown: bool) -> None:
        self._draw = draw
        self._unknown = unknown

    def write(self, message: Any) -> bytes:
        return b"".join(self._fields(message))

    def _fields(self, message: Any) -> list[bytes]:
        runs = []
        for field, value in message.ListFields():
            items = list(value) if field.is_repeated else [value]
            run = []
            for item in items:
                run.extend(self._field(field, item))
            runs.append(run)
        written = []
        # Only the order within a field matters.
        while runs := [run for run in runs if run]:
            run = runs[0] if len(runs) == 1 else self._draw(st.sampled_from(runs))
            written.append(run.pop(0))
        if self._unknown and self._draw(st.integers(0, 9)) == 0:
            written.insert(self._draw(st.integers(0, len(written))), b"\xfa\x3e\x01u")
        return written

    def _field(self, field: FieldDescriptor, value: Any) -> list[bytes]:
        kind = field.type
        if kind == FieldDescriptor.TYPE_MESSAGE:
            parts = self._fields(value)
            cut = len(parts)
            if not field.is_repeated:
                cut = self._draw(st.integers(0, len(parts)))
            pieces = [b"".join(parts[:cut]), b"".join(parts[cut:])] if cut < len(parts) else [b"".join(parts)]
            return [self._delimited(field, piece) for piece in pieces]
        if kind == FieldDescriptor.TYPE_STRING:
            return [self._delimited(field, value.encode())]
        if kind == FieldDescriptor.TYPE_BYTES:
            return [self._delimited(field, value)]
        return [self._number(field, value)]

    def _number(self, field: FieldDescriptor, value: Any) -> bytes:
        if field.type == FieldDescriptor.TYPE_DOUBLE:
            return self._tag(field, 1) + struct.pack("<d", value)
        if field.type == FieldDescriptor.TYPE_FIXED64:
            return self._tag(field, 1) + struct.pack("<Q", value)
        if field.type == FieldDescriptor.TYPE_SFIXED64:
            return self._tag(field, 1) + struct.pack("<q", value)
        return self._tag(field, 0) + _varint(int(value))

    def _delimited(self, field: FieldDescriptor, content: bytes) -> bytes:
        return self._tag(field, 2) + _varint(len(content), self._extra(3)) + content

    def _tag(self, field: FieldDescriptor, wire_type: int) -> bytes:
        return _varint(field.number << 3 | wire_type, self._extra(4))

    def _extra(self, most: int) -> int:
        return self._draw(st.integers(1, most)) if self._draw(st.integers(0, 9)) == 0 else 0


@st.composite
def odd_encodings(draw: st.DrawFn) -> tuple[MetricsData, bytes]:
    """A push, and bytes that parse as it, except for unknown fields."""
    push = draw(pushes)
    written = OddWriter(draw, unknown=draw(st.booleans())).write(push)
    return push, written
