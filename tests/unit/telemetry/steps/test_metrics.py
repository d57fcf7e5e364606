"""The steps on a push: known-bad values, budgets, units, and the bound of work."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.settings.metric_processing import NormalizationSettings, PrivacySettings
from receiver.telemetry import scrub
from receiver.telemetry.errors import TooLargeError
from receiver.telemetry.otlp import LabelledMetrics, label_metrics
from receiver.telemetry.steps.metrics import MetricSteps, SeriesBound
from receiver.telemetry.steps.steps import Steps
from tests.unit.telemetry.otlp_parts import LABELS, MAX_ENTRIES, gauge, push, resource_metrics
from tests.unit.telemetry.parts import ALL_PAYLOADS, all_metrics, payload

REQUIRED = "org.apache.kafka.consumer.poll.idle.ratio.avg"
LATENCY = "org.apache.kafka.consumer.node.request.latency.avg"
KEY = b"0123456789abcdef"


def steps(
    privacy: dict[str, Any] | None = None, bad: tuple[str, ...] = (), **normalization: Any
) -> MetricSteps:
    return Steps(
        NormalizationSettings.model_validate(normalization),
        PrivacySettings.model_validate({"key": {"file": "key"}} | (privacy or {})),
        KEY,
    ).for_client(bad)


def apply(data: bytes, *args: Any, max_series: int | None = None, **kwargs: Any) -> LabelledMetrics:
    chosen = steps(*args, **kwargs)
    return label_metrics(
        data, LABELS, max_entries=MAX_ENTRIES, steps=chosen, bound=SeriesBound(max_series=max_series)
    )


def names(labelled: LabelledMetrics) -> list[str]:
    return [metric.name for metric in all_metrics(MetricsData.FromString(labelled.data))]


@pytest.mark.parametrize("name", ALL_PAYLOADS)
def test_with_every_step_off_nothing_changes(name: str) -> None:
    plain = label_metrics(payload(name), LABELS, max_entries=MAX_ENTRIES)
    off = apply(payload(name), attributes=False, units=False, known_bad_values="keep", max_series=1000)
    assert off == plain
    assert plain.series == sum(
        len(metric.gauge.data_points) + len(metric.sum.data_points)
        for metric in all_metrics(MetricsData.FromString(plain.data))
    )


@pytest.mark.parametrize("name", ALL_PAYLOADS)
def test_every_metric_of_a_real_client_has_its_unit(name: str) -> None:
    labelled = apply(payload(name), descriptions=True)
    for metric in all_metrics(MetricsData.FromString(labelled.data)):
        assert metric.description
        assert metric.unit or metric.name.endswith("preferred.read.replica")


@pytest.mark.parametrize("name", [name for name in ALL_PAYLOADS if "consumer" in name])
def test_node_ids_of_real_clients_have_one_form(name: str) -> None:
    data = MetricsData.FromString(apply(payload(name)).data)
    nodes = {
        tuple((attribute.key, attribute.value.string_value) for attribute in point.attributes)
        for metric in all_metrics(data)
        if ".node." in metric.name
        for point in metric.gauge.data_points
    }
    expected = {(("node_id", "1"), ("node_role", "broker")), (("node_id", "-1"), ("node_role", "bootstrap"))}
    if name.startswith("java44"):
        expected.add((("node_id", "1"), ("node_role", "coordinator")))
    assert nodes == expected or (name.endswith("terminating") and nodes <= expected)


@pytest.mark.parametrize("scope", [None, "s"])
def test_known_bad_values_are_dropped_marked_or_kept(scope: str | None) -> None:
    data = push(resource_metrics(gauge("x.rate", 1.0, 2.0), gauge("x.total", 3.0), scope=scope))
    bad = (r".*\.rate", r".*\.avg")
    dropped = apply(data, bad=bad)
    assert names(dropped) == ["x.total"]
    assert (dropped.steps.bad_points, dropped.series) == (2, 1)
    marked = apply(data, bad=bad, known_bad_values="mark")
    assert names(marked) == ["x.rate", "x.total"]
    assert (marked.steps.marked_points, marked.steps.bad_points, marked.series) == (2, 0, 3)
    rate, total = all_metrics(MetricsData.FromString(marked.data))
    for point in rate.gauge.data_points:
        (attribute,) = point.attributes
        assert (attribute.key, attribute.value.bool_value) == ("known_bad", True)
    assert not total.gauge.data_points[0].attributes
    kept = apply(data, bad=bad, known_bad_values="keep")
    assert names(kept) == ["x.rate", "x.total"]
    assert kept.steps.bad_points == kept.steps.marked_points == 0


@pytest.mark.parametrize("scope", [None, "s"])
def test_a_push_whose_metrics_are_all_dropped_is_empty(scope: str | None) -> None:
    data = push(resource_metrics(gauge("x.rate", 1.0), scope=scope))
    labelled = apply(data, {"rules": [{"metric": ".*", "action": "drop"}]})
    assert labelled.data == b""
    assert (labelled.series, labelled.steps.private_points) == (0, 1)


def test_an_emptied_scope_or_resource_is_removed() -> None:
    data = push(
        resource_metrics(gauge("gone", 1.0), scope="s", a="1"),
        resource_metrics(gauge("stays", 1.0), scope="s", a="2"),
    )
    labelled = apply(data, {"rules": [{"metric": "gone", "action": "drop"}]})
    (left,) = MetricsData.FromString(labelled.data).resource_metrics
    assert left.resource.attributes[0].value.string_value == "2"


def test_resources_made_equal_by_a_rule_are_merged() -> None:
    data = push(resource_metrics(gauge("m", 1.0), a="1"), resource_metrics(gauge("n", 1.0), a="2"))
    labelled = apply(data, {"rules": [{"attribute": "a", "action": "drop"}]})
    assert len(MetricsData.FromString(labelled.data).resource_metrics) == 1
    assert labelled.steps.dropped_attributes == 2


@pytest.mark.parametrize("scope", [None, "s"])
def test_required_metrics_stay_first_over_a_budget(scope: str | None) -> None:
    data = push(resource_metrics(gauge("a", 1.0, 2.0), gauge(REQUIRED, 0.5), gauge("b", 3.0), scope=scope))
    for max_series, expected in (
        (4, [("a", 2), (REQUIRED, 1), ("b", 1)]),
        (3, [("a", 2), (REQUIRED, 1)]),
        (2, [("a", 1), (REQUIRED, 1)]),
        (1, [(REQUIRED, 1)]),
        (0, []),
    ):
        labelled = apply(data, max_series=max_series)
        metrics = list(all_metrics(MetricsData.FromString(labelled.data)))
        if max_series < 4:
            overflow = metrics.pop()
            assert overflow.name == "kafka.client.telemetry.overflow"
            (point,) = overflow.gauge.data_points
            assert point.as_int == labelled.overflowed == 4 - max_series
            assert [(item.key, item.value.bool_value) for item in point.attributes] == [
                ("otel.metric.overflow", True)
            ]
        assert [(metric.name, len(metric.gauge.data_points)) for metric in metrics] == expected
        assert labelled.series == max_series


def test_the_overflow_series_has_the_time_of_a_dropped_point() -> None:
    metric = gauge("a", 1.0)
    metric.gauge.data_points[0].time_unix_nano = 1234
    (overflow,) = all_metrics(
        MetricsData.FromString(apply(push(resource_metrics(metric)), max_series=0).data)
    )
    assert overflow.gauge.data_points[0].time_unix_nano == 1234


@pytest.mark.parametrize("scope", [None, "s"])
def test_a_push_over_the_bound_of_work_is_not_normalised(
    monkeypatch: pytest.MonkeyPatch, scope: str | None
) -> None:
    # Counted: the metric, its metadata list, each point, its attribute list, each attribute.
    monkeypatch.setattr(scrub, "MAX_SCRUBBED", 2 + 3 * 9)
    data = push(resource_metrics(gauge("a", *[1.0] * 9, attributes=("node_id",)), scope=scope))
    assert not apply(data, bad=("a",), known_bad_values="mark").steps.unnormalized
    data = push(resource_metrics(gauge("a", *[1.0] * 10, attributes=("node_id",)), scope=scope))
    labelled = apply(data, bad=("a",), known_bad_values="mark")
    assert labelled.steps.unnormalized
    assert labelled.steps.marked_points == 0
    assert labelled.series == 10
    assert labelled.data == label_metrics(data, LABELS, max_entries=MAX_ENTRIES).data


def test_a_budget_applies_over_the_bound_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "MAX_SCRUBBED", 10)
    metrics = [gauge(f"m{number}", 1.0, attributes=("node_id",)) for number in range(10)]
    labelled = apply(push(resource_metrics(*metrics)), max_series=8)
    assert labelled.steps.unnormalized
    assert (labelled.series, labelled.overflowed) == (8, 2)
    *kept, overflow = all_metrics(MetricsData.FromString(labelled.data))
    assert kept == metrics[:8]
    assert overflow.gauge.data_points[0].as_int == 2


def test_too_many_scopes_are_not_normalised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receiver.telemetry.steps.scopes.MAX_SCRUBBED", 4)
    data = push(*[resource_metrics(gauge(LATENCY, 1.0), scope="s") for _ in range(3)])
    labelled = apply(data)
    assert labelled.steps.unnormalized
    assert labelled.data == label_metrics(data, LABELS, max_entries=MAX_ENTRIES).data
    with pytest.raises(TooLargeError, match="a bound on series"):
        apply(data, max_series=2)


def test_a_resource_of_too_many_attributes_is_not_normalised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("receiver.telemetry.steps.rewriting.MAX_KEYS", 2)
    data = push(resource_metrics(gauge("a", 1.0), member_id="m", b="1", c="2"))
    assert apply(data).steps.unnormalized
    with pytest.raises(TooLargeError, match="attributes in one place"):
        apply(data, {"rules": [{"attribute": "b", "action": "drop"}]})


def test_privacy_refuses_a_push_over_the_bound_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receiver.telemetry.steps.rewriting._MAX_PRIVATE", 10)
    data = push(resource_metrics(gauge("a", *[1.0] * 10, attributes=("secret",))))
    with pytest.raises(TooLargeError, match="messages to parse one by one"):
        apply(data, {"rules": [{"attribute": "secret", "action": "drop"}]})


def test_the_caches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receiver.telemetry.steps.rewriting._CACHE_SIZE", 3)
    monkeypatch.setattr("receiver.telemetry.steps.names._CACHE_SIZE", 3)
    chosen = steps()
    for number in range(20):
        metric = gauge(f"m{number}", 1.0)
        point = metric.gauge.data_points[0]
        point.time_unix_nano = 1
        point.attributes.add(key="node_id").value.int_value = number
        labelled = label_metrics(
            push(resource_metrics(metric)), LABELS, max_entries=MAX_ENTRIES, steps=chosen
        )
        (received,) = all_metrics(MetricsData.FromString(labelled.data))
        assert received.gauge.data_points[0].attributes[0].value.string_value == str(number)
    rewriter, remembered = chosen.rewriter, chosen._names
    assert 0 < len(rewriter._entries) <= 3
    assert 0 < len(remembered._known) <= 3
    assert chosen._units is not None
    assert 0 < len(chosen._units._missing) <= 3
