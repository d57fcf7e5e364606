"""Pushes become series: their labels, values, start times and end times."""

from __future__ import annotations

import math
import re

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from plugins._shared.cumulative import Kind
from receiver.catalogue import CATALOGUE
from tests.unit.plugins._shared.cumulative.support import BEGIN, CUMULATIVE, SECOND, counter, gauge, number
from tests.unit.plugins._shared.cumulative.test_histograms import exponential, histogram
from tests.unit.plugins.prometheus.support import LABELS, RESOURCE, own, push, scraped, table, text_of

NS = BEGIN // SECOND


def only(values: dict[tuple[tuple[str, str], ...], float]) -> tuple[dict[str, str], float]:
    ((labels, value),) = values.items()
    return dict(labels), value


def test_a_number_has_the_labels_of_its_client_and_its_own() -> None:
    series = table()
    series.add(push(gauge("latency.avg", number(1.5, at=10, labels={"node.id": 1}), unit="ms"), at=10))
    labels, value = only(scraped(series)["latency_avg_milliseconds"])
    assert labels == {**LABELS, "node_id": "1"}
    assert value == 1.5


def test_a_counter_adds_up_and_has_a_start() -> None:
    series = table()
    for at, since in ((10, 4), (20, 10)):
        series.add(push(counter("sent.total", number(5, since=since, at=at + 1000), unit="By"), at=at))
    found = scraped(series)
    assert only(found["sent_bytes_total"]) == (LABELS, 10)
    # As long before the receive time as the client's start is before its point.
    assert only(found["sent_bytes_created"]) == (LABELS, NS + 10 - 1006)
    assert "sent_bytes_created" not in scraped(series, openmetrics=False)


def test_a_reset_counter_starts_after_its_last_sample() -> None:
    series = table()
    metric = counter("c", number(10, since=0, at=10), temporality=CUMULATIVE)
    series.add(push(metric, at=10))
    series.add(push(counter("c", number(3, since=9.5, at=20), temporality=CUMULATIVE), at=20))
    found = scraped(series)
    assert only(found["c_total"])[1] == 3
    assert only(found["c_created"])[1] == NS + 10


def test_an_unknown_start_is_left_out() -> None:
    series = table()
    series.add(push(counter("c", number(5, at=10) | {"start_time_unix_nano": 0}), at=10))
    assert "c_created" not in scraped(series)


def test_target_info_is_written_once_with_the_other_attributes() -> None:
    series = table()
    series.add(push(gauge("a", number(1, at=10)), gauge("b", number(1, at=10)), at=10))
    labels, value = only(scraped(series)["target_info"])
    assert value == 1
    assert labels["group_member_id"] == "m-1"
    assert labels["client_source_port"] == "40000"


def test_a_client_that_reconnects_keeps_its_series() -> None:
    series = table("2.0")
    series.add(push(counter("c", number(5, at=10)), at=10))
    moved = {**RESOURCE, "client_source_port": "50000"}
    ends = series.add(push(counter("c", number(1, since=10, at=20)), at=20, resource=moved)).ends
    found = scraped(series)
    assert only(found["c_total"])[1] == 6
    assert only(found["target_info"])[0]["client_source_port"] == "50000"
    assert [line[0] for line, *_ in ends] == ["target_info"]


def test_a_client_with_other_labels_starts_new_series() -> None:
    series = table("2.0")
    series.add(push(counter("c", number(5, at=10)), at=10))
    joined = {**RESOURCE, "group_id": "g"}
    ends = series.add(push(counter("c", number(1, since=10, at=20)), at=20, resource=joined)).ends
    labels, value = only(scraped(series)["c_total"])
    assert (labels["group_id"], value) == ("g", 1)
    assert sorted(line[0] for line, *_ in ends) == ["c_total", "target_info"]


def test_a_histogram_is_buckets_a_sum_and_a_count() -> None:
    series = table()
    for at in (10, 20):
        series.add(push(histogram([1, 0, 2], at=at, sum=20.0), at=at))
    found = scraped(series)
    buckets = {dict(labels)["le"]: value for labels, value in found["h_bucket"].items()}
    assert buckets == {"1.0": 2, "5.0": 2, "+Inf": 6}
    assert (only(found["h_sum"]), only(found["h_count"])) == ((LABELS, 40.0), (LABELS, 6))
    assert only(found["h_created"])[1] == NS


