"""The decoder compared with protobuf's parser: real, random and malformed pushes."""

from __future__ import annotations

import json
import os
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from secrets import token_bytes
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_streaming.catalogue import plan
from spark_streaming.postgres import IdKey
from spark_streaming.series_hashes import register_key
from tests.exploration import SEED
from tests.fuzz import protobuf
from tests.fuzz.mutation import Mutator
from tests.unit.spark_streaming import oracle
from tests.unit.spark_streaming.identities import KEY, part_hash
from tests.unit.spark_streaming.oracle import (
    LABELS,
    BeyondBoundsError,
    NoInstanceError,
    RolledUp,
    Row,
    data_points,
    roll_up,
)
from tests.unit.spark_streaming.pushes import PAYLOADS, RECEIVED_AT_NS, random_push

PLAN = plan(max_behind_s=3600, max_ahead_s=300)
FUNCTIONS = ("otlp_entries", "otlp_histograms", "otlp_series")


def decode(
    spark: SparkSession,
    pushes: Sequence[bytes | None],
    *,
    instance: str | None = "fallback",
    received_at_ns: int = RECEIVED_AT_NS,
    plan: str = PLAN,
) -> list[dict[str, Any]]:
    """Give each push to all four functions."""
    table = pa.table({"at": range(len(pushes)), "otlp": pa.array(pushes, pa.binary())})
    frame = spark.createDataFrame(table)
    register_key(spark, KEY)
    arguments = (f.col("otlp"), f.lit(instance), f.lit(received_at_ns), f.lit(plan), f.lit(KEY.key_id))
    decoded = frame.select(
        "at",
        *(f.call_function(name, *arguments).alias(name) for name in FUNCTIONS),
        f.call_function("otlp_data_points", "otlp").alias("otlp_data_points"),
    )
    rows: list[dict[str, Any]] = decoded.toArrow().to_pylist(maps_as_pydicts="strict")
    return sorted(rows, key=lambda row: row["at"])


class Series:
    """Return series by hash from ``otlp_series``, and check the hashes in Python."""

    def __init__(self) -> None:
        self._series: dict[tuple[int, int], oracle.Series] = {}

    def learn(self, row: Mapping[str, Any]) -> oracle.Series:
        fleet = oracle.Fleet(*(row[name] for name in oracle.Fleet._fields))
        series = oracle.Series(fleet, *(row[name] for name in oracle.Series._fields[1:]))
        assert series.hash == (row["series_high"], row["series_low"])
        assert self._series.setdefault(series.hash, series) == series
        return series

    def of(self, high: int, low: int) -> oracle.Series:
        return self._series[high, low]


def check(decoded: Iterable[dict[str, Any]], pushes: Sequence[bytes], **arguments: Any) -> Counter[str]:
    """Compare what the functions gave with the oracle, and count how that went."""
    outcomes: Counter[str] = Counter()
    known = Series()
    for row, otlp in zip(decoded, pushes, strict=True):
        rules = {known.learn(series): series["rule"] for series in row["otlp_series"]}
        assert len(rules) == len(row["otlp_series"]), "a series came twice"
        entries, raw = row["otlp_entries"], row["otlp_data_points"]
        try:
            expected = data_points(otlp)
        except DecodeError:
            assert " at byte " in entries["error"], otlp
            assert raw["error"] == entries["error"]
            assert [entries["entries"], row["otlp_histograms"], row["otlp_series"], raw["points"]] == [[]] * 4
            outcomes["refused"] += 1
            continue
        assert raw["error"] is None, (raw["error"], otlp)
        assert comparable(raw["points"]) == comparable(expected), otlp
        try:
            rolled_up = roll_up(
                otlp,
                arguments.get("instance", "fallback"),
                arguments.get("received_at_ns", RECEIVED_AT_NS),
                arguments.get("plan", PLAN),
            )
        except NoInstanceError:
            assert "client_instance_id" in entries["error"]
            assert [entries["entries"], row["otlp_histograms"], row["otlp_series"]] == [[]] * 3
            outcomes["of nobody"] += 1
            continue
        except BeyondBoundsError as beyond:
            bound = f"{beyond}, which is "
            assert bound in entries["error"]
            assert [entries["entries"], row["otlp_histograms"], row["otlp_series"]] == [[]] * 3
            outcomes["absurd"] += 1
            continue
        assert entries["error"] is None, (entries["error"], otlp)
        assert rules == rolled_up.rules, otlp
        check_rolled_up(row, rolled_up, known)
        outcomes["read"] += 1
    return outcomes


