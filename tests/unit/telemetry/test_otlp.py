"""Validation, merging and labelling of OTLP pushes."""

from __future__ import annotations

import contextlib
import math
import time

import pytest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from receiver.telemetry import otlp
from receiver.telemetry.errors import InvalidMetricsError, TooLargeError
from receiver.telemetry.identity import Broker
from receiver.telemetry.labels import OWNED_LABELS, identity_labels, label_bytes, length_delimited
from receiver.telemetry.otlp import LabelledMetrics, label_metrics
from tests.unit.telemetry.otlp_parts import (
    EXPECTED,
    LABELS,
    MAX_ENTRIES,
    NAN,
    attribute,
    gauge,
    in_all,
    label,
    push,
    resource_metrics,
)
from tests.unit.telemetry.parts import ALL_PAYLOADS, all_metrics, client, labels_of, payload


@pytest.mark.parametrize("name", ALL_PAYLOADS)
def test_captured_pushes_of_real_clients(name: str) -> None:
    sent = MetricsData.FromString(payload(name))
    labelled, received = label(payload(name))
    wanted = [
        metric
        for metric in all_metrics(sent)
        if not any(
            not math.isfinite(point.as_double) for point in getattr(metric, kind_of(metric)).data_points
        )
    ]
    assert list(all_metrics(received)) == wanted
    assert labelled.dropped_points == len(list(all_metrics(sent))) - len(wanted)
    assert labelled.removed_labels == 0
    assert len(received.resource_metrics) == 1
    own = {
        attribute.key: attribute.value.string_value
        for attribute in sent.resource_metrics[0].resource.attributes
    }
    assert labels_of(received) == [own | EXPECTED]
    assert [s.scope for s in received.resource_metrics[0].scope_metrics] == [
        s.scope for s in sent.resource_metrics[0].scope_metrics
    ]


def kind_of(metric: Metric) -> str:
    kind = metric.WhichOneof("data")
    assert kind is not None
    return str(kind)


def test_java_sends_nan() -> None:
    assert label(payload("java44-producer-star-01"))[0].dropped_points == 4
    assert label(payload("java44-consumer-star-01"))[0].dropped_points == 15


def test_merging_equal_resources_shrinks_a_java_push() -> None:
    sent = payload("java44-consumer-star-01")
    assert len(label(sent)[0].data) < len(sent) / 2


def test_unknown_values_have_no_label_but_an_empty_client_id_has() -> None:
    facts = identity_labels(client(client_id="", broker=Broker(id=3)))
    labelled = label_metrics(
        push(resource_metrics(gauge("a", 1.0))), label_bytes(facts), max_entries=MAX_ENTRIES
    )
    (labels,) = labels_of(MetricsData.FromString(labelled.data))
    unknown = ("cluster_id", "sasl_mechanism", "client_owner")
    assert labels == {key: value for key, value in EXPECTED.items() if key not in unknown} | {"client_id": ""}
    assert tuple(EXPECTED) == OWNED_LABELS


def test_labels_of_any_length_and_character() -> None:
    for length in (1, 126, 127, 128, 200, 16_383, 16_384, 40_000):
        facts = identity_labels(client(client_id="ö" * (length // 2) + "\ud800"))
        labelled = label_metrics(
            push(resource_metrics(gauge("a", 1.0))), label_bytes(facts), max_entries=MAX_ENTRIES
        )
        (labels,) = labels_of(MetricsData.FromString(labelled.data))
        assert labels["client_id"] == "ö" * (length // 2) + "?"


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b"\xff\xff",
        b"garbage that is no protobuf",
        push(resource_metrics(gauge("a", 1.0)))[:-1],
        b"\x0a\x02\x0a\xff",
        # A name that is not UTF-8.
        length_delimited(b"\x0a", length_delimited(b"\x12", length_delimited(b"\x12", b"\x0a\x01\xff"))),
    ],
)
def test_bytes_that_are_not_protobuf_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidMetricsError, match="no OTLP MetricsData"):
        label_metrics(data, LABELS, max_entries=MAX_ENTRIES)


@pytest.mark.parametrize(
    "data",
    [
        b"\x7a\x02hi",
        b"\x08\x01",
    ],
)
def test_bytes_without_any_resource_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidMetricsError, match="no metrics message"):
        label_metrics(data, LABELS, max_entries=MAX_ENTRIES)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x00",
        b"\x0a\x02\x12\x00",
        b"\x0a\x00" * 100,
        push(ResourceMetrics(schema_url="s")),
        push(ResourceMetrics(resource=Resource(attributes=[KeyValue(key="group_id")]))),
    ],
)
def test_a_resource_without_a_metric_is_an_empty_push(data: bytes) -> None:
    """INVALID_RECORD would end the client's telemetry until it restarts."""
    assert label_metrics(data, LABELS, max_entries=MAX_ENTRIES) == LabelledMetrics()


