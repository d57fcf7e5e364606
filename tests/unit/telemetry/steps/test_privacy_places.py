"""Privacy rules apply to an attribute in every place and encoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ResourceMetrics

from receiver.settings.metric_processing import NormalizationSettings, PrivacySettings
from receiver.telemetry.errors import TooLargeError
from receiver.telemetry.labels import length_delimited
from receiver.telemetry.otlp import LabelledMetrics, label_metrics
from receiver.telemetry.steps.rewriting import MAX_KEYS
from receiver.telemetry.steps.steps import Steps
from tests.unit.telemetry.otlp_parts import LABELS, MAX_ENTRIES, attribute, gauge, push, resource_metrics

PRIVATE = attribute("user", "alice")


def with_rule(data: bytes, action: str, key: str = "user.*") -> LabelledMetrics:
    settings = {"rules": [{"attribute": key, "action": action}], "key": {"file": "key"}}
    steps = Steps(NormalizationSettings(), PrivacySettings.model_validate(settings), b"0123456789abcdef")
    return label_metrics(data, LABELS, max_entries=MAX_ENTRIES, steps=steps.for_client(()))


def on_point(item: KeyValue) -> ResourceMetrics:
    metric = gauge("m", 1.0)
    metric.gauge.data_points[0].attributes.append(item)
    return resource_metrics(metric)


def on_exemplar(item: KeyValue) -> ResourceMetrics:
    metric = gauge("m", 1.0)
    metric.gauge.data_points[0].exemplars.add(as_double=1.0).filtered_attributes.append(item)
    return resource_metrics(metric)


def on_metadata(item: KeyValue) -> ResourceMetrics:
    metric = gauge("m", 1.0)
    metric.metadata.append(item)
    return resource_metrics(metric)


def on_metadata_without_data(item: KeyValue) -> ResourceMetrics:
    return resource_metrics(Metric(name="m", metadata=[item]))


def on_resource(item: KeyValue) -> ResourceMetrics:
    made = resource_metrics(gauge("m", 1.0))
    made.resource.attributes.append(item)
    return made


def on_scope(item: KeyValue) -> ResourceMetrics:
    made = resource_metrics(gauge("m", 1.0), scope="s")
    made.scope_metrics[0].scope.attributes.append(item)
    return made


def in_a_list(item: KeyValue) -> KeyValue:
    return KeyValue(key="x", value=AnyValue(kvlist_value=KeyValueList(values=[item])))


def in_an_array(item: KeyValue) -> KeyValue:
    return KeyValue(
        key="x", value=AnyValue(array_value=ArrayValue(values=[AnyValue(), in_a_list(item).value]))
    )


def itself(item: KeyValue) -> KeyValue:
    return item


@pytest.mark.parametrize("action", ["drop", "hash"])
@pytest.mark.parametrize(
    "place", [on_point, on_exemplar, on_metadata, on_metadata_without_data, on_resource, on_scope]
)
@pytest.mark.parametrize("wrapped", [itself, in_a_list, in_an_array])
def test_a_rule_applies_in_every_place(
    place: Callable[[KeyValue], ResourceMetrics], wrapped: Callable[[KeyValue], KeyValue], action: str
) -> None:
    harmless = resource_metrics(gauge("n", 2.0, attributes=("topic",)))
    labelled = with_rule(push(place(wrapped(PRIVATE)), harmless), action)
    assert b"alice" not in labelled.data
    assert b"topic" in labelled.data
    assert (labelled.steps.dropped_attributes, labelled.steps.hashed_attributes) == (
        (1, 0) if action == "drop" else (0, 1)
    )


def test_a_key_that_overlaps_the_metric_before_it_is_found() -> None:
    # The key is found across the end of the first metric, the bytes before the second's key, and
    # the start of that key.
    end = b"user_"

    def second(key: bytes) -> bytes:
        value = b"\x12\x07\x0a\x05alice"
        item = length_delimited(b"\x3a", length_delimited(b"\x0a", key) + value)
        point = length_delimited(b"\x0a", item + b"\x21" + bytes(8))
        return b"\x0a\x01m" + length_delimited(b"\x2a", point)

    fronts = {length: second(b"?" * length).partition(b"?")[0] for length in range(1, 60)}
    (key,) = (end + front + end for length, front in fronts.items() if len(front) + 2 * len(end) == length)
    metrics = (b"\x0a\x01n" + length_delimited(b"\x12", end), second(key))
    scope = b"".join(length_delimited(b"\x12", metric) for metric in metrics)
    data = length_delimited(b"\x0a", length_delimited(b"\x12", scope))
    assert MetricsData.FromString(data).resource_metrics[0].scope_metrics[0].metrics[1].gauge.data_points
    labelled = with_rule(data, "drop")
    assert b"alice" not in labelled.data
    assert labelled.steps.dropped_attributes == 1


def test_a_rule_for_a_member_id_applies_to_both_keys() -> None:
    metric = gauge("m", 1.0, attributes=("member_id", "group_member_id"))
    labelled = with_rule(push(resource_metrics(metric)), "drop", "group_member_id")
    assert labelled.steps.dropped_attributes == 2


@pytest.mark.parametrize("keys", [MAX_KEYS, MAX_KEYS + 1])
def test_a_push_with_too_many_keys_is_refused(keys: int) -> None:
    item: Any = push(on_exemplar(PRIVATE))
    metric = gauge("m", 1.0, attributes=tuple(f"key{number}" for number in range(keys)))
    data = push(resource_metrics(metric))
    if keys > MAX_KEYS:
        with pytest.raises(TooLargeError, match="keys"):
            with_rule(data, "drop")
    else:
        assert b"key1" in with_rule(data, "drop").data
    assert b"alice" not in with_rule(item, "drop").data