def check_rolled_up(row: Mapping[str, Any], expected: RolledUp, known: Series) -> None:
    rows = Counter(map(_row(known), row["otlp_histograms"]))
    assert rows == Counter(map(_rounded, expected.rows))
    assert len(row["otlp_entries"]["entries"]) == len(expected.entries)
    for entry, other in zip(row["otlp_entries"]["entries"], expected.entries, strict=True):
        assert {label: entry[label] for label in LABELS} == other.labels
        for name in ("minute", "time_ns", "points", "left_out", "histograms", "watched"):
            assert entry[name] == getattr(other, name), name
        assert entry["pushes"] == other.first
        for name in ("gauges", "added"):
            numbers = [
                (known.of(high, low), value, flags) for high, low, value, flags in unpack(entry[name], "qqd")
            ]
            assert numbers == getattr(other, name), name
        cumulative = [
            (known.of(*series), *identity, *rest)
            for *hashes, start, time, value, flags in unpack(entry["cumulative"], "qqqqqqd")
            for series, identity, rest in [(hashes[:2], hashes[2:], (start, time, value, flags))]
        ]
        assert cumulative == other.cumulative
        parts = list(_parts(entry["cumulative_histograms"], known))
        assert parts == [
            repr((*part[:5], *map(_shortened, part[5:]))) for part in other.cumulative_histograms
        ]


def _parts(packed: bytes, known: Series) -> Iterator[str]:
    """Yield the parts of cumulative histograms, and check their hashes in Python."""
    whole = (0, 0)
    for high, low, *identity, start, time, lower, upper, value, flags in unpack(packed, "qqqqqqqqd"):
        part = flags & 96
        if part == 32:
            whole = (identity[0], identity[1])
        else:
            assert tuple(identity) == part_hash(whole, part, lower, upper)
        bounds = struct.unpack("<dd", struct.pack("<qq", lower, upper))
        shortened = map(_shortened, (*bounds, value, flags))
        yield repr((known.of(high, low), *whole, start, time, *shortened))


def _shortened(number: float) -> float:
    return float(f"{number:.12g}")


def unpack(packed: bytes, columns: str) -> list[tuple[Any, ...]]:
    """Take columns of 8 bytes and one of flags apart."""
    size, rest = divmod(len(packed), 8 * len(columns) + 1)
    assert not rest
    parts = [struct.unpack_from(f"<{size}{code}", packed, 8 * size * at) for at, code in enumerate(columns)]
    return list(zip(*parts, packed[8 * size * len(columns) :], strict=True))


def _row(known: Series) -> Any:
    def row(given: Mapping[str, Any]) -> Row:
        series = known.of(given["series_high"], given["series_low"])
        assert given["breakdown"] == series.breakdown
        buckets = given["buckets"]
        return _rounded(
            Row(
                minute=given["minute"],
                series=series,
                points=given["points"],
                sum=given["sum"],
                min=given["min"],
                max=given["max"],
                buckets=None if buckets is None else tuple(tuple(bucket.values()) for bucket in buckets),
            )
        )

    return row


def _rounded(row: Row) -> Row:
    """Bounds that are powers may differ in the last bit between Java's and Python's."""
    if row.buckets is None:
        return row
    buckets = tuple((_shortened(low), _shortened(high), count) for low, high, count in row.buckets)
    return replace(row, buckets=buckets)


