"""Prometheus's own definitions can read the encoded requests."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest

from plugins.prometheus.messages import encode_request
from tests.unit.plugins._shared.cumulative.support import BEGIN, SECOND, counter, gauge, number
from tests.unit.plugins._shared.cumulative.test_histograms import exponential, histogram
from tests.unit.plugins.prometheus.decoding import decoded
from tests.unit.plugins.prometheus.support import LABELS, RESOURCE, push, table

BEGIN_MS = BEGIN // 1_000_000
VERSIONS = pytest.mark.parametrize("version", ["1.0", "2.0"])


def written(version: str, *metrics: Any, **settings: Any) -> list[Any]:
    series = table(version)
    made = series.add(push(*metrics, at=10, **settings))
    return decoded(encode_request(made.samples, version), version)  # type: ignore[arg-type]


@VERSIONS
def test_numbers(version: str) -> None:
    total = counter("c.total", number(5, since=4, at=10, labels={"topic": "a"}), unit="By")
    total.description = "What was sent."
    info, c, g = written(version, total, gauge("g", number(-1.5, at=10)))
    assert c[0] == {**LABELS, "__name__": "c_bytes_total", "topic": "a"}
    assert (c[1].value, c[1].timestamp) == (5, BEGIN_MS + 10_000)
    assert g[0] == {**LABELS, "__name__": "g"}
    assert (g[1].value, g[1].timestamp) == (-1.5, BEGIN_MS + 10_000)
    assert (info[0]["__name__"], info[1].value) == ("target_info", 1)
    if version == "2.0":
        assert c[1].start_timestamp == BEGIN_MS + 4_000
        assert g[1].start_timestamp == 0
        assert c[2] == (1, "What was sent.", "bytes")
        assert (g[2][0], info[2][0]) == (2, 6)


@VERSIONS
def test_the_name_is_sorted_among_the_labels(version: str) -> None:
    labels: dict[str, str | int] = {"Zone": "a", "_x": "b"}
    found = written(version, gauge("g", number(1, at=10, labels=labels)))
    assert list(found[-1][0])[:3] == ["Zone", "__name__", "_x"]


@VERSIONS
def test_many_series_have_their_own_labels(version: str) -> None:
    metrics = [gauge(f"g{n}", number(n, at=10, labels={"partition": n})) for n in range(1, 300)]
    found = {
        labels["__name__"]: (labels["partition"], sample.value)
        for labels, sample, _ in written(version, *metrics)[1:]
    }
    assert found == {f"g{n}": (str(n), n) for n in range(1, 300)}


@VERSIONS
def test_histograms(version: str) -> None:
    found = written(version, histogram([1, 0, 2], at=10, sum=20.0))[1:]
    assert [(labels["__name__"], labels.get("le"), sample.value) for labels, sample, _ in found] == [
        ("h_bucket", "1.0", 1),
        ("h_bucket", "5.0", 1),
        ("h_bucket", "+Inf", 3),
        ("h_sum", None, 20),
        ("h_count", None, 3),
    ]
    if version == "2.0":
        assert {metadata[0] for _, _, metadata in found} == {3}
        assert {sample.start_timestamp for _, sample, _ in found} == {BEGIN_MS}


@VERSIONS
def test_exponential_histograms_are_native(version: str) -> None:
    metric = exponential(1, -3, [4, 0, 1, 2], at=10, sum=9.0, zero_count=5)
    labels, found, _ = written(version, metric)[1]
    assert labels["__name__"] == "e"
    assert (found.count_int, found.sum, found.schema, found.zero_count_int) == (12, 9.0, 1, 5)
    assert found.zero_threshold == 1e-128
    # OpenTelemetry's bucket -3 is Prometheus's -2, because that uses the upper boundary.
    assert [(span.offset, span.length) for span in found.positive_spans] == [(-2, 1), (1, 2)]
    assert list(found.positive_deltas) == [4, -3, 1]
    assert list(found.negative_spans) == []
    assert found.timestamp == BEGIN_MS + 10_000
    assert found.start_timestamp == (BEGIN_MS if version == "2.0" else 0)


def test_finer_buckets_than_prometheus_has_become_coarser_and_wider_ones_are_left_out() -> None:
    (_, fine, _), *_ = written("2.0", exponential(20, 0, [1, 1], at=10))[1:]
    assert (fine.schema, [(span.offset, span.length) for span in fine.positive_spans]) == (8, [(1, 1)])
    series = table("2.0")
    made = series.add(push(exponential(-5, 0, [1], at=10), at=10))
    assert (len(made.samples), sum(made.reasons.values())) == (1, 1)


def test_an_unknown_sum_is_nan() -> None:
    assert math.isnan(written("2.0", exponential(0, 0, [1], at=10))[1][1].sum)


@VERSIONS
def test_a_series_ends_with_a_staleness_marker_after_its_last_sample(version: str) -> None:
    series = table(version)
    metrics = (gauge("g", number(1, at=10)), exponential(0, 0, [1], at=10))
    ends = series.add(push(*metrics, at=10, terminating=True, resource=RESOURCE)).ends
    found = decoded(encode_request(ends, version), version)  # type: ignore[arg-type]
    assert {labels["__name__"] for labels, *_ in found} == {"g", "e", "target_info"}
    for labels, sample, _ in found:
        value = sample.sum if labels["__name__"] == "e" else sample.value
        assert struct.pack("<d", value) == struct.pack("<Q", 0x7FF0000000000002)
        assert sample.timestamp == BEGIN // 1_000_000 + 10_001


def test_a_silent_series_ends_at_the_time_of_the_check() -> None:
    series = table("2.0")
    series.add(push(gauge("g", number(1, at=10)), at=10))
    ends = series.expire(BEGIN + 50 * SECOND)
    assert {sample.timestamp for _, sample, _ in decoded(encode_request(ends, "2.0"), "2.0")} == {
        BEGIN_MS + 50_000
    }
