"""Pushes of innocent clients, and a ledger of the expected totals."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA, MetricsData

from tests.fuzz.pipeline import collisions

CREATED: Final = "org.apache.kafka.producer.connection.creation.total"
ASSIGNED: Final = "org.apache.kafka.consumer.coordinator.assigned.partitions"
ORDERS: Final = collisions.METRIC.decode()
TOPIC: Final = collisions.TOPIC.decode()
LATENCY: Final = "latency"
BOUNDS: Final = (1.0, 5.0)
_BUCKETS: Final = len(BOUNDS) + 1
#: The series that an innocent client has, by metric and topic; no other may stand under its name.
SERIES: Final = frozenset({(CREATED, ""), (ASSIGNED, ""), (ORDERS, TOPIC), (LATENCY, "")})

_MARKS: Final = tuple(b"\x8fMark\xa7%c\x40" % number for number in range(10))
_TIME, _CREATED, _ORDERS, _COUNT, _SUM, *_COUNTS = range(5 + _BUCKETS)
_EIGHT: Final = struct.Struct("<Q")
_DOUBLE: Final = struct.Struct("<d")


@dataclass(slots=True)
class Ledger:
    """Values pushed by innocent clients, by client id.

    Attributes:
        pushes: Pushes, each counted once however often it came.
        sums: Sums by client id, metric and topic.
        counts: Values in a histogram's bucket, by client id and upper bound.
    """

    pushes: Counter[str] = field(default_factory=Counter)
    sums: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    counts: Counter[tuple[str, float]] = field(default_factory=Counter)

    def add(self, other: Ledger) -> None:
        """Add what another ledger has."""
        self.pushes.update(other.pushes)
        self.sums.update(other.sums)
        self.counts.update(other.counts)


class InnocentPushes:
    """Creates pushes and counts their values.

    Args:
        random: Every choice comes from it.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._template = _template()
        self._at = {
            index: [at for at in range(len(self._template)) if self._template.startswith(mark, at)]
            for index, mark in enumerate(_MARKS)
        }
        self.ledger = Ledger()

    def push(self, client_id: str, time_ns: int) -> bytes:
        """Make a push of this client and enter it in the ledger."""
        number = int(self._random.random() * (1 << 24))
        created, orders = 1 + (number & 7), 1 + (number >> 3 & 63)
        counts = (number >> 9 & 3, number >> 11 & 3, 1 + (number >> 13 & 3))
        total = sum(counts)
        data = bytearray(self._template)
        for at in self._at[_TIME]:
            _EIGHT.pack_into(data, at, time_ns)
        for index, value in ((_CREATED, created), (_ORDERS, orders), (_SUM, 3 * total)):
            _DOUBLE.pack_into(data, self._at[index][0], value)
        for index, count in zip((_COUNT, *_COUNTS), (total, *counts), strict=True):
            _EIGHT.pack_into(data, self._at[index][0], count)
        ledger = self.ledger
        ledger.pushes[client_id] += 1
        ledger.sums[client_id, CREATED, ""] += created
        ledger.sums[client_id, ORDERS, TOPIC] += orders
        ledger.sums[client_id, LATENCY, ""] += 3 * total
        for upper, count in zip((*BOUNDS, float("inf")), counts, strict=True):
            ledger.counts[client_id, upper] += count
        return bytes(data)


def _template() -> bytes:
    def marked(index: int) -> int:
        return int(_EIGHT.unpack(_MARKS[index])[0])

    def double(index: int) -> float:
        return float(_DOUBLE.unpack(_MARKS[index])[0])

    push = MetricsData()
    metrics = push.resource_metrics.add().scope_metrics.add().metrics
    for name, topic, index in ((CREATED, "", _CREATED), (ORDERS, TOPIC, _ORDERS)):
        total = metrics.add(name=name).sum
        total.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
        total.is_monotonic = True
        point = total.data_points.add(time_unix_nano=marked(_TIME), as_double=double(index))
        if topic:
            point.attributes.add(key="topic").value.string_value = topic
    metrics.add(name=ASSIGNED).gauge.data_points.add(time_unix_nano=marked(_TIME), as_double=3.0)
    histogram = metrics.add(name=LATENCY).histogram
    histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
    histogram.data_points.add(
        time_unix_nano=marked(_TIME),
        count=marked(_COUNT),
        sum=double(_SUM),
        explicit_bounds=BOUNDS,
        bucket_counts=[marked(index) for index in _COUNTS],
    )
    return push.SerializeToString()