def test_a_scope_without_metrics_is_an_empty_push_as_franz_go_sends_it() -> None:
    sent = b"\n\x12\x12\x10\n\x0e\n\x03kgo\x12\x07v1.22.2"
    assert label_metrics(sent, LABELS, max_entries=MAX_ENTRIES) == LabelledMetrics(
        data=b"", dropped_points=0, removed_labels=0
    )


def test_equal_resources_are_merged_in_order_of_appearance() -> None:
    labelled, received = label(
        push(
            resource_metrics(gauge("a", 1.0), group_id="x"),
            resource_metrics(gauge("b", 1.0), scope="s", group_id="y"),
            resource_metrics(gauge("c", 1.0), group_id="x"),
            resource_metrics(gauge("d", 1.0)),
            ResourceMetrics(resource=Resource(), scope_metrics=[ScopeMetrics(metrics=[gauge("e", 1.0)])]),
        )
    )
    assert labelled.data
    assert labels_of(received) == [{"group_id": "x"} | EXPECTED, {"group_id": "y"} | EXPECTED, EXPECTED]
    assert [
        [metric.name for s in part.scope_metrics for metric in s.metrics]
        for part in received.resource_metrics
    ] == [
        ["a", "c"],
        ["b"],
        ["d", "e"],
    ]


def test_scopes_and_schemas_are_kept_apart() -> None:
    one = resource_metrics(gauge("a", 1.0), scope="s1", group_id="x")
    two = resource_metrics(gauge("b", 1.0), scope="s2", group_id="x")
    two.scope_metrics[0].schema_url = "https://example.com/two"
    other_schema = resource_metrics(gauge("c", 1.0), group_id="x")
    other_schema.schema_url = "https://example.com/other"
    _, received = label(push(one, two))
    assert [(s.scope.name, s.schema_url) for s in received.resource_metrics[0].scope_metrics] == [
        ("s1", ""),
        ("s2", "https://example.com/two"),
    ]
    _, received = label(push(one, other_schema, two))
    assert [(part.schema_url, len(part.scope_metrics)) for part in received.resource_metrics] == [
        ("", 2),
        ("https://example.com/other", 1),
    ]


def test_unknown_fields_are_kept_and_their_resources_not_merged() -> None:
    unknown = b"\xfa\x3e\x07unknown"
    plain = resource_metrics(gauge("a", 1.0), group_id="x").SerializeToString()
    point = NumberDataPoint(as_double=1.0).SerializeToString() + unknown
    deep = length_delimited(b"\x12", length_delimited(b"\x2a", length_delimited(b"\x0a", point)))
    data = (
        length_delimited(b"\x0a", plain)
        + length_delimited(b"\x0a", plain + unknown)
        + length_delimited(b"\x0a", length_delimited(b"\x12", deep))
        + length_delimited(b"\x0a", plain)
        + unknown
    )
    labelled, received = label(data)
    assert labelled.data.count(b"unknown") == 3
    assert labelled.data.endswith(unknown)
    assert [len(part.scope_metrics) for part in received.resource_metrics] == [2, 1, 1]
    labelled, received = label(length_delimited(b"\x0a", plain) * 2 + unknown)
    assert labelled.data.endswith(unknown)
    assert len(received.resource_metrics) == 1
    scope_unknown = length_delimited(b"\x0a", length_delimited(b"\x12", deep + unknown)) * 2
    labelled, received = label(scope_unknown)
    assert labelled.data.count(b"unknown") == 4
    assert [len(part.scope_metrics) for part in received.resource_metrics] == [2]


