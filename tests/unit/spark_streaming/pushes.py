"""Pushes to decode: captured from real clients, and random ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from spark_streaming.standard_metric import load
from tests.unit.spark_streaming.oracle import LABELS

RECEIVED_AT_NS: Final = 1_795_255_100_000_000_000
PAYLOADS: Final = tuple(
    path.read_bytes() for path in sorted((Path(__file__).parents[2] / "data" / "payloads").glob("*.bin"))
)

_NAMES: Final = (
    *(metric.name for metric in load() if len(metric.by) > 1 or metric.combines in ("none", "min")),
    "org.apache.kafka.producer.connection.creation.total",
    "org.apache.kafka.producer.node.request.latency.avg",
    "my.own.rate",
    "my.own.max",
    "my.own.min",
    "my.own",
    "rate",
    "kafka.client.telemetry.clients",
    "",
    "é\0" * 300,
)
_KEYS: Final = (
    *("topic", "node_id", "node.id", "node_role", "partition", "acks", "reason", "error", "", "other"),
)
_PARTITIONS: Final = (
    "0",
    "7",
    "99",
    "100",
    "007",
    "-1",
    "9999999999",
    "12345678901",
    "unassigned",
    "",
    "½",
    "٣",
)
_ACKS: Final = ("all", "leader", "none", "-1", "1", "2", "other")
#: Values of attributes whose values are bounded.
_VALUES: Final = {"partition": _PARTITIONS, "acks": _ACKS}
_TEXTS: Final = ("", "a", "b", "orders", 'ü\n"\\\x01\x7f\u2028😀', "\0", "x" * 511 + "é", "y" * 2000)
_DOUBLES: Final = (
    *(0.0, -0.0, 1.0, -1.0, 8.0, 0.1, 1e7, 1e-3, 123456789.5, -2.5e-8, 2.0**64, 1e-100, 1e-101, 5e-324),
    *(math.nan, math.inf, -math.inf, 1.7976931348623157e308, 2 ** (1 / 8), 2 ** (3 / 8), 2 ** (7 / 8)),
)
_COUNTS: Final = (0, 0, 1, 2, 7, 1000, (1 << 26) + 1)
#: Beyond the plan's bounds, some of them only together.
_ABSURD_DOUBLES: Final = (*_DOUBLES, 1.9e19, -1.9e19, 1e300, -1.7e308)
_ABSURD_COUNTS: Final = (*_COUNTS, (1 << 39) + 1, (1 << 40) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_TIMES: Final = (
    *(RECEIVED_AT_NS, RECEIVED_AT_NS, RECEIVED_AT_NS - 1, RECEIVED_AT_NS - 61_000_000_000),
    *(RECEIVED_AT_NS - 900_000_000, RECEIVED_AT_NS - 1_800_000_000),
    *(0, 1, RECEIVED_AT_NS + 300_000_000_000, RECEIVED_AT_NS + 300_000_000_001, (1 << 64) - 1),
)


def random_push(random: Random) -> bytes:
    """Make a MetricsData with points of all types and attributes of all kinds.

    Every tenth has numbers beyond the plan's bounds.
    """
    absurd = random.random() < 0.1
    push = MetricsData()
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        resource_metrics = push.resource_metrics.add()
        for label in random.sample(LABELS, random.randrange(len(LABELS))):
            pair = resource_metrics.resource.attributes.add(key=label)
            if random.random() < 0.8:
                pair.value.string_value = random.choice(_TEXTS)
            else:
                _any_value(random, pair.value)
        for _ in range(random.choice((1, 1, 2))):
            scope_metrics = resource_metrics.scope_metrics.add()
            if random.random() < 0.5:
                scope_metrics.scope.name = random.choice(_TEXTS)
            for _ in range(random.choice((0, 1, 3, 6))):
                _metric(random, scope_metrics.metrics.add(name=random.choice(_NAMES)), absurd=absurd)
    return push.SerializeToString()


def _metric(random: Random, metric: Metric, *, absurd: bool) -> None:
    doubles = _ABSURD_DOUBLES if absurd else _DOUBLES
    metric.unit = random.choice(("", "ms"))
    kind = random.choice(("gauge", "sum", "histogram", "exponential_histogram", "summary"))
    data: Any = getattr(metric, kind)
    data.SetInParent()
    if kind in ("sum", "histogram", "exponential_histogram"):
        data.aggregation_temporality = random.choice((1, 1, 2, 2, 0, 7))
    if kind == "sum":
        data.is_monotonic = random.random() < 0.7
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        point = data.data_points.add(
            time_unix_nano=random.choice(_TIMES), start_time_unix_nano=random.choice(_TIMES)
        )
        point.flags = random.choice((0, 0, 0, 1, 2))
        for key in random.choices(_KEYS, k=random.choice((0, 0, 1, 2, 3))):
            pair = point.attributes.add(key=key)
            if random.random() < 0.7:
                pair.value.string_value = random.choice(_VALUES.get(key, _TEXTS))
            elif random.random() < 0.9:
                _any_value(random, pair.value)
        if kind in ("gauge", "sum"):
            choice = random.random()
            if choice < 0.7:
                point.as_double = random.choice((random.choice(doubles), random.lognormvariate(0, 10)))
            elif choice < 0.9:
                point.as_int = random.choice((0, 1, -1, (1 << 63) - 1, -(1 << 63)))
        else:
            _many(random, kind, point, doubles, _ABSURD_COUNTS if absurd else _COUNTS)


def _many(random: Random, kind: str, point: Any, doubles: Sequence[float], counts: Sequence[int]) -> None:
    point.count = random.choice(counts)
    names = ("sum",) if kind == "summary" else ("sum", "min", "max")
    for name in names:
        if random.random() < 0.6:
            setattr(point, name, random.choice(doubles))
    if kind == "summary":
        for quantile in random.sample((0.0, -0.0, 0.5, 0.99, 1.0), random.randrange(5)):
            point.quantile_values.add(quantile=quantile, value=random.choice(doubles))
    elif kind == "histogram":
        size = random.randrange(5)
        bounds = random.choices(doubles, k=size)
        point.explicit_bounds.extend(bounds if random.random() < 0.2 else sorted({*range(size)}))
        point.bucket_counts.extend(random.choices(counts, k=size + random.choice((1, 1, 1, 0))))
    else:
        point.scale = random.choice((0, 1, 3, 4, 10, 20, -1, -10, -11, -(1 << 31), (1 << 31) - 1))
        point.zero_count = random.choice(counts)
        point.zero_threshold = random.choice((0.0, 0.0, 1e-3, math.nan, math.inf, -1.0))
        for side in (point.positive, point.negative):
            side.offset = random.choice((0, 1, -1, 7, -100, 5000, (1 << 31) - 1, -(1 << 31)))
            side.bucket_counts.extend(random.choices(counts, k=random.choice((0, 1, 3, 20))))


def _any_value(random: Random, value: AnyValue, depth: int = 0) -> None:
    choice = random.randrange(5 if depth > 3 else 7)
    if choice == 0:
        value.string_value = random.choice(_TEXTS)
    elif choice == 1:
        value.bool_value = random.random() < 0.5
    elif choice == 2:
        value.int_value = random.choice((0, -1, 1 << 62))
    elif choice == 3:
        # Java's text of the least number has a digit more than it needs.
        value.double_value = random.choice([double for double in _DOUBLES if double != 5e-324])
    elif choice == 4:
        value.bytes_value = random.randbytes(random.randrange(5))
    elif choice == 5:
        value.array_value.SetInParent()
        for _ in range(random.randrange(3)):
            _any_value(random, value.array_value.values.add(), depth + 1)
    else:
        value.kvlist_value.SetInParent()
        for _ in range(random.randrange(3)):
            pair = value.kvlist_value.values.add(key=random.choice(_TEXTS))
            if random.random() < 0.8:
                _any_value(random, pair.value, depth + 1)
