"""Flattens a push into data points: name, attributes and value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from plugins._shared.attribute_text import attribute_text

AttributeValue = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatPoint:
    """One data point."""

    name: str
    attributes: Mapping[str, AttributeValue]
    value: int | float | None
    """Its value; the sum of a histogram or summary. None if it has none."""
    count: int | None
    """Number of observations of a histogram or summary; None for other kinds."""


def flat_points(data: MetricsData) -> Iterator[FlatPoint]:
    """Yield the data points in the payload's order."""
    for resource_metrics in data.resource_metrics:
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                yield from _points(metric)


def _points(metric: Metric) -> Iterator[FlatPoint]:
    kind = metric.WhichOneof("data")
    if kind is None:
        return
    for point in getattr(metric, kind).data_points:
        count = None
        if kind in {"gauge", "sum"}:
            form = point.WhichOneof("value")
            value = None if form is None else getattr(point, form)
        else:
            # A histogram with negative observations may have no sum.
            value = point.sum if kind == "summary" or point.HasField("sum") else None
            count = point.count
        attributes = {attribute.key: _value(attribute.value) for attribute in point.attributes}
        yield FlatPoint(name=metric.name, attributes=attributes, value=value, count=count)


def _value(value: AnyValue) -> AttributeValue:
    form = value.WhichOneof("value")
    if form in {"string_value", "int_value", "double_value", "bool_value"}:
        scalar: AttributeValue = getattr(value, form)
        return scalar
    return attribute_text(value)