def test_a_resource_in_pieces_is_one_resource() -> None:
    pieces = [
        length_delimited(b"\x0a", length_delimited(b"\x0a", attribute(key, "v").SerializeToString()))
        for key in ("group_id", "client_id", "client_rack")
    ]
    scope_metrics = length_delimited(b"\x12", ScopeMetrics(metrics=[gauge("a", 1.0)]).SerializeToString())
    data = length_delimited(b"\x0a", pieces[0] + scope_metrics + pieces[1] + pieces[2])
    labelled, received = label(data)
    assert labels_of(received) == [{"group_id": "v", "client_rack": "v"} | EXPECTED]
    assert labelled.removed_labels == 1
    # Two pieces in one message and none in the other are not one in each.
    both = length_delimited(b"\x0a", pieces[0] + pieces[0] + scope_metrics) + length_delimited(
        b"\x0a", scope_metrics
    )
    received = MetricsData.FromString(label_metrics(both, LABELS, max_entries=MAX_ENTRIES).data)
    assert len(received.resource_metrics) == 2


def test_overlong_lengths_and_tags() -> None:
    canonical = push(
        resource_metrics(gauge("a", 1.0), group_id="x"), resource_metrics(gauge("b", 1.0), group_id="x")
    )
    first, second = (part.SerializeToString() for part in MetricsData.FromString(canonical).resource_metrics)
    odd = b"\x8a\x00" + bytes([len(first) | 0x80, 0]) + first + length_delimited(b"\x8a\x80\x00", second)
    assert MetricsData.FromString(odd) == MetricsData.FromString(canonical)
    assert label_metrics(odd, LABELS, max_entries=MAX_ENTRIES) == label_metrics(
        canonical, LABELS, max_entries=MAX_ENTRIES
    )


def test_too_many_different_resources_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "MAX_RESOURCES", 5)
    parts = [resource_metrics(gauge("a", 1.0), group_id=str(number)) for number in range(6)]
    assert len(label(push(*parts[:5]))[1].resource_metrics) == 5
    with pytest.raises(TooLargeError, match="more than 5 ResourceMetrics"):
        label_metrics(push(*parts), LABELS, max_entries=MAX_ENTRIES)
    assert len(label(push(*parts[:1] * 100))[1].resource_metrics) == 1


EMPTY_POINTS = b"\x0a\x00" * (1 << 20)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x00" * (1 << 20) + in_all(b""),
        b"\x0a\x00" * (1 << 20),
        in_all(length_delimited(b"\x2a", EMPTY_POINTS + length_delimited(b"\x0a", NAN))),
        in_all(length_delimited(b"\x2a", length_delimited(b"\x0a", NAN))) * 100_000,
        b"".join(
            length_delimited(b"\x0a", bytes([0x0A, 2, 0x10, number & 127, 0x12, 2, 0x12, 0]))
            for number in range(200_000)
        ),
    ],
    ids=["one metric in the last", "no metric", "one value in the last", "all values", "all different"],
)
def test_many_small_messages_take_little_time(data: bytes) -> None:
    started = time.process_time()
    with contextlib.suppress(TooLargeError, InvalidMetricsError):
        label_metrics(data, LABELS, max_entries=MAX_ENTRIES)
    # Parsing each in Python would take several seconds.
    assert time.process_time() - started < 1.5


def test_deep_nesting_is_refused() -> None:
    for depth in (30, 50, 10_000):
        value = b""
        for _ in range(depth):
            value = length_delimited(b"\x2a", length_delimited(b"\x0a", value))
        point = length_delimited(b"\x3a", b"\x0a\x01k" + length_delimited(b"\x12", value)) + NAN
        metric = length_delimited(b"\x2a", length_delimited(b"\x0a", point))
        data = push(resource_metrics(gauge("a", 1.0), scope="s")) + in_all(metric)
        if depth == 30:
            assert label(data)[0].dropped_points == 1
        else:
            with pytest.raises(InvalidMetricsError):
                label_metrics(data, LABELS, max_entries=MAX_ENTRIES)