def comparable(points: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Leave out what is null, and let NaN equal NaN, and 0 not -0."""
    return [
        {name: repr(value) for name, value in sorted(point.items()) if value is not None} for point in points
    ]


def test_pushes_of_real_clients_are_decoded_as_by_protobuf(spark: SparkSession) -> None:
    with_labels = [payload + labels() for payload in PAYLOADS]
    outcomes = check(decode(spark, [*PAYLOADS, *with_labels]), [*PAYLOADS, *with_labels])
    assert outcomes == {"read": 2 * len(PAYLOADS)}


def labels() -> bytes:
    """A further ResourceMetrics, with labels and a metric."""
    push = MetricsData()
    resource_metrics = push.resource_metrics.add()
    for label in LABELS:
        resource_metrics.resource.attributes.add(key=label).value.string_value = f"a {label}"
    metric = resource_metrics.scope_metrics.add().metrics.add(name="a")
    metric.gauge.data_points.add(as_double=1)
    return push.SerializeToString()


@pytest.mark.full
def test_pushes_of_all_types_and_attributes_are_decoded_as_by_protobuf(spark: SparkSession) -> None:
    random = Random(1)
    pushes = [random_push(random) for _ in range(250)]
    outcomes = check(decode(spark, pushes), pushes)
    assert outcomes.total() == 250
    assert outcomes["read"] > 200
    assert outcomes["absurd"] > 10
    nobodys = check(decode(spark, pushes[:100], instance=None), pushes[:100], instance=None)
    assert nobodys["of nobody"] > 10
    assert nobodys["read"] > 10


@pytest.mark.full
def test_minutes_before_min_minute_are_ignored(spark: SparkSession) -> None:
    random = Random(2)
    pushes = [random_push(random) for _ in range(200)]
    late = plan(max_behind_s=3600, max_ahead_s=300, min_minute=RECEIVED_AT_NS // 60_000_000_000)
    outcomes = check(decode(spark, pushes, plan=late), pushes, plan=late)
    assert outcomes.total() == 200
    # A rebuild must refuse the same pushes, also where it leaves out the absurd point's minute.
    assert outcomes["absurd"] == check(decode(spark, pushes), pushes)["absurd"] > 10


@pytest.mark.explores
def test_broken_bytes_are_refused_or_decoded_as_by_protobuf(
    spark: SparkSession,
) -> None:
    random = Random(os.environ.get("DECODER_FUZZ_SEED") or SEED or "3")
    seeds = [payload for payload in PAYLOADS if len(payload) < 3000]
    seeds += [random_push(random) for _ in range(200)]
    tokens = (b"\x0a\x00", b"\x12\x00", b"\x3b\x3c", b"\x0b", b"\x0c", b"\xc3\xa9", b"\xed\xa0\x80", b"\xff")
    mutator = Mutator(random, tokens, 6000)
    outcomes: Counter[str] = Counter()
    for _ in range(int(os.environ.get("DECODER_FUZZ_INPUTS", "1200")) // 600):
        pushes = []
        for number in range(600):
            data = random.choice(seeds)
            if number % 2:
                for _ in range(random.choice((1, 2, 3))):
                    data = protobuf.reshape(data, random, tokens)
            else:
                data = mutator.mutate(data, random.choice(seeds))
            pushes.append(data)
        outcomes += check(decode(spark, pushes), pushes)
    assert outcomes["refused"] > 250
    assert outcomes["read"] > 250


def nested(depth: int, group: bool = False) -> bytes:
    """Build an attribute value nested in messages, or groups of an unknown field."""
    inner = b""
    for level in range(depth):
        if group:
            inner = b"\x7b" + inner + b"\x7c"
        else:
            tag = 0x0A if level % 2 else 0x2A
            inner = bytes([tag]) + protobuf.varint(len(inner)) + inner
    for tag in (0x12, 0x0A, 0x0A, 0x0A):  # value, attribute, resource, resource_metrics
        inner = bytes([tag]) + protobuf.varint(len(inner)) + inner
    return inner


def test_edge_cases_of_the_wire_format_are_decoded_as_by_protobuf(spark: SparkSession) -> None:
    number = b"\xff" * 9
    pushes = [
        b"",
        b"\x0a\x00",
        *(nested(depth, group) for depth in range(90, 102) for group in (False, True)),
        *(b"\x78" + number + bytes([last]) for last in (0, 1, 2, 0x7F, 0x80, 0xFF)),
        *(b"\x0a" + b"\x80" * size + b"\x00" for size in range(12)),
        *(b"\xfa" + b"\x80" * size + b"\x01\x00" for size in range(6)),
        *(b"\xfa\xff\xff\xff" + bytes([last]) + b"\x00" for last in (0, 0x0F, 0x10, 0x7F, 0x8F)),
        *(bytes([tag]) + bytes(9) for tag in range(256)),
        *(b"\x0a\x02\x1a" + bytes([size]) + b"aaa" for size in (0, 1, 3, 127)),
        *(b"\x0a" + bytes([len(text) + 2]) + b"\x1a" + bytes([len(text)]) + text for text in _TEXTS),
    ]
    outcomes = check(decode(spark, pushes), pushes)
    assert min(outcomes["refused"], outcomes["read"]) > 20


_TEXTS = (
    *(b"\xc3\xa9", b"\xc3", b"\xa9", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\x9f\xbf", b"\xed\xa0\x80"),
    *(
        b"\xf0\x9f\x98\x80",
        b"\xf0\x80\x80\x80",
        b"\xf4\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
    ),
    *(b"12345678\xff", b"1234567\xc3\xa9", b"\0"),
)


def test_parts_of_one_message_are_merged(spark: SparkSession) -> None:
    def push(client_id: str, value: float, **more: str) -> bytes:
        data = MetricsData()
        resource_metrics = data.resource_metrics.add()
        for key, text in {"client_id": client_id, **more}.items():
            resource_metrics.resource.attributes.add(key=key).value.string_value = text
        metric = resource_metrics.scope_metrics.add().metrics.add(name="m")
        metric.sum.data_points.add(as_double=value)
        metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
        return data.SerializeToString()

    # One ResourceMetrics of two parts, as the receiver appends its labels behind what the client
    # sent.
    parts = [push("one", 1, principal="p"), push("two", 2)]
    contents = b"".join(content for part in parts for _, content in protobuf.fields(part) or ())
    pushes = [b"\x0a" + protobuf.varint(len(contents)) + contents]
    [decoded] = decode(spark, pushes)
    check([decoded], pushes)
    assert {row["client_id"] for row in decoded["otlp_series"]} == {"two"}
    assert {row["principal"] for row in decoded["otlp_series"]} == {"p"}
    (entry,) = decoded["otlp_entries"]["entries"]
    assert [value for _, _, value, _ in unpack(entry["added"], "qqd")] == [1, 2, 1]  # with the push


def sums(*values: float, temporality: int = 1, monotonic: bool = True, **attributes: str) -> MetricsData:
    """A push with points of one sum, which began and ended together."""
    push = MetricsData()
    metric = push.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.sum.aggregation_temporality = temporality  # type: ignore[assignment]
    metric.sum.is_monotonic = monotonic
    for value in values:
        point = metric.sum.data_points.add(as_double=value, time_unix_nano=RECEIVED_AT_NS)
        for key, text in attributes.items():
            point.attributes.add(key=key).value.string_value = text
    return push


def test_a_point_that_a_push_has_twice_counts_once(spark: SparkSession) -> None:
    twice = sums(2, 2, 3, 2, other="a")
    # The same attributes in another order, in another metric of the name; and another value of one
    # that is no dimension.
    for key in ("other", "more"):
        twice.resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points[0].attributes.add(key=key)
    again = twice.resource_metrics[0].scope_metrics[0].metrics.add()
    again.CopyFrom(twice.resource_metrics[0].scope_metrics[0].metrics[0])
    again.sum.data_points[0].attributes.reverse()
    pushes = [push.SerializeToString() for push in (twice, sums(2, 2, temporality=2), sums(5, 6))]
    decoded = decode(spark, pushes)
    check(decoded, pushes)
    entries = [row["otlp_entries"]["entries"][0] for row in decoded]
    assert [(entry["points"], entry["left_out"]) for entry in entries] == [(8, 5), (2, 1), (2, 0)]
    assert sorted(value for _, _, value, _ in unpack(entries[0]["added"], "qqd")) == [1, 2, 2, 3]


def test_a_repeated_histogram_counts_once(spark: SparkSession) -> None:
    push = MetricsData()
    metric = push.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.histogram.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    for counts in ((1, 2), (1, 2), (2, 1)):
        metric.histogram.data_points.add(
            time_unix_nano=RECEIVED_AT_NS, count=3, explicit_bounds=[1.0], bucket_counts=counts
        )
    pushes = [push.SerializeToString()]
    decoded = decode(spark, pushes)
    check(decoded, pushes)
    assert [row["points"] for row in decoded[0]["otlp_histograms"]] == [3, 3]
    assert [row["sum"] for row in decoded[0]["otlp_histograms"]] == [None, None]


@pytest.mark.parametrize("temporality", [1, 2])
def test_a_sum_that_only_rises_is_not_below_0(spark: SparkSession, temporality: int) -> None:
    pushes = [
        sums(-3, 4, temporality=temporality).SerializeToString(),
        sums(-3, 4, temporality=temporality, monotonic=False).SerializeToString(),
    ]
    decoded = decode(spark, pushes)
    check(decoded, pushes)
    assert [row["otlp_entries"]["entries"][0]["left_out"] for row in decoded] == [1, 0]


def test_the_entries_of_a_client_in_a_push_are_bounded(spark: SparkSession) -> None:
    push = MetricsData()
    points = push.resource_metrics.add().scope_metrics.add().metrics.add(name="m").gauge.data_points
    for number in range(1000):
        points.add(time_unix_nano=RECEIVED_AT_NS - number * 2_000_000_000, as_double=1)
    pushes = [push.SerializeToString()]
    decoded = decode(spark, pushes, received_at_ns=RECEIVED_AT_NS + 7)
    check(decoded, pushes, received_at_ns=RECEIVED_AT_NS + 7)
    assert len(decoded[0]["otlp_entries"]["entries"]) == 128


def test_separately_stamped_metrics_are_one_entry_across_a_minute(
    spark: SparkSession,
) -> None:
    minute_ns = 60_000_000_000
    end = RECEIVED_AT_NS // minute_ns * minute_ns
    push = MetricsData()
    metrics = push.resource_metrics.add().scope_metrics.add().metrics
    for number in range(5):
        point = metrics.add(name=f"m{number}").gauge.data_points.add(as_double=number)
        point.time_unix_nano = end + (number - 2) * 1_000_000
    pushes = [push.SerializeToString()]
    decoded = decode(spark, pushes)
    check(decoded, pushes)
    [entry] = decoded[0]["otlp_entries"]["entries"]
    assert (entry["points"], entry["minute"]) == (5, end // minute_ns - 1)


def test_points_that_repeat_a_large_resource_are_refused(spark: SparkSession) -> None:
    push = MetricsData()
    resource_metrics = push.resource_metrics.add()
    resource_metrics.resource.attributes.add(key="k").value.string_value = "v" * 300_000
    points = resource_metrics.scope_metrics.add().metrics.add(name="m").gauge.data_points
    for _ in range(1000):
        points.add()
    [decoded] = decode(spark, [push.SerializeToString()])
    assert "bytes" in decoded["otlp_data_points"]["error"]
    assert decoded["otlp_data_points"]["points"] == []
    assert decoded["otlp_entries"]["error"] is None


def test_a_missing_payload_is_an_error_without_rows(spark: SparkSession) -> None:
    [decoded] = decode(spark, [None])
    assert decoded["otlp_entries"]["error"] == "the payload is missing"
    assert decoded["otlp_histograms"] == []


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (
            "otlp_histograms(X'', 'i', 1L, '{}', 'of the tests')",
            "invalid plan, .* unsupported version",
        ),
        ("otlp_histograms(X'', 'i', 1L, '{', 'of the tests')", "invalid plan"),
        ("otlp_histograms(X'', 'i', 1L, CAST(NULL AS STRING), 'of the tests')", "invalid plan"),
        ("otlp_histograms(X'', 'i', 1L, '{}', 'another')", "no id key is registered under another"),
        ("otlp_histograms(X'', 'i', 1L, '{}', concat('of', X'00'))", "takes the id of a registered IdKey"),
        ("otlp_histograms(X'')", "otlp_histograms takes 5 arguments, not 1"),
        ("otlp_data_points(array(1))", "BINARY"),
    ],
)
def test_a_wrong_call_is_rejected(spark: SparkSession, wrong: str, problem: str) -> None:
    register_key(spark, KEY)
    with pytest.raises(PySparkException, match=problem):
        spark.sql(f"SELECT {wrong}").collect()


def test_the_dimensions_of_a_series_are_asked_for_once(spark: SparkSession) -> None:
    """By its key, and not by a push that is refused."""

    def described(*pushes: bytes, key: IdKey) -> list[bool]:
        register_key(spark, key)
        table = pa.table({"at": range(len(pushes)), "otlp": pa.array(pushes, pa.binary())})
        entries = f.call_function(
            "otlp_entries",
            *(f.col("otlp"), f.lit("i"), f.lit(RECEIVED_AT_NS), f.lit(PLAN), f.lit(key.key_id)),
        )
        frame = spark.createDataFrame(table).coalesce(1).select(entries["describes"].alias("describes"))
        found: list[bool] = frame.toArrow()["describes"].to_pylist()
        return found

    def push(*values: float) -> bytes:
        data = MetricsData()
        metrics = data.resource_metrics.add().scope_metrics.add().metrics
        for number, value in enumerate(values):
            gauge = metrics.add(name=f"m{number}").gauge
            gauge.data_points.add(time_unix_nano=RECEIVED_AT_NS, as_double=value)
        return data.SerializeToString()

    first, second = (IdKey(key_id=str(uuid4()), secret=token_bytes(16)) for _ in range(2))
    # The second metric of the first push is beyond the bounds.
    assert described(push(1.0, 1e300), push(1.0), push(2.0), push(1.0, 2.0), push(3.0, 4.0), key=first) == [
        *(False, True, False, True, False)
    ]
    assert described(push(1.0), key=first) == [False]
    assert described(push(1.0), key=second) == [True]
    # More series than the table had at first.
    many = push(*range(10_000))
    assert described(many, push(*range(9_000)), many, push(*range(10_001)), key=second) == [
        *(True, False, False, True)
    ]


def test_metrics_have_their_rules(spark: SparkSession) -> None:
    """Also those that resemble metrics of the catalogue, and short ones."""
    known = list(json.loads(PLAN)["metrics"])
    names = [*known, *(f"{name[0]}x{name[2:]}" for name in known), "", "a", "of.nobody.total"]
    chance = Random(4)

    def push() -> bytes:
        data = MetricsData()
        metrics = data.resource_metrics.add().scope_metrics.add().metrics
        for name in chance.sample(names, len(names)):
            metrics.add(name=name).gauge.data_points.add(time_unix_nano=RECEIVED_AT_NS, as_double=1.0)
        return data.SerializeToString()

    pushes = [push() for _ in range(5)]
    assert check(decode(spark, pushes), pushes) == {"read": len(pushes)}