@pytest.mark.parametrize("bounds", [[1.0, 1.0], [5.0, math.inf]])
def test_a_histogram_with_a_boundary_twice_is_left_out(bounds: list[float]) -> None:
    metric = histogram([1, 1, 1], at=10)
    metric.histogram.data_points[0].explicit_bounds[:] = bounds
    series = table("2.0")
    written = series.add(push(metric, gauge("g", number(1, at=10)), at=10))
    assert (sum(written.reasons.values()), len(written.samples)) == (1, 2)
    assert set(scraped(series)) == {"g", "target_info"}


def test_a_histogram_of_negative_values_has_no_sum() -> None:
    series = table()
    series.add(push(histogram([1, 0, 2], at=10, sum=-20.0, bounds=(-1.0, 5.0)), at=10))
    assert "h_sum" not in scraped(series)


def test_a_histogram_with_other_boundaries_ends_its_old_buckets() -> None:
    series = table("2.0")
    series.add(push(histogram([1, 0, 2], at=10), at=10))
    ends = series.add(push(histogram([1, 0, 2], at=20, bounds=(1.0, 6.0)), at=20)).ends
    assert {dict(labels)["le"] for labels in scraped(series)["h_bucket"]} == {"1.0", "6.0", "+Inf"}
    assert [dict(line[1].pairs)["le"] for line, *_ in ends] == ["5.0"]


def test_a_summary_is_quantiles_a_sum_and_a_count() -> None:
    metric = Metric(name="s")
    metric.summary.data_points.add(
        time_unix_nano=BEGIN + 10 * SECOND,
        count=4,
        sum=10.0,
        quantile_values=[{"quantile": 0.5, "value": 2.0}, {"quantile": 1.0, "value": 4.0}],
    )
    series = table()
    series.add(push(metric, at=10))
    found = scraped(series)
    assert {dict(labels)["quantile"]: value for labels, value in found["s"].items()} == {
        "0.5": 2.0,
        "1.0": 4.0,
    }
    assert (only(found["s_sum"])[1], only(found["s_count"])[1]) == (10.0, 4)


def test_text_has_no_exponential_histograms() -> None:
    series = table("2.0")
    written = series.add(push(exponential(0, 0, [1, 2], at=10), at=10))
    assert "e" not in scraped(series)
    assert [line[0] for line, *_ in written.samples] == ["target_info", "e"]


def test_an_own_label_with_a_reserved_name_gets_a_prefix() -> None:
    series = table()
    labels: dict[str, str | int] = {
        "principal": "User:mallory",
        "job": "x",
        "exported_job": "y",
        "client.id": "z",
    }
    series.add(push(gauge("g", number(1, at=10, labels=labels)), at=10))
    written, _ = only(scraped(series)["g"])
    assert own(written) == {
        "attribute_principal": "User:mallory",
        "attribute_exported_job": "y",
        "attribute_job": "x",
        "attribute_client_id": "z",
    }


def test_a_bucket_keeps_its_boundary() -> None:
    metric = histogram([1, 0, 2], at=10)
    metric.histogram.data_points[0].attributes.add(key="le").value.string_value = "forged"
    series = table()
    series.add(push(metric, at=10))
    assert {dict(labels)["le"] for labels in scraped(series)["h_bucket"]} == {"1.0", "5.0", "+Inf"}


X, X_TOTAL, H = ("x", Kind.COUNTER), ("x.total", Kind.GAUGE), ("h", Kind.HISTOGRAM)
H_COUNT, H_BUCKET = ("h.count", Kind.GAUGE), ("h.bucket", Kind.GAUGE)


