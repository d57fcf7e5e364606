"""A hostile client can write only its own series, under names that clients may use."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from plugins._shared.cumulative import Kind
from plugins.prometheus.config import PrometheusConfig
from plugins.prometheus.messages import STALE, encode_request
from plugins.prometheus.names import metric_name
from plugins.prometheus.table import SeriesTable
from plugins.prometheus.trust import MetricNames, client_label
from receiver.catalogue import CATALOGUE, MetricKind
from tests.unit.plugins._shared.cumulative.support import BEGIN, CUMULATIVE, SECOND, counter, gauge, number
from tests.unit.plugins._shared.cumulative.test_histograms import exponential, histogram
from tests.unit.plugins.prometheus.decoding import decoded
from tests.unit.plugins.prometheus.support import LABELS, RESOURCE, push, scraped, table, text_of

KINDS = {MetricKind.GAUGE: Kind.GAUGE, MetricKind.SUM: Kind.COUNTER, MetricKind.HISTOGRAM: Kind.HISTOGRAM}
DEFAULT = MetricNames(("org.apache.kafka.",))
SENT = "org.apache.kafka.producer.record.send.total"
SENT_TOTAL = "org_apache_kafka_producer_record_send_total"


def default_table(**settings: Any) -> SeriesTable:
    return SeriesTable(PrometheusConfig.model_validate({"bind": "127.0.0.1:9464", **settings}))


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("up", Kind.GAUGE, "client_metric_up"),
        ("ALERTS", Kind.GAUGE, "client_metric_ALERTS"),
        ("scrape.duration.seconds", Kind.GAUGE, "client_metric_scrape_duration_seconds"),
        ("kafka_telemetry_ready", Kind.GAUGE, "client_metric_kafka_telemetry_ready"),
        ("target_info", Kind.GAUGE, "client_metric_target_info"),
        ("job:requests:rate5m", Kind.GAUGE, "client_metric_job_requests_rate5m"),
        ("org_apache_kafka_x", Kind.GAUGE, "client_metric_org_apache_kafka_x"),
        ("", Kind.GAUGE, "client_metric"),
        ("org.apache.kafka.x", Kind.GAUGE, "org_apache_kafka_x"),
        # A type other than the catalogue's, or the name of a standard metric's sample.
        (SENT, Kind.GAUGE, f"client_metric_{SENT_TOTAL}"),
        (
            "org.apache.kafka.client.request.rtt.bucket",
            Kind.GAUGE,
            "client_metric_org_apache_kafka_client_request_rtt_bucket",
        ),
    ],
)
def test_a_metric_name_that_is_not_allowed_gets_a_prefix(name: str, kind: Kind, expected: str) -> None:
    assert DEFAULT.of(name, "", kind).name == expected


@pytest.mark.parametrize(
    "name", ["up", "ALERTS_FOR_STATE", "scrape.x", "kafka.telemetry.ready", "a:b", "target"]
)
def test_a_reserved_metric_name_always_gets_a_prefix(name: str) -> None:
    assert MetricNames(("",)).of(name, "", Kind.GAUGE).name.startswith("client_metric_")


def test_every_standard_metric_keeps_its_name() -> None:
    for metric in CATALOGUE:
        if metric.clients == ("rollup",):
            continue
        for unit in (metric.unit or "", ""):
            expected = metric_name(metric.name, unit, KINDS[metric.kind])
            assert DEFAULT.of(metric.name, unit, KINDS[metric.kind]) == expected


@pytest.mark.parametrize("name", ["__name__", "__x", "exported_job", "job", "instance", "le", "quantile"])
def test_a_reserved_label_gets_a_prefix(name: str) -> None:
    assert client_label(name, frozenset({"job", "instance", "le", "quantile"})) == f"attribute_{name}"


def test_dotted_attributes_of_a_point_forge_no_label() -> None:
    keys = ("client.source.address", "security.protocol", "sasl.mechanism", "listener", "job", "group.id")
    forged: dict[str, str | int] = dict.fromkeys(keys, "forged")
    series = table()
    series.add(push(gauge("g", number(1, at=10, labels=forged)), at=10))
    ((labels, _),) = scraped(series)["g"].items()
    for name, value in labels:
        assert value != "forged" or name.startswith("attribute_"), name
        assert value == "forged" or LABELS[name] == value


@pytest.mark.parametrize("openmetrics", [True, False])
def test_no_client_changes_the_type_of_a_standard_metric(*, openmetrics: bool) -> None:
    series = default_table()
    evil = {**RESOURCE, "client_instance_id": "evil"}
    rivals = (gauge(SENT, number(1, at=10)), histogram([1, 2, 3], at=10), gauge(SENT_TOTAL, number(1, at=10)))
    rivals[1].name = "org.apache.kafka.producer.record.send"
    series.add(push(*rivals, at=10, instance="evil", resource=evil))
    series.add(push(counter(SENT, number(5, since=4, at=10)), at=10))
    text = text_of(series, openmetrics=openmetrics)
    shown = SENT_TOTAL.removesuffix("_total") if openmetrics else SENT_TOTAL
    assert f"# TYPE {shown} counter\n" in text
    found = scraped(series, openmetrics=openmetrics)
    (((labels, value),)) = found[SENT_TOTAL].items()
    assert (dict(labels)["instance"], value) == (LABELS["instance"], 5)


def test_special_characters_are_escaped() -> None:
    hostile = 'a"} 1\n# TYPE up gauge\nup{x="\\'
    metric = gauge("org.apache.kafka.x", number(1, at=10, labels={"k": hostile, 'k"}\n': "v"}), unit='s"\n')
    metric.description = hostile
    series = default_table()
    series.add(push(metric, at=10))
    for openmetrics in (True, False):
        text = text_of(series, openmetrics=openmetrics)
        assert all(line.startswith(("#", "target_info{", "org_apache_kafka_x")) for line in text.splitlines())
        values = [
            dict(labels)["k"] for labels in scraped(series, openmetrics=openmetrics)["org_apache_kafka_x_s"]
        ]
        assert values == [hostile]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_client_cannot_send_a_staleness_marker(version: str) -> None:
    (stale,) = struct.unpack("<d", STALE)
    metrics = [
        gauge("g", number(stale, at=10)),
        histogram([1, 0, 2], at=10, sum=stale),
        exponential(0, 0, [1, 2], at=10, sum=stale),
    ]
    summary = Metric(name="s")
    summary.summary.data_points.add(
        time_unix_nano=BEGIN + 10 * SECOND,
        count=1,
        sum=stale,
        quantile_values=[{"quantile": 0.5, "value": stale}],
    )
    written = table(version).add(push(*metrics, summary, at=10))
    assert len(written.samples) > 8
    assert all(STALE not in sample for _, sample in written.samples)


def broken_histogram(bounds: list[float], buckets: list[int]) -> Metric:
    metric = histogram([1, 1, 1], at=10)
    metric.histogram.aggregation_temporality = CUMULATIVE
    metric.histogram.data_points[0].explicit_bounds[:] = bounds
    metric.histogram.data_points[0].bucket_counts[:] = buckets
    return metric


@pytest.mark.parametrize(
    "metric",
    [
        broken_histogram([1.0], [1, 1, 1]),
        broken_histogram([1.0, 2.0, 3.0], [1]),
        broken_histogram([2.0, 1.0], [1, 1, 1]),
        broken_histogram([math.nan, 1.0], [1, 1, 1]),
        exponential(0, 0, [1 << 63], at=10),
        exponential(0, (1 << 31) - 1, [1], at=10),
    ],
)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_histogram_that_prometheus_would_refuse_is_left_out(metric: Metric, version: str) -> None:
    written = table(version).add(push(metric, gauge("good", number(1, at=10)), at=10))
    assert (sum(written.reasons.values()), [line[0] for line, _ in written.samples]) == (
        1,
        ["target_info", "good"],
    )


def test_sample_times_are_the_receivers() -> None:
    far = {"time_unix_nano": (1 << 63) - 1, "start_time_unix_nano": 1}
    series = table("2.0")
    written = series.add(push(counter("c", number(1, at=10) | far), at=10))
    ((labels, sample, _),) = [
        item
        for item in decoded(encode_request(written.samples, "2.0"), "2.0")
        if item[0]["__name__"] == "c_total"
    ]
    assert labels["job"] == "kafka_clients"
    assert (sample.timestamp, sample.start_timestamp) == (BEGIN // 1_000_000 + 10_000, 0)
    assert "c_created" not in text_of(series)


def test_only_metrics_that_are_not_utf_8_are_dropped() -> None:
    series = table("2.0")
    data = push(
        gauge("g", number(1, at=10, labels={"k": "\u00e9"})), gauge("good", number(1, at=10)), at=10
    ).payload.data.replace(b"\xc3\xa9", b"\xc3\x28")
    written = series.add(push(at=10, data=data))
    assert (sum(written.reasons.values()), [line[0] for line, _ in written.samples]) == (
        1,
        ["target_info", "good"],
    )


def test_label_counts_and_lengths_are_bounded() -> None:
    many: dict[str, str | int] = {f"k{n}": n for n in range(60)}
    long: dict[str, str | int] = {"k" * 300: 1}
    series = table()
    written = series.add(push(*(gauge("g", number(1, at=10, labels=item)) for item in (many, long)), at=10))
    assert sum(written.reasons.values()) == 2
