"""The topics that a push names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

#: The attribute that has a topic, in the metrics of all clients.
TOPIC: Final = "topic"


def topics(data: bytes) -> frozenset[str]:
    """Return the topics that the data points of a push's OTLP bytes name."""
    return frozenset(_topics(MetricsData.FromString(data)))


def is_named(topic: str, named: frozenset[str]) -> bool:
    """Return whether a topic is named; Java's consumer has `_` for `.` in its metrics."""
    return topic in named or topic.replace(".", "_") in named


def _topics(data: MetricsData) -> Iterator[str]:
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                if kind is None:
                    continue
                points: Any = getattr(metric, kind).data_points
                for point in points:
                    for attribute in point.attributes:
                        if attribute.key == TOPIC and attribute.value.string_value:
                            yield attribute.value.string_value
