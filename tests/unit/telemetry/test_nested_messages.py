"""The bound on nested messages (``telemetry.max_entries``), wherever they are nested."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.settings.model import TelemetrySettings
from receiver.telemetry.errors import InvalidMetricsError, TooLargeError
from receiver.telemetry.labels import length_delimited
from receiver.telemetry.otlp import label_metrics
from receiver.wire.error_codes import ErrorCode
from tests.unit.telemetry.otlp_parts import LABELS, gauge, push, resource_metrics
from tests.unit.telemetry.parts import ALL_PAYLOADS, payload, ready

MANY = 4000

#: Places of tiny messages: the path of fields, and one tiny message with its tag.
SHAPES = {
    "ResourceMetrics": ((), b"\x0a\x00"),
    "ResourceMetrics with a metric": ((), b"\x0a\x04\x12\x02\x12\x00"),
    "pieces of a Resource": ((1,), b"\x0a\x00"),
    "attributes of a Resource": ((1, 1), b"\x0a\x00"),
    "entities of a Resource": ((1, 1), b"\x1a\x00"),
    "ScopeMetrics": ((1,), b"\x12\x00"),
    "pieces of a scope": ((1, 2), b"\x0a\x00"),
    "attributes of a scope": ((1, 2, 1), b"\x1a\x00"),
    "metrics": ((1, 2), b"\x12\x00"),
    "metrics with a point": ((1, 2), b"\x12\x04\x2a\x02\x0a\x00"),
    "metadata of a metric": ((1, 2, 2), b"\x62\x00"),
    "pieces of a gauge": ((1, 2, 2), b"\x2a\x00"),
    "a gauge or a sum": ((1, 2, 2), b"\x2a\x00\x3a\x00"),
    "points of a gauge": ((1, 2, 2, 5), b"\x0a\x00"),
    "points of a sum": ((1, 2, 2, 7), b"\x0a\x00"),
    "points of a histogram": ((1, 2, 2, 9), b"\x0a\x00"),
    "points of an exponential histogram": ((1, 2, 2, 10), b"\x0a\x00"),
    "points of a summary": ((1, 2, 2, 11), b"\x0a\x00"),
    "attributes of a point": ((1, 2, 2, 5, 1), b"\x3a\x00"),
    "attributes with keys": ((1, 2, 2, 5, 1), b"\x3a\x03\x0a\x01a"),
    "exemplars": ((1, 2, 2, 5, 1), b"\x2a\x00"),
    "attributes of an exemplar": ((1, 2, 2, 5, 1, 5), b"\x3a\x00"),
    "pieces of buckets": ((1, 2, 2, 10, 1), b"\x42\x00"),
    "quantiles": ((1, 2, 2, 11, 1), b"\x32\x00"),
    "pieces of a value": ((1, 2, 2, 5, 1, 7), b"\x12\x00"),
    "an array or a list": ((1, 2, 2, 5, 1, 7, 2), b"\x2a\x00\x32\x00"),
    "an array's values": ((1, 2, 2, 5, 1, 7, 2, 5), b"\x0a\x00"),
    "a list's values": ((1, 2, 2, 5, 1, 7, 2, 6), b"\x0a\x00"),
    "lengths in more bytes than needed": ((1, 2), b"\x12\x80\x00"),
    "tags in more bytes than needed": ((1, 2), b"\x92\x00\x00"),
}


def nested(fields: tuple[int, ...], content: bytes) -> bytes:
    for number in reversed(fields):
        content = length_delimited(bytes([number << 3 | 2]), content)
    return content


def test_shapes_are_valid_messages() -> None:
    for fields, tiny in SHAPES.values():
        at: Any = MetricsData.DESCRIPTOR
        for number in (*fields, (tiny[0] & 0x7F) >> 3):
            at = at.fields_by_number[number].message_type
            assert at is not None


@pytest.mark.parametrize("shape", SHAPES)
def test_too_many_nested_messages_are_refused(shape: str) -> None:
    fields, tiny = SHAPES[shape]
    data = nested(fields, tiny * MANY) + push(resource_metrics(gauge("a", 1.0)))
    with pytest.raises(TooLargeError, match=r"more than 1000 nested messages \(telemetry.max_entries\)"):
        label_metrics(data, LABELS, max_entries=1000)
    # The maximum number is still accepted.
    assert label_metrics(data, LABELS, max_entries=4 * MANY).data


@pytest.mark.parametrize("depth", [10, 40])
def test_values_nested_in_values_are_counted(depth: int) -> None:
    value = b""
    for _ in range(depth):
        value = nested((5, 1), value)
    data = nested((1, 2, 2, 5, 1), nested((7, 2), value) * (2 * MANY // depth))
    with pytest.raises(TooLargeError, match="more than 1000 nested messages"):
        label_metrics(data, LABELS, max_entries=1000)


def test_values_nested_too_deep_are_no_metrics() -> None:
    value = b""
    for _ in range(1000):
        value = nested((5, 1), value)
    for max_entries in (1000, 100_000):
        with pytest.raises(InvalidMetricsError, match="no OTLP MetricsData"):
            label_metrics(nested((1, 2, 2, 5, 1, 7, 2), value), LABELS, max_entries=max_entries)


def entries(message: Any) -> int:
    count = 0
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in value if field.is_repeated else [value]:
                count += 1 + entries(item)
    return count


@pytest.mark.parametrize("name", [name for name in ALL_PAYLOADS if len(payload(name)) > 5000])
def test_the_estimate_for_java_clients_is_within_a_tenth(name: str) -> None:
    data = payload(name)
    exact = entries(MetricsData.FromString(data))
    assert label_metrics(data, LABELS, max_entries=exact * 11 // 10).data
    with pytest.raises(TooLargeError, match="nested messages"):
        label_metrics(data, LABELS, max_entries=exact * 9 // 10)


def data_points(data: bytes) -> int:
    pushed: Any = MetricsData.FromString(data)
    return sum(
        len(getattr(metric, metric.WhichOneof("data")).data_points)
        for resource_metrics in pushed.resource_metrics
        for scope_metrics in resource_metrics.scope_metrics
        for metric in scope_metrics.metrics
    )


@pytest.mark.parametrize(
    ("name", "points"), [("java44-consumer-star-01", 8_900), ("java44-producer-star-01", 15_000)]
)
def test_the_documented_number_of_java_data_points_is_accepted(name: str, points: int) -> None:
    one = payload(name)
    points_in_one = data_points(one)
    data = one * (points // points_in_one)
    assert label_metrics(data, LABELS, max_entries=TelemetrySettings().max_entries).data
    assert label_metrics(2 * data, LABELS, max_entries=2 * TelemetrySettings().max_entries).data
    with pytest.raises(TooLargeError, match=r"nested messages \(telemetry.max_entries\)"):
        label_metrics(2 * data, LABELS, max_entries=TelemetrySettings().max_entries)


def test_a_client_with_too_many_messages_gets_an_error_and_continues() -> None:
    client = ready(max_entries=1000)
    outcome = client.push(1, nested((1, 2), b"\x12\x00" * MANY))
    assert outcome.response.error_code == ErrorCode.TELEMETRY_TOO_LARGE
    assert outcome.problem == "has more than 1000 nested messages (telemetry.max_entries)"
    assert client.push(11, payload("ck-producer-star-01")).response.error_code == ErrorCode.NONE
