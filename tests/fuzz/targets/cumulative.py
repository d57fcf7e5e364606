"""Fuzzes the conversion of deltas to cumulative sums with mutated series of pushes.

An input is pushes: a byte with who pushes and whether it is the last time, one with the seconds
since the last push, two with the length (little-endian), and the MetricsData.

What comes out is compared with what comes out where each metric has a field that is new in each
push: so none is told by the shape that it had before, and each takes the long way.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, MetricsData

from plugins._shared.cumulative import Cumulative
from receiver.plugin import Push
from tests.fuzz import protobuf
from tests.fuzz.target import Target, require
from tests.unit.plugins._shared.cumulative.support import (
    BEGIN,
    CUMULATIVE,
    SECOND,
    counter,
    gauge,
    metrics_data,
    number,
    push,
)

_PAYLOADS = Path(__file__).parents[2] / "data" / "payloads"
_HEAD = struct.Struct("<BbH")
_MAX_BYTES = 8192
_MAX_PUSHES = 12
_MAX_SERIES = 24
_DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA

#: Fields of MetricsData, ResourceMetrics and ScopeMetrics, down to the metrics.
_DOWN_TO_METRICS = (b"\x0a", b"\x12", b"\x12")
_NEW_FIELD = 1000 << 3


def _run(data: bytes) -> None:
    short: Cumulative = Cumulative(max_series=_MAX_SERIES)
    long: Cumulative = Cumulative(max_series=_MAX_SERIES)
    alive: set[Any] = set()
    pushes = list(_pushes(data))
    comparable = True
    for count, item in enumerate(pushes):
        taken = short.accumulate(item)
        alive |= set(taken.points)
        alive -= set(taken.ended.series)
        require(all(series.alive for series in alive), "a series ended and nobody was told")
        require(len(alive) <= short.statistics.series <= _MAX_SERIES, "series are counted wrongly")
        after = MetricsData.FromString(taken.data)
        require(not _deltas(after), "a delta came out")
        require(_points(after) <= _points(MetricsData.FromString(item.payload.data)), "more points came out")
        odd = _with_a_new_field(item.payload.data, len(_DOWN_TO_METRICS), count)
        # From the first that isn't on, the two know different things.
        comparable = comparable and odd is not None
        if comparable and odd is not None:
            payload = replace(item.payload, data=odd)
            expected = MetricsData.FromString(long.accumulate(replace(item, payload=payload)).data)
            require(_known(after) == _known(expected), "a shape changes what is told")
            # The bytes kept for a series include its unknown fields.
            counted = replace(long.statistics, size=short.statistics.size)
            require(counted == short.statistics, "a shape changes what is counted")
    ended = short.expire(1 << 63).series
    require(alive <= set(ended), "a series did not end with all others")
    require(short.statistics.series == 0, f"{short.statistics.series} series live when all have ended")


def _pushes(data: bytes) -> Iterator[Push]:
    """The pushes of an input, those that a receiver lets through."""
    at, seconds = 0, 0
    for _ in range(_MAX_PUSHES):
        if at + _HEAD.size > len(data):
            return
        who, step, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        metrics = data[at : at + length]
        at += len(metrics)
        seconds += step
        try:
            MetricsData.FromString(metrics)
        except DecodeError:
            continue
        yield push(at=seconds, instance=f"instance-{who % 4}", terminating=who >= 0xF0, data=metrics)


def _with_a_new_field(data: bytes, depth: int, number: int) -> bytes | None:
    """Add an unknown field to each metric; None where that can't be told from what is there."""
    if not depth:
        return data + protobuf.varint(_NEW_FIELD) + protobuf.varint(number)
    parts = protobuf.fields(data)
    if parts is None:
        return None
    tag = _DOWN_TO_METRICS[-depth][0]
    changed = []
    for its, content in parts:
        if its == tag:
            inner = _with_a_new_field(content, depth - 1, number)
            if inner is None:
                return None
            content = inner
        changed.append((its, content))
    return protobuf.join(changed)


def _known(push: MetricsData) -> bytes:
    """Serialize a push without unknown fields and without metrics that have no points."""
    for resource_metrics in push.resource_metrics:
        for scope_metrics in resource_metrics.scope_metrics:
            for index in reversed(range(len(scope_metrics.metrics))):
                metric = scope_metrics.metrics[index]
                kind = metric.WhichOneof("data")
                if kind is not None and not getattr(metric, kind).data_points:
                    del scope_metrics.metrics[index]
    push.DiscardUnknownFields()
    return bytes(push.SerializeToString(deterministic=True))


