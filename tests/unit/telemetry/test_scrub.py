"""Scrubbing: NaN and infinite values, and labels that the receiver owns."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
)

from receiver.telemetry import scrub
from receiver.telemetry.errors import TooLargeError
from receiver.telemetry.labels import OWNED_LABELS, length_delimited
from receiver.telemetry.otlp import LabelledMetrics, label_metrics
from tests.unit.telemetry.otlp_parts import (
    EXPECTED,
    LABELS,
    MAX_ENTRIES,
    attribute,
    gauge,
    label,
    push,
    resource_metrics,
)
from tests.unit.telemetry.parts import all_metrics, labels_of


@pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_dropped_and_counted(bad: float) -> None:
    total = Metric(name="sum")
    total.sum.data_points.add(as_double=bad)
    total.sum.data_points.add(as_double=2.0)
    total.sum.is_monotonic = True
    labelled, received = label(
        push(
            resource_metrics(gauge("only", bad)),
            resource_metrics(gauge("some", bad, 1.0, bad, 7), total),
            resource_metrics(gauge("none", 3.0)),
        )
    )
    assert labelled.dropped_points == 4
    kept = {metric.name: metric for metric in all_metrics(received)}
    assert list(kept) == ["some", "sum", "none"]
    assert [point.as_double or point.as_int for point in kept["some"].gauge.data_points] == [1.0, 7]
    assert [point.as_double for point in kept["sum"].sum.data_points] == [2.0]
    assert kept["sum"].sum.is_monotonic


def test_a_push_of_only_nan_becomes_empty() -> None:
    labelled = label_metrics(
        push(resource_metrics(gauge("a", math.nan)), resource_metrics(gauge("b", math.inf))),
        LABELS,
        max_entries=MAX_ENTRIES,
    )
    assert labelled == LabelledMetrics(data=b"", dropped_points=2, removed_labels=0)
    scoped = push(resource_metrics(gauge("a", math.nan), scope="s"))
    assert label_metrics(scoped, LABELS, max_entries=MAX_ENTRIES) == LabelledMetrics(
        data=b"", dropped_points=1, removed_labels=0
    )


@pytest.mark.parametrize(
    "value", [0.0, -0.0, 5e-324, 1.7976931348623157e308, -1.7976931348623157e308, 33554432.0]
)
def test_finite_values_stay(value: float) -> None:
    labelled, received = label(push(resource_metrics(gauge("a", value))))
    assert labelled.dropped_points == 0
    (metric,) = all_metrics(received)
    assert math.copysign(1, metric.gauge.data_points[0].as_double) == math.copysign(1, value)
    assert metric.gauge.data_points[0].as_double == value


def test_a_metric_that_was_empty_before_stays() -> None:
    _, received = label(push(resource_metrics(Metric(name="a"), gauge("b"), gauge("c", math.nan, 1.0))))
    assert [metric.name for metric in all_metrics(received)] == ["a", "b", "c"]


def test_histograms_are_unchanged() -> None:
    metric = Metric(name="h")
    metric.histogram.data_points.add(sum=math.nan, count=3, explicit_bounds=[1.0], bucket_counts=[1, 2])
    labelled, received = label(push(resource_metrics(metric, gauge("a", math.nan))))
    assert labelled.dropped_points == 1
    (kept,) = all_metrics(received)
    assert kept.histogram.data_points[0].count == 3


# NaN as as_double, with its tag in every number of bytes that a parser accepts.
@pytest.mark.parametrize(
    "tag", [b"\x21", b"\xa1\x00", b"\xa1\x80\x00", b"\xa1\x80\x80\x00", b"\xa1\x80\x80\x80\x00"]
)
@pytest.mark.parametrize("scope", [b"", b"\x0a\x03\x0a\x01s"])
def test_every_encoding_of_the_tag_is_found(tag: bytes, scope: bytes) -> None:
    point = tag + b"\x00\x00\x00\x00\x00\x00\xf8\x7f"
    assert math.isnan(NumberDataPoint.FromString(point).as_double)
    metric = length_delimited(b"\x2a", length_delimited(b"\x0a", point)) + b"\x0a\x01m"
    data = length_delimited(b"\x0a", length_delimited(b"\x12", scope + length_delimited(b"\x12", metric)))
    assert label_metrics(data, LABELS, max_entries=MAX_ENTRIES) == LabelledMetrics(
        data=b"", dropped_points=1, removed_labels=0
    )


def test_overlapping_hits_are_found() -> None:
    # The time's last byte looks like a value's tag, and the real tag is inside that tag's eight
    # bytes.
    point = NumberDataPoint(as_double=math.nan, time_unix_nano=0x21 << 56)
    hidden = point.SerializeToString()
    assert hidden.index(b"\x21") < hidden.rindex(b"\x21") < hidden.index(b"\x21") + 9
    data = push(resource_metrics(Metric(name="a", gauge=Gauge(data_points=[point]))))
    assert label_metrics(data, LABELS, max_entries=MAX_ENTRIES).dropped_points == 1


OWNED = pytest.mark.parametrize("key", OWNED_LABELS)


@OWNED
@pytest.mark.parametrize("scope", [None, "s"])
def test_a_client_value_of_an_owned_label_is_removed(key: str, scope: str | None) -> None:
    parts = [
        resource_metrics(
            gauge("a", 1.0, attributes=("topic", key)),
            gauge("b", 2),
            scope=scope,
            group_id="g",
            **{key: "forged"},
        )
    ] * 3
    labelled, received = label(push(*parts))
    assert labelled.removed_labels == 6
    assert b"forged" not in labelled.data.replace(b"topic\x12\x08\x0a\x06forged", b"")
    assert labels_of(received) == [{"group_id": "g"} | EXPECTED]
    assert [[a.key for p in m.gauge.data_points for a in p.attributes] for m in all_metrics(received)] == [
        ["topic"],
        [],
    ] * 3


def in_scope(key: str) -> ResourceMetrics:
    made = resource_metrics(gauge("a", 1.0), scope="s")
    made.scope_metrics[0].scope.attributes.append(attribute(key))
    return made


def in_exemplar(key: str) -> ResourceMetrics:
    metric = gauge("a", 1.0)
    metric.gauge.data_points[0].exemplars.add(filtered_attributes=[attribute(key)], as_int=1)
    return resource_metrics(metric)


def in_kind(kind: str) -> Callable[[str], ResourceMetrics]:
    def make(key: str) -> ResourceMetrics:
        metric = Metric(name="a")
        getattr(metric, kind).data_points.add(attributes=[attribute(key)])
        return resource_metrics(metric)

    return make


PLACES: dict[str, Callable[[str], ResourceMetrics]] = {
    "resource": lambda key: resource_metrics(gauge("a", 1.0), **{key: "forged"}),
    "scope": in_scope,
    "exemplar": in_exemplar,
} | {kind: in_kind(kind) for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary")}


@OWNED
@pytest.mark.parametrize("place", PLACES)
def test_owned_labels_are_removed_everywhere(key: str, place: str) -> None:
    labelled, received = label(push(PLACES[place](key)))
    assert labelled.removed_labels == 1
    assert b"forged" not in labelled.data
    assert labels_of(received) == [EXPECTED]


def of_requests(*brokers: str, name: str = "org.apache.kafka.client.request.errors") -> Metric:
    metric = Metric(name=name)
    for broker in brokers:
        point = metric.sum.data_points.add(as_double=1.0, attributes=[attribute("reason", "timeout")])
        point.attributes.append(attribute("broker_id", broker))
    return metric


def point_attributes(received: MetricsData) -> list[dict[str, str]]:
    return [
        {item.key: item.value.string_value for item in point.attributes}
        for metric in all_metrics(received)
        for point in metric.sum.data_points
    ]


@pytest.mark.parametrize("scope", [None, "s"])
@pytest.mark.parametrize("prefix", ["", "org.apache.kafka."])
def test_the_broker_of_requests_becomes_the_node_id(scope: str | None, prefix: str) -> None:
    """The draft's attribute of the points is not the receiver's label of the Resource."""
    name = f"{prefix}client.request.errors"
    sent = resource_metrics(of_requests("1", "2", "bootstrap", name=name), scope=scope, broker_id="forged")
    labelled, received = label(push(sent))
    assert labelled.removed_labels == 1
    assert labels_of(received) == [EXPECTED]
    assert point_attributes(received) == [
        {"reason": "timeout", "node_id": "1"},
        {"reason": "timeout", "node_id": "2"},
        {"reason": "timeout", "node_id": "bootstrap"},
    ]


@pytest.mark.parametrize("key", ["node_id", "node.id", "broker_id"])
def test_a_point_gets_one_node_id(key: str) -> None:
    metric = of_requests("7")
    metric.sum.data_points[0].attributes.insert(0, attribute(key, "1"))
    labelled, received = label(push(resource_metrics(metric)))
    assert labelled.removed_labels == 1
    kept = key.replace("broker_id", "node_id")
    assert point_attributes(received) == [{kept: "1", "reason": "timeout"}]


@pytest.mark.parametrize("name", ["org.apache.kafka.client.requests", "client.connection.errors", "x"])
def test_other_points_lose_a_broker_id(name: str) -> None:
    labelled, received = label(push(resource_metrics(of_requests("1", name=name))))
    assert labelled.removed_labels == 1
    assert point_attributes(received) == [{"reason": "timeout"}]


def test_an_exemplar_of_a_request_loses_a_broker_id() -> None:
    metric = of_requests("1")
    exemplar = metric.sum.data_points[0].exemplars.add(as_int=1)
    exemplar.filtered_attributes.append(attribute("broker_id"))
    labelled, received = label(push(resource_metrics(metric)))
    assert labelled.removed_labels == 1
    assert b"forged" not in labelled.data
    assert point_attributes(received) == [{"reason": "timeout", "node_id": "1"}]


@pytest.mark.parametrize(
    "key", ["client_rack", "client_idx", "Client_id", "the_listener", "principals", "node_id"]
)
def test_other_attributes_stay(key: str) -> None:
    labelled, received = label(push(resource_metrics(gauge("a", 1.0, attributes=(key,)), **{key: "mine"})))
    assert labelled.removed_labels == 0
    assert labels_of(received) == [{key: "mine"} | EXPECTED]


@pytest.mark.parametrize("scope", [None, "s"])
def test_too_many_suspicious_messages_are_refused(monkeypatch: pytest.MonkeyPatch, scope: str | None) -> None:
    monkeypatch.setattr(scrub, "MAX_SCRUBBED", 10 if scope is None else 12)

    def many(points: int) -> bytes:
        return push(resource_metrics(gauge("a", *[math.nan] * points), scope=scope))

    assert label(many(9))[0].dropped_points == 9
    with pytest.raises(TooLargeError, match="messages to parse one by one"):
        label_metrics(many(10), LABELS, max_entries=MAX_ENTRIES)


@pytest.mark.parametrize("where", ["resource", "point"])
def test_too_many_suspicious_attributes_are_refused(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setattr(scrub, "MAX_ATTRIBUTES", 100)

    def many(attributes: int) -> bytes:
        pushed = resource_metrics(gauge("a", 1.0))
        point = pushed.scope_metrics[0].metrics[0].gauge.data_points[0]
        holder = pushed.resource if where == "resource" else point
        holder.attributes.extend(attribute("client_id", "forged") for _ in range(attributes))
        return push(pushed)

    assert label(many(100))[0].removed_labels == 100
    with pytest.raises(TooLargeError, match=r"attributes to parse|suspicious places"):
        label_metrics(many(101), LABELS, max_entries=MAX_ENTRIES)


def test_too_many_suspicious_exemplars_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "MAX_SCRUBBED", 100)
    pushed = resource_metrics(gauge("a", 1.0, attributes=("client_id",)))
    for _ in range(100):
        pushed.scope_metrics[0].metrics[0].gauge.data_points[0].exemplars.add()
    with pytest.raises(TooLargeError, match="messages to parse one by one"):
        label_metrics(push(pushed), LABELS, max_entries=MAX_ENTRIES)


def test_dropping_many_metrics_takes_little_time() -> None:
    parts = [
        resource_metrics(gauge(f"m{number}", math.nan if number % 2 else 1.0)) for number in range(10_000)
    ]
    labelled, received = label(push(*parts))
    assert labelled.dropped_points == 5_000
    assert [metric.name for metric in all_metrics(received)] == [
        f"m{number}" for number in range(0, 10_000, 2)
    ]