def metric(name: str, kind: Kind, value: int, at: int = 10) -> Metric:
    """Return a metric of a kind with one point."""
    match kind:
        case Kind.HISTOGRAM:
            return histogram([value, 0, 0], at=at)
        case Kind.SUMMARY:
            made = Metric(name=name)
            made.summary.data_points.add(count=value, time_unix_nano=BEGIN + at * SECOND)
            return made
        case Kind.COUNTER:
            return counter(name, number(value, at=at))
        case _:
            return gauge(name, number(value, at=at))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (X, X_TOTAL),
        (H, H_COUNT),
        (H, H_BUCKET),
        (H, ("h", Kind.GAUGE)),
        (("h", Kind.SUMMARY), ("h", Kind.GAUGE)),
        (("h", Kind.SUMMARY), H),
        (("x.y", Kind.GAUGE), ("x_y", Kind.GAUGE)),
    ],
)
def test_the_first_of_two_series_with_the_same_name_and_labels_is_shown(
    first: tuple[str, Kind], second: tuple[str, Kind]
) -> None:
    series = table("2.0")
    written = series.add(push(metric(*first, 1), metric(*second, 2), at=10))
    assert sum(written.reasons.values()) == 1
    (reason,) = written.reasons
    assert "name and labels taken" in reason
    before = scraped(series)
    again = series.add(push(metric(*second, 3, at=20), at=20))
    assert (sum(again.reasons.values()), [line[0] for line, _ in again.samples]) == (1, ["target_info"])
    assert scraped(series) == before


@pytest.mark.parametrize("openmetrics", [True, False])
@pytest.mark.parametrize(
    ("first", "second", "sample"),
    [
        (("x", Kind.GAUGE), X, "x_total"),
        (X, ("x", Kind.GAUGE), "x"),
        (X_TOTAL, X, "x_total"),
        (X, X_TOTAL, "x_total"),
        (("x.created", Kind.GAUGE), X, "x_total"),
        (H_COUNT, H, "h_count"),
        (H_BUCKET, H, "h_bucket"),
        (H, H_COUNT, "h_count"),
        (("h", Kind.GAUGE), H, "h_count"),
        (("h", Kind.SUMMARY), H, "h_count"),
        (("target", Kind.GAUGE), X, "target_info"),
    ],
)
def test_a_client_cannot_hide_a_metric_of_another_by_its_name(
    first: tuple[str, Kind], second: tuple[str, Kind], sample: str, *, openmetrics: bool
) -> None:
    series = table("2.0")
    other = {**RESOURCE, "client_instance_id": "b"}
    series.add(push(metric(*first, 1), at=10, instance="b", resource=other))
    written = series.add(push(metric(*second, 2), at=10))
    assert written.reasons == {}
    assert sample in {line[0] for line, _ in written.samples}
    found = scraped(series, openmetrics=openmetrics)
    assert any(dict(labels)["instance"] == LABELS["instance"] for labels in found[sample])
    assert sum(len(values) for values in found.values()) >= 4


def test_a_name_that_two_types_use_is_untyped() -> None:
    series = table()
    other = {**RESOURCE, "client_instance_id": "b"}
    series.add(push(gauge("x", number(1, at=10)), at=10, instance="b", resource=other))
    series.add(push(counter("x", number(2, since=5, at=10)), at=10))
    # In the text format the two have different names.
    text = text_of(series, openmetrics=False)
    assert "# TYPE x gauge\n" in text
    assert "# TYPE x_total counter\n" in text
    openmetrics = text_of(series, openmetrics=True)
    assert "# TYPE x unknown\n" in openmetrics
    assert "# TYPE x_total unknown\n" in openmetrics
    assert "x_created" not in openmetrics
    series.add(push(at=11, instance="b", terminating=True))
    series.expire(BEGIN + 100 * SECOND)
    series.add(push(counter("x", number(2, since=5, at=111)), at=111))
    assert "# TYPE x counter\n" in text_of(series, openmetrics=True)


def test_le_and_quantile_of_a_client_get_a_prefix() -> None:
    series = table()
    labels: dict[str, str | int] = {"le": "1.0", "quantile": "0.5"}
    series.add(push(gauge("h.bucket", number(1, at=10, labels=labels)), histogram([1, 0, 0], at=10), at=10))
    assert {"attribute_le": "1.0", "attribute_quantile": "0.5"} in [
        own(dict(labels)) for labels in scraped(series)["h_bucket"]
    ]


