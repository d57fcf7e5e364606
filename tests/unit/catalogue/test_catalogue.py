"""The catalogue against captured pushes of real clients, and its consistency."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.catalogue import CATALOGUE, Catalogue, Combination, MetricKind
from receiver.catalogue.reference import reference
from tests.unit.telemetry.parts import ALL_PAYLOADS, all_metrics, payload

CLIENTS = {"java44": "java", "ck": "librdkafka", "franz": "franz-go"}
PREFIX = "org.apache.kafka."
REQUIRED = (
    "producer.connection.creation.rate",
    "producer.connection.creation.total",
    "producer.node.request.latency.avg",
    "producer.node.request.latency.max",
    "producer.produce.throttle.time.avg",
    "producer.produce.throttle.time.max",
    "producer.record.queue.time.avg",
    "producer.record.queue.time.max",
    "consumer.connection.creation.rate",
    "consumer.connection.creation.total",
    "consumer.node.request.latency.avg",
    "consumer.node.request.latency.max",
    "consumer.poll.idle.ratio.avg",
    "consumer.coordinator.commit.latency.avg",
    "consumer.coordinator.commit.latency.max",
    "consumer.coordinator.assigned.partitions",
    "consumer.coordinator.rebalance.latency.avg",
    "consumer.coordinator.rebalance.latency.max",
    "consumer.coordinator.rebalance.latency.total",
    "consumer.fetch.manager.fetch.latency.avg",
    "consumer.fetch.manager.fetch.latency.max",
)

#: Possible units by the end of a name.
UNITS = {
    ".rate": {"1/s", "By/s"},
    ".rate.per.hour": {"1/h"},
    ".ratio": {"1"},
    ".ratio.avg": {"1"},
    ".ns.total": {"ns"},
    ".ns.avg": {"ns"},
    ".latency.avg": {"ms"},
    ".latency.max": {"ms"},
    ".latency.total": {"ms"},
    ".size.avg": {"By"},
    ".size.max": {"By"},
    ".byte.total": {"By"},
    ".bytes": {"By"},
    ".seconds.ago": {"s"},
}


@pytest.mark.parametrize("name", ALL_PAYLOADS)
def test_metrics_of_real_clients_are_in_the_catalogue(name: str) -> None:
    client = CLIENTS[name.split("-")[0]]
    for sent in all_metrics(MetricsData.FromString(payload(name))):
        metric = CATALOGUE.metric(sent.name)
        assert metric is not None, sent.name
        assert client in metric.clients, sent.name
        assert sent.WhichOneof("data") == metric.kind, sent.name
        assert not sent.HasField("sum") or sent.sum.is_monotonic, sent.name
        points = sent.sum.data_points or sent.gauge.data_points
        for point in points:
            keys = {attribute.key.replace("node.id", "node_id") for attribute in point.attributes}
            assert keys in [set(keys) for keys in metric.by], sent.name


def test_the_required_metrics_are_those_of_the_kip() -> None:
    assert {metric.name for metric in CATALOGUE if metric.required} == {PREFIX + name for name in REQUIRED}


def test_a_unit_agrees_with_the_name() -> None:
    for metric in CATALOGUE:
        for ending, units in UNITS.items():
            # This rate is a ratio of sizes, despite its name.
            if metric.name.endswith(ending) and not metric.name.endswith(".compression.rate"):
                assert metric.unit in units, metric.name


def test_each_kind_has_a_valid_combination() -> None:
    for metric in CATALOGUE:
        if metric.kind is MetricKind.SUM:
            assert metric.combines is Combination.SUM, metric.name
        elif metric.kind is MetricKind.HISTOGRAM:
            assert metric.combines is Combination.DISTRIBUTION, metric.name
        else:
            assert metric.combines is not Combination.SUM, metric.name
        if metric.name.endswith(".max"):
            assert metric.combines is Combination.MAX, metric.name
        if metric.name.endswith(".avg"):
            assert metric.combines is Combination.DISTRIBUTION, metric.name


def test_the_draft_and_the_released_names_lead_to_each_other() -> None:
    for metric in CATALOGUE:
        for name in metric.released_names:
            released = CATALOGUE.metric(name)
            assert released is not None
            assert metric.name in (name, released.draft_name)
        if metric.draft_name is not None:
            draft = CATALOGUE.metric(metric.draft_name)
            assert draft is not None
            assert metric.name in (draft.name, *draft.released_names)


def test_another_name_is_not_found() -> None:
    assert CATALOGUE.metric("org.apache.kafka.producer.my.own") is None


DRAFT = f"{PREFIX}client."


def test_each_histogram_of_the_draft_has_its_average() -> None:
    histograms = [metric for metric in CATALOGUE if metric.kind is MetricKind.HISTOGRAM]
    assert len(histograms) == 8
    for histogram in histograms:
        average = CATALOGUE.metric(f"{histogram.name}.avg60s")
        assert average is not None
        assert (average.kind, average.combines) == (MetricKind.GAUGE, Combination.DISTRIBUTION)
        assert (average.unit, average.by) == (histogram.unit, histogram.by)


def test_an_average_over_another_period_is_found() -> None:
    average = CATALOGUE.metric(f"{DRAFT}request.rtt.avg10s")
    assert average is not None
    assert average.name == average.draft_name == f"{DRAFT}request.rtt.avg10s"
    assert average.description.startswith("Average over 10 s: ")
    assert average.by == (("node_id",),)
    for name in (
        "request.rtt.avg",
        "request.rtt.avg0s",
        "request.rtt.avg010s",
        "request.rtt.avg1000000s",
        "request.rtt.avg10s\n",
        "request.rtt.avg10s.avg10s",
        "request.success.avg60s",
        "request.success.avg10s",
    ):
        assert CATALOGUE.metric(DRAFT + name) is None, name


def test_the_metrics_of_the_draft_are_complete() -> None:
    reasons = {metric.name.removeprefix(DRAFT) for metric in CATALOGUE if ("reason",) in metric.by}
    assert reasons == {"connection.errors", "terminating"}
    strategy = CATALOGUE.metric(f"{DRAFT}consumer.group.assignment.strategy")
    assert strategy is not None
    assert strategy.kind is MetricKind.GAUGE


def test_the_metrics_are_in_order_and_described() -> None:
    names = [metric.name for metric in CATALOGUE]
    assert names == sorted(names)
    assert len(names) == len(CATALOGUE)
    assert all(metric.description.endswith(".") for metric in CATALOGUE)


def test_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version is 2, not 1"):
        Catalogue({"version": 2, "metrics": []})


def test_a_duplicate_metric_is_refused() -> None:
    entry: dict[str, Any] = {
        "name": "a",
        "kind": "gauge",
        "unit": None,
        "combines": "last",
        "required": False,
        "clients": [],
        "by": [[]],
        "draft_name": None,
        "released_names": [],
        "description": "A.",
    }
    with pytest.raises(ValueError, match="has a twice"):
        Catalogue({"version": 1, "metrics": [entry, entry]})


def test_each_rate_has_its_sum() -> None:
    """docs/rollup-tables.md relies on it: rates of clients that push rarely are too small."""
    found = {metric.name: metric for metric in CATALOGUE}
    rates = [metric for metric in CATALOGUE if metric.combines is Combination.RATE]
    assert rates
    for rate in rates:
        total = found[f"{rate.name.removesuffix('.per.hour').removesuffix('.rate')}.total"]
        assert (total.combines, total.by) == (Combination.SUM, rate.by)
        assert set(rate.clients) <= set(total.clients)
    others = {rate.name for rate in rates if not rate.name.endswith(".rate")}
    page = (Path(__file__).parents[3] / "docs" / "rollup-tables.md").read_text()
    assert others == {name for name in others if f"`{name.removeprefix(PREFIX)}`" in page}


def test_the_reference_names_every_metric() -> None:
    page = reference(CATALOGUE)
    assert [item.name for item in CATALOGUE if f"`{item.name.removeprefix(PREFIX)}`" not in page] == []