def _data(push: MetricsData) -> Iterator[Any]:
    for resource_metrics in push.resource_metrics:
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                kind = metric.WhichOneof("data")
                if kind is not None:
                    yield getattr(metric, kind)


def _points(push: MetricsData) -> int:
    return sum(len(data.data_points) for data in _data(push))


def _deltas(push: MetricsData) -> bool:
    return any(getattr(data, "aggregation_temporality", None) == _DELTA for data in _data(push))


def _histogram(at: int) -> Metric:
    metric = Metric(name="h")
    metric.histogram.aggregation_temporality = _DELTA
    metric.histogram.data_points.add(
        start_time_unix_nano=BEGIN + at * SECOND,
        time_unix_nano=BEGIN + (at + 1) * SECOND,
        count=3,
        sum=4.5,
        bucket_counts=[1, 0, 2],
        explicit_bounds=[1.0, 5.0],
    )
    return metric


def _exponential(at: int) -> Metric:
    metric = Metric(name="e")
    metric.exponential_histogram.aggregation_temporality = _DELTA
    metric.exponential_histogram.data_points.add(
        start_time_unix_nano=BEGIN + at * SECOND,
        time_unix_nano=BEGIN + (at + 1) * SECOND,
        count=4,
        zero_count=1,
        scale=3,
        positive={"offset": -2, "bucket_counts": [1, 0, 2]},
        negative={"offset": 7, "bucket_counts": [1]},
    )
    return metric


def _input(*pushes: bytes, who: int = 0, step: int = 1) -> bytes:
    return b"".join(_HEAD.pack(who, step, len(item)) + item for item in pushes)


def _seeds() -> list[bytes]:
    seeds = []
    for client in ("java44-producer-star", "ck-consumer-star"):
        captured = [(_PAYLOADS / f"{client}-0{number}.bin").read_bytes() for number in (1, 2, 3)]
        # The same few metrics of each push.
        parts = [protobuf.fields(item) or [] for item in captured]
        seeds += [
            _input(*(protobuf.join(part[first : first + few]) for part in parts))
            for first, few in ((0, 4), (20, 4), (60, 1))
        ]
    made = [
        metrics_data(
            counter(
                "c", number(at, since=at, at=at + 1), number(0.5, since=at, at=at + 1, labels={"a": "b"})
            ),
            counter("u", number(-3, since=at, at=at + 1), monotonic=False),
            counter("t", number(7.5 + at, since=0, at=at + 1), temporality=CUMULATIVE),
            counter("o", {"as_int": 7 - at, "time_unix_nano": BEGIN + at * SECOND}, temporality=CUMULATIVE),
            counter("d", {"as_int": 7 - at, "time_unix_nano": BEGIN + at * SECOND}),
            gauge("g", number(1.5, at=at + 1)),
            _histogram(at),
            _exponential(at),
            resource={"r": 1},
        )
        for at in range(3)
    ]
    return [*seeds, _input(*made), _input(*made, step=60), _input(*made, who=0xF1)]


def _reshape(data: bytes, random: Random) -> bytes:
    """Change, repeat and leave out pushes; those that are repeated are mostly of later."""
    pushes: list[tuple[int, int, bytes]] = []
    at = 0
    while at + _HEAD.size <= len(data) and len(pushes) < _MAX_PUSHES:
        who, step, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        pushes.append((who, step, data[at : at + length]))
        at += length
    if not pushes:
        return random.choice(_SEEDS)
    for _ in range(1 + int(random.random() * 3)):
        chosen = int(random.random() * len(pushes))
        who, step, metrics = pushes[chosen]
        choice = random.random()
        if choice < 0.25:
            pushes[chosen] = who, step, _changed(metrics, _odd, random)[:0xFFFF]
        elif choice < 0.55:
            pushes[chosen] = who, step, protobuf.reshape(metrics, random, _TOKENS)[:0xFFFF]
        elif choice < 0.85:
            again = _changed(metrics, _later, random) if random.random() < 0.8 else metrics
            pushes.insert(chosen + 1, (who, step, again[:0xFFFF]))
        elif choice < 0.9 and len(pushes) > 1:
            del pushes[chosen]
        else:
            who = random.choice((0, 0, 1, 2, 0xF0))
            pushes[chosen] = who, random.choice((0, 1, 1, 10, 31, 127, -1, -128)), metrics
    return b"".join(_HEAD.pack(who, step, len(item)) + item for who, step, item in pushes)