def test_clients_with_and_without_a_unit_share_a_metric() -> None:
    series = table()
    other = {**RESOURCE, "client_instance_id": "b"}
    series.add(push(gauge("sent.bytes", number(1, at=10), unit="By"), at=10))
    written = series.add(push(gauge("sent.bytes", number(2, at=10)), at=10, instance="b", resource=other))
    assert written.reasons == {}
    assert sorted(scraped(series)["sent_bytes"].values()) == [1, 2]


def test_a_name_is_free_after_its_series_ended() -> None:
    series = table(linger_s=0)
    series.add(push(counter("x", number(1, at=10)), at=10, terminating=True))
    series.add(push(gauge("x", number(7, at=20)), at=20, instance="b"))
    assert only(scraped(series)["x"])[1] == 7


def test_a_lingering_series_yields_its_name_to_another_type() -> None:
    series = table(linger_s=60)
    series.add(push(gauge("x.total", number(1, at=10)), at=10, terminating=True))
    assert series.add(push(counter("x", number(7, at=12)), at=12)).reasons == {}
    assert only(scraped(series)["x_total"])[1] == 7


def test_names_without_series_take_no_memory() -> None:
    series = table(linger_s=0)
    for at in (10, 11):
        pair = gauge("x.total", number(1, at=at)), counter("x", number(7, at=at))
        series.add(push(*pair, at=at, terminating=True))
    assert [family.name.name for family in series.families()] == ["target_info"]
    assert series._named == {}


def test_a_clients_nan_does_not_end_a_series() -> None:
    series = table("1.0")
    stale_nan = float.fromhex("nan")
    written = series.add(push(gauge("g", number(stale_nan, at=10)), at=10))
    assert math.isnan(only(scraped(series)["g"])[1])
    assert written.samples[1][1][3:11] == b"\x00\x00\x00\x00\x00\x00\xf8\x7f"


def test_the_reasons_of_dropped_points_are_reported() -> None:
    series = table(max_series=1)
    series.add(push(counter("c", number(1, since=0, at=10)), at=10))
    written = series.add(push(counter("c", number(1, since=0, at=10)), gauge("g", number(1, at=10)), at=20))
    assert sum(written.reasons.values()) == 2
    assert written.reasons == {
        "not after the last of the series": 1,
        "invalid, too large, or no room (max_series, max_bytes)": 1,
    }
    other = series.add(push(gauge("g", number(1, at=60)), at=60, instance="b", principal="User:bob"))
    assert (other.reasons, other.evicted) == ({}, 0)
    taken = table(max_series=2)
    taken.add(push(*(gauge(f"g{n}", number(1, at=10)) for n in range(2)), at=10))
    evicting = taken.add(push(gauge("g", number(1, at=11)), at=11, instance="b", principal="User:bob"))
    assert (evicting.reasons, evicting.evicted) == ({}, 1)


def test_silent_series_end() -> None:
    series = table("2.0")
    series.add(push(gauge("g", number(1, at=10)), at=10))
    series.expire(BEGIN + 40 * SECOND)
    assert "g" in scraped(series)
    ends = series.expire(BEGIN + 42 * SECOND)
    assert scraped(series) == {}
    assert sorted(line[0] for line, *_ in ends) == ["g", "target_info"]


def test_the_series_of_a_client_whose_connection_ended_end() -> None:
    series = table("2.0")
    series.add(push(counter("c", number(5, at=10)), at=10))
    series.add(push(counter("c", number(5, at=10)), at=10, instance="b", resource={}))
    ended = series.add(push(at=12, sequence=0))
    assert sorted(line[0] for line, *_ in ended.ends) == ["c_total", "target_info"]
    # One that is not known begins nothing.
    assert series.add(push(at=12, sequence=0, instance="c")).ends == []


def test_the_last_push_of_a_client_can_be_scraped_for_a_while() -> None:
    series = table("2.0", linger_s=15)
    series.add(push(counter("c", number(5, at=10)), at=10))
    last = series.add(push(counter("c", number(2, since=10, at=12)), at=12, terminating=True))
    assert len(last.ends) == 2
    assert only(scraped(series)["c_total"])[1] == 7
    series.expire(BEGIN + 26 * SECOND)
    assert "c_total" in scraped(series)
    series.expire(BEGIN + 28 * SECOND)
    assert scraped(series) == {}


