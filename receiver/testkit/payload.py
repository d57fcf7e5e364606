"""Reads the metrics of a push into data points (KIP-714, OTLP v1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.telemetry.compression import inflate
from receiver.telemetry.otlp import label_metrics
from receiver.telemetry.otlp_views import DATA_KINDS

#: The most bytes that a push may inflate to.
MAX_INFLATED: Final = 8 << 20

#: The most nested messages in a push; Java clients send some thousand.
MAX_ENTRIES: Final = 100_000

#: The aggregation temporalities of OTLP.
DELTA: Final = 1
CUMULATIVE: Final = 2

#: The values of an attribute that are compared: text, a number or a truth value.
Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One data point with what its metric says of it."""

    name: str
    kind: str
    """``gauge``, ``sum``, ``histogram``, ``exponential_histogram`` or ``summary``."""
    temporality: int = 0
    """0 none, 1 delta, 2 cumulative."""
    monotonic: bool = False
    """Whether a sum is monotonic."""
    attributes: tuple[tuple[str, Value], ...] = ()
    """The point's attributes, sorted by key."""
    value: float | None = None
    """The value; None for a histogram, a summary and a point without value."""
    start_ns: int = 0
    """The start time in nanoseconds since the epoch; 0 if there is none."""
    time_ns: int = 0
    """The time in nanoseconds since the epoch; 0 if there is none."""

    @property
    def series(self) -> tuple[str, tuple[tuple[str, Value], ...]]:
        """What tells the point's series apart from others of the client."""
        return self.name, self.attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The metrics of one push."""

    points: tuple[Point, ...]
    """The data points, in order."""
    resource: tuple[tuple[str, Value], ...] = ()
    """The attributes of the Resources, each once."""
    resources: int = 1
    inflated: int = 0
    """The bytes of the metrics without compression."""

    @property
    def names(self) -> set[str]:
        """The names of the metrics."""
        return {point.name for point in self.points}


def read_payload(codec: int, data: bytes | memoryview) -> Payload:
    """Inflate and parse the metrics of a push, which are not empty.

    Raises:
        PushError: They can't be inflated, are no OTLP MetricsData, or are over a bound.
    """
    inflated = inflate(codec, data, MAX_INFLATED)
    if not inflated:  # a compressed MetricsData without metrics, as Java clients send it
        return Payload(points=(), resources=0)
    label_metrics(inflated, b"", max_entries=MAX_ENTRIES)  # raises before anything large is parsed
    parsed = MetricsData.FromString(inflated)
    resource: dict[tuple[str, Value], None] = {}
    points: list[Point] = []
    for of_resource in parsed.resource_metrics:
        resource.update(dict.fromkeys(_attributes(of_resource.resource.attributes)))
        for scope in of_resource.scope_metrics:
            for metric in scope.metrics:
                points.extend(_points(metric))
    return Payload(
        points=tuple(points),
        resource=tuple(resource),
        resources=len(parsed.resource_metrics),
        inflated=len(inflated),
    )


def _points(metric: Any) -> Iterator[Point]:
    kind = metric.WhichOneof("data")
    if kind not in DATA_KINDS:
        return
    data = getattr(metric, kind)
    for point in data.data_points:
        which = point.WhichOneof("value") if kind in {"gauge", "sum"} else None
        yield Point(
            name=metric.name,
            kind=kind,
            temporality=getattr(data, "aggregation_temporality", 0),
            monotonic=getattr(data, "is_monotonic", False),
            attributes=tuple(sorted(_attributes(point.attributes), key=lambda pair: pair[0])),
            value=None if which is None else float(getattr(point, which)),
            start_ns=point.start_time_unix_nano,
            time_ns=point.time_unix_nano,
        )


def _attributes(attributes: Iterable[Any]) -> tuple[tuple[str, Value], ...]:
    return tuple((pair.key, _value(pair.value)) for pair in attributes)


def _value(value: Any) -> Value:
    kind = value.WhichOneof("value")
    if kind in {"string_value", "int_value", "double_value", "bool_value"}:
        plain: Value = getattr(value, kind)
        return plain
    return None if kind is None else str(getattr(value, kind))
