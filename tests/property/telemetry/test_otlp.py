"""Labelling against an oracle that parses every message, for any encoding of a push."""

from __future__ import annotations

import math
from typing import Any

from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from receiver.telemetry.errors import InvalidMetricsError
from receiver.telemetry.identity import Broker
from receiver.telemetry.labels import OWNED_LABELS, identity_labels, label_bytes
from receiver.telemetry.otlp import label_metrics
from receiver.telemetry.otlp_views import Checked
from tests.property.telemetry.strategies import odd_encodings, pushes
from tests.unit.telemetry.otlp_parts import MAX_ENTRIES
from tests.unit.telemetry.parts import JAVA_PRODUCER, all_metrics, client, payload

_CLIENT = client(sasl_mechanism="PLAIN", broker=Broker(id=1, cluster_id="c"))
LABELS = label_bytes(identity_labels(_CLIENT, owner="payments"))


def text(message: Any) -> bytes:
    """Return equal bytes for equal messages, even with NaN."""
    return bytes(message.SerializeToString(deterministic=True))


def without_owned(attributes: Any) -> int:
    kept = [attribute for attribute in attributes if attribute.key not in OWNED_LABELS]
    removed = len(attributes) - len(kept)
    del attributes[:]
    attributes.extend(kept)
    return removed


def scrubbed(metric: Metric) -> tuple[Metric | None, int, int]:
    """Return the scrubbed metric, and the numbers of dropped points and removed attributes."""
    kind = metric.WhichOneof("data")
    if kind is None:
        return metric, 0, 0
    points = getattr(metric, kind).data_points
    removed = sum(without_owned(point.attributes) for point in points)
    if kind not in ("gauge", "sum"):
        return metric, 0, removed
    kept = [p for p in points if p.WhichOneof("value") != "as_double" or math.isfinite(p.as_double)]
    dropped = len(points) - len(kept)
    del points[:]
    points.extend(kept)
    return (None if dropped and not kept else metric), dropped, removed


def taken_apart(push: MetricsData) -> tuple[list[tuple[bytes, ...]], int, int, set[tuple[bytes, str]]]:
    """Return each metric with its origin, the counts of removed parts, and the Resources."""
    found: list[tuple[bytes, ...]] = []
    resources: set[tuple[bytes, str]] = set()
    dropped = removed = 0
    for resource_metrics in push.resource_metrics:
        removed += without_owned(resource_metrics.resource.attributes)
        origin = (text(resource_metrics.resource), resource_metrics.schema_url)
        wanted = not resource_metrics.scope_metrics
        for scope_metrics in resource_metrics.scope_metrics:
            removed += without_owned(scope_metrics.scope.attributes)
            before = len(found)
            had = len(scope_metrics.metrics)
            for metric in scope_metrics.metrics:
                left, points, labels = scrubbed(metric)
                dropped += points
                removed += labels
                if left is not None:
                    found.append(
                        (
                            origin[0],
                            origin[1].encode(),
                            text(scope_metrics.scope),
                            scope_metrics.schema_url.encode(),
                            text(left),
                        )
                    )
            wanted |= len(found) > before or not had
        if wanted:
            resources.add(origin)
    return sorted(found), dropped, removed, resources


def received(data: bytes) -> tuple[list[tuple[bytes, ...]], list[tuple[bytes, str]]]:
    """Return the same of a labelled push; each Resource must have each label once."""
    push = MetricsData.FromString(data)
    origins = []
    for resource_metrics in push.resource_metrics:
        attributes = resource_metrics.resource.attributes
        labels = [attribute.key for attribute in attributes[-len(OWNED_LABELS) :]]
        assert labels == list(OWNED_LABELS)
        del attributes[-len(OWNED_LABELS) :]
        assert not without_owned(attributes)
        origins.append((text(resource_metrics.resource), resource_metrics.schema_url))
    found, dropped, removed, _ = taken_apart(push)
    assert (dropped, removed) == (0, 0)
    return found, origins


@given(st.one_of(odd_encodings(), pushes.map(lambda push: (push, text(push)))))
def test_labelling_equals_the_oracle(case: tuple[MetricsData, bytes]) -> None:
    push, data = case
    read = MetricsData.FromString(data)
    has_unknown = b"\xfa\x3e\x01u" in data
    if not has_unknown:
        assert text(read) == text(push)
    had_metric = any(True for _ in all_metrics(push))
    if not push.resource_metrics:
        if data:
            try:
                label_metrics(data, LABELS, max_entries=MAX_ENTRIES)
            except InvalidMetricsError:
                return
            raise AssertionError("taken without a metric")
        return
    labelled = label_metrics(data, LABELS, max_entries=MAX_ENTRIES)
    expected, dropped, removed, resources = taken_apart(push)
    if not had_metric:
        assert labelled.data == b""
        return
    assert (labelled.dropped_points, labelled.removed_labels) == (dropped, removed)
    if not expected:
        assert labelled.data == b""
        return
    found, origins = received(labelled.data)
    if has_unknown:
        # With unknown fields the bytes differ, but the number of metrics stays.
        assert len(found) == len(expected)
        assert labelled.data.count(b"\xfa\x3e\x01u") <= data.count(b"\xfa\x3e\x01u")
    else:
        assert found == expected
        assert len(origins) == len(set(origins))
        assert set(origins) == resources


@given(st.data())
def test_a_damaged_push_is_accepted_or_refused(data: st.DataObject) -> None:
    whole = bytearray(payload(JAVA_PRODUCER))
    for _ in range(data.draw(st.integers(1, 8))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        labelled = label_metrics(bytes(whole), LABELS, max_entries=MAX_ENTRIES)
    except InvalidMetricsError:
        return
    if labelled.data:
        received(labelled.data)


def can_be_read(as_what: type[Any], data: bytes) -> bool:
    try:
        as_what.FromString(data)
    except DecodeError:
        return False
    return True


@given(st.one_of(st.binary(max_size=100), odd_encodings().map(lambda case: case[1])), st.data())
def test_the_check_accepts_exactly_valid_protobuf(given_bytes: bytes, data: st.DataObject) -> None:
    damaged = bytearray(given_bytes)
    for _ in range(data.draw(st.integers(0, 3)) if damaged else 0):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    assert can_be_read(Checked, bytes(damaged)) == can_be_read(MetricsData, bytes(damaged))


@given(st.binary(min_size=1, max_size=300))
@example(b"\x0a\x02\x12\x00")
def test_any_bytes_are_accepted_or_refused(data: bytes) -> None:
    try:
        labelled = label_metrics(data, LABELS, max_entries=MAX_ENTRIES)
    except InvalidMetricsError:
        return
    if labelled.data:
        received(labelled.data)
