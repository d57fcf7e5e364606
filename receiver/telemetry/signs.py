"""Signs: what a client's latest push says to be wrong.

They need no history, so they are there with the first push; the roll-up's findings compare with
what was normal. Pure: it decodes a push and compares a few standard metrics with a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from operator import gt, lt
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, MetricsData

_PREFIX: Final = "org.apache.kafka."


class SignKind(StrEnum):
    """What is wrong. The first is the most urgent."""

    FAILING_RECORDS = "failing_records"
    THROTTLED = "throttled"
    SLOW_REQUESTS = "slow_requests"
    SLOW_PROCESSING = "slow_processing"
    REBALANCING = "rebalancing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When a push has a sign."""

    metrics: tuple[str, ...]
    """The names of the metrics, without ``org.apache.kafka.``."""
    passes: Callable[[float, float], bool]
    """Compares a value with ``bound``; the value that is furthest beyond it counts."""
    bound: float
    """The bound, in the metric's unit."""
    meaning: str
    advice: str


RULES: Final[dict[SignKind, Rule]] = {
    SignKind.FAILING_RECORDS: Rule(
        metrics=("producer.record.error.rate", "producer.record.error.total"),
        passes=gt,
        bound=0.0,
        meaning="Records that it sends fail for good.",
        advice="Its log names the error: often a record that is too large, a missing right, or a timeout.",
    ),
    SignKind.THROTTLED: Rule(
        metrics=(
            "producer.produce.throttle.time.max",
            "consumer.fetch.manager.fetch.throttle.time.max",
            "consumer.share.fetch.manager.fetch.throttle.time.max",
        ),
        passes=gt,
        bound=0.0,
        meaning="The broker throttles it, because it is over a quota.",
        advice="Raise its quota (kafka-configs.sh --alter --add-config producer_byte_rate=... or "
        "consumer_byte_rate=...), or send less.",
    ),
    SignKind.SLOW_REQUESTS: Rule(
        metrics=("producer.request.latency.avg",),
        passes=gt,
        bound=1000.0,
        meaning="Its requests take more than a second on average.",
        advice="Compare with other clients of the same broker: if they are fast, look at its network.",
    ),
    SignKind.SLOW_PROCESSING: Rule(
        metrics=("consumer.poll.idle.ratio.avg", "consumer.share.poll.idle.ratio.avg"),
        passes=lt,
        bound=0.05,
        meaning="It spends nearly all time with records that it has, and hardly waits for new ones.",
        advice="Make its processing faster, or add members to its group, before it misses "
        "max.poll.interval.ms.",
    ),
    SignKind.REBALANCING: Rule(
        metrics=("consumer.coordinator.rebalance.rate.per.hour",),
        passes=gt,
        # Java counts the rebalances of the last hour.
        bound=10.0,
        meaning="Its group has rebalanced more than ten times within an hour.",
        advice="Find the member that comes and goes: it restarts, or misses max.poll.interval.ms or "
        "session.timeout.ms.",
    ),
}

_BY_NAME: Final = {f"{_PREFIX}{name}": (kind, rule) for kind, rule in RULES.items() for name in rule.metrics}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A sign of a push: its kind, and the value that shows it."""

    kind: SignKind
    metric: str
    value: float


def signs(data: bytes) -> tuple[Sign, ...]:
    """Return the signs of a push's OTLP bytes, the most urgent first, each kind once."""
    found: dict[SignKind, Sign] = {}
    for metric in _metrics(MetricsData.FromString(data)):
        known = _BY_NAME.get(metric.name)
        if known is None:
            continue
        kind, rule = known
        for value in _values(metric):
            seen = found.get(kind)
            beyond = rule.bound if seen is None else seen.value
            if rule.passes(value, rule.bound) and rule.passes(value, beyond):
                found[kind] = Sign(kind=kind, metric=metric.name, value=value)
    if SignKind.THROTTLED in found:
        # The wait for the quota is part of the latency.
        found.pop(SignKind.SLOW_REQUESTS, None)
    return tuple(found[kind] for kind in SignKind if kind in found)


def _metrics(data: MetricsData) -> Iterator[Metric]:
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            yield from scope.metrics


def _values(metric: Metric) -> Iterable[float]:
    """Return the values of a gauge or a delta.

    A cumulative sum says nothing of now.
    """
    kind = metric.WhichOneof("data")
    points: Any
    if kind == "gauge":
        points = metric.gauge.data_points
    elif (
        kind == "sum"
        and metric.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    ):
        points = metric.sum.data_points
    else:
        return
    for point in points:
        yield float(point.as_int if point.WhichOneof("value") == "as_int" else point.as_double)