def test_a_client_that_returns_replaces_its_lingering_series() -> None:
    series = table(linger_s=15)
    series.add(push(counter("c", number(5, at=10)), at=10, terminating=True))
    series.add(push(counter("c", number(2, since=11, at=12)), at=12))
    series.expire(BEGIN + 30 * SECOND)
    assert only(scraped(series)["c_total"])[1] == 2


def test_lingering_series_count_in_the_budget() -> None:
    series = table(max_series=3)
    for n in range(10):
        points = [number(1, at=10 + n, labels={"n": n * 10 + item}) for item in range(2)]
        series.add(push(gauge("g", *points), at=10 + n, instance=str(n), terminating=True))
    shown = {dict(labels)["n"] for labels in scraped(series)["g"]}
    assert {"90", "91"} <= shown
    assert sum(len(family.members) for family in series.families()) <= 3


def test_without_scrapes_nothing_lingers_and_without_remote_write_nothing_is_written() -> None:
    written = table("2.0", bind=False)
    written.add(push(counter("c", number(5, at=10)), at=10, terminating=True))
    assert [family.members for family in written.families()] == [{}]
    shown = table()
    last = shown.add(push(counter("c", number(5, at=10)), at=10, terminating=True))
    assert (last.samples, last.ends) == ([], [])


def time_of(sample: bytes) -> int:
    """Return the varint after the value."""
    return sum((byte & 127) << 7 * n for n, byte in enumerate(sample[12:18]))


def test_the_times_of_a_targets_samples_increase() -> None:
    series = table("1.0")
    times = []
    for n, at in enumerate((10, 10, 9, 11)):
        one = push(gauge("g", number(n, at=100 + n)), at=at, sequence=n + 1, push_id=str(n))
        times += [time_of(sample) for (name, *_), sample in series.add(one).samples if name == "g"]
    begin = BEGIN // 1_000_000
    assert times == [begin + 10_000, begin + 10_001, begin + 10_002, begin + 11_000]


def test_an_invalid_quantile_is_left_out_and_counted() -> None:
    series = table()
    metric = Metric(name="s")
    point = metric.summary.data_points.add(time_unix_nano=BEGIN, count=3, sum=4)
    for quantile, value in ((0.5, 1.0), (math.nan, 2.0), (1.5, 3.0), (0.9, -1.0), (0.99, math.nan)):
        point.quantile_values.add(quantile=quantile, value=value)
    assert sum(series.add(push(metric, at=10)).reasons.values()) == 3
    found = scraped(series)["s"]
    assert [own(dict(labels))["quantile"] for labels in found] == ["0.5", "0.99"]


def test_a_point_without_a_value_is_no_sample() -> None:
    series = table()
    metric = Metric(name="g")
    metric.gauge.data_points.add(time_unix_nano=BEGIN)
    assert sum(series.add(push(metric, at=10)).reasons.values()) == 1
    assert "g" not in scraped(series)


def test_a_histogram_without_a_sum_has_none() -> None:
    series = table()
    series.add(push(histogram([1, 1, 1], at=10), at=10))
    assert scraped(series).keys() == {"target_info", "h_bucket", "h_created"}
    assert scraped(series, openmetrics=False).keys() == {"target_info", "h_bucket", "h_count"}


@pytest.mark.parametrize("openmetrics", [True, False])
def test_every_metric_has_a_help_text(openmetrics: bool) -> None:
    """A standard metric has the catalogue's, whatever a client says of it."""
    series = table()
    standard = gauge("org.apache.kafka.producer.record.queue.time.avg", number(1, at=10))
    standard.description = "not that"
    own_metric, silent = gauge("a", number(1, at=10)), gauge("b", number(1, at=10))
    own_metric.description = "What the client says."
    series.add(push(standard, own_metric, silent, at=10))
    known = CATALOGUE.metric(standard.name)
    assert known is not None
    texts = dict(re.findall(r"^# HELP (\S+) (.*)$", text_of(series, openmetrics=openmetrics), re.MULTILINE))
    assert list(texts.values()) == [
        "Attributes of the client that are not labels of its other series.",
        known.description,
        "What the client says.",
        "A metric that its clients do not describe.",
    ]