def _changed(data: bytes, change: Callable[[Any, Random], None], random: Random) -> bytes:
    """Change the data of the metrics of a push."""
    try:
        push = MetricsData.FromString(data)
    except DecodeError:
        return data
    for metric in _data(push):
        change(metric, random)
    return bytes(push.SerializeToString())


def _later(data: Any, _random: Random) -> None:
    """Give each point times that are a second later."""
    for point in data.data_points:
        for field in ("start_time_unix_nano", "time_unix_nano"):
            setattr(point, field, min(getattr(point, field) + SECOND, _MAX_UINT64))


def _odd(data: Any, random: Random) -> None:
    """Give points numbers at the ends of what their fields hold, some with what has to fit them."""
    if hasattr(data, "aggregation_temporality") and random.random() < 0.1:
        data.aggregation_temporality = random.randrange(4)
    for point in data.data_points:
        fields = [field for field in _NUMBERS if hasattr(point, field)]
        field = random.choice(fields)
        setattr(point, field, random.choice(_NUMBERS[field]))
        for side in ("positive", "negative"):
            if hasattr(point, side) and random.random() < 0.3:
                buckets = getattr(point, side)
                buckets.offset = random.choice(_NUMBERS["scale"])
                buckets.bucket_counts[:] = _counts(random)
        if hasattr(point, "explicit_bounds") and random.random() < 0.3:
            counts = _counts(random)
            point.bucket_counts[:] = counts
            point.explicit_bounds[:] = _NUMBERS["sum"][: len(counts) - random.choice((0, 1, 1, 1))]


def _counts(random: Random) -> list[int]:
    counts = [random.choice((0, 1, 1 << 63, _MAX_UINT64)) for _ in range(random.randrange(1, 5))]
    return counts + [0] * random.choice((0, 0, 1, 158, 200)) + counts


_MAX_UINT64 = (1 << 64) - 1
_TIMES = (0, 1, BEGIN, BEGIN + SECOND, 1 << 63, _MAX_UINT64)
_DOUBLES = (0.0, -0.0, 0.1, -1.5, 5e-324, 1.7e308, math.inf, -math.inf, math.nan)
_NUMBERS: dict[str, tuple[float, ...]] = {
    "start_time_unix_nano": _TIMES,
    "time_unix_nano": _TIMES,
    "flags": (0, 1, 2, 3, (1 << 32) - 1),
    "as_int": (0, 1, -1, 1 << 62, (1 << 63) - 1, -(1 << 63)),
    "as_double": _DOUBLES,
    "sum": _DOUBLES,
    "min": _DOUBLES,
    "zero_threshold": _DOUBLES,
    "count": (0, 1, 1 << 63, _MAX_UINT64),
    "zero_count": (0, 1, 1 << 63, _MAX_UINT64),
    "scale": (0, 1, -1, 20, -11, (1 << 31) - 1, (1 << 31) - 2, -(1 << 31), -(1 << 31) + 1),
}
_TOKENS = (
    b"",
    b"\x0a\x00",
    b"\x12\x00",
    b"\xff" * 8,
    b"\xff" * 9 + b"\x01",
    b"\xff\xff\xff\xff\x0f",
    b"\xfe\xff\xff\xff\x0f",
    b"\x08\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f" * 2,
    b"\x01\x00" * 90,
    b"\x21\x00\x00\x00\x00\x00\x00\xf8\x7f",
    b"\x31" + b"\xff" * 7 + b"\x7f",
    b"\x21" + b"\xff" * 6 + b"\xef\x7f",
    b"\x40\x01",
    b"\x10\x01",
    b"\x10\x02",
    b"\x18\x01",
)
_SEEDS = _seeds()

TARGET = Target(
    name="cumulative",
    run=_run,
    seeds=_seeds,
    tokens=_TOKENS,
    reshape=_reshape,
    max_bytes=_MAX_BYTES,
    max_memory=32 << 20,
    brief=1_500,
)
