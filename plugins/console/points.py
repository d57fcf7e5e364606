"""Flattens a push into data points: name, attributes and value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

__all__ = ["FlatPoint", "flat_points"]

AttributeValue = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatPoint:
    """One data point.

    Attributes:
        name: The metric's name.
        attributes: The point's own attributes.
        value: Its value; the sum of a histogram or summary.
        count: Number of observations of a histogram or summary; None for other kinds.
    """

    name: str
    attributes: Mapping[str, AttributeValue]
    value: int | float
    count: int | None = None


def flat_points(data: MetricsData) -> Iterator[FlatPoint]:
    """Yield the data points in the payload's order."""
    for resource_metrics in data.resource_metrics:
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                yield from _points(metric)


def _points(metric: Metric) -> Iterator[FlatPoint]:
    kind = metric.WhichOneof("data")
    if kind == "gauge" or kind == "sum":
        for number in (metric.gauge if kind == "gauge" else metric.sum).data_points:
            value = number.as_int if number.WhichOneof("value") == "as_int" else number.as_double
            yield FlatPoint(name=metric.name, attributes=_attributes(number.attributes), value=value)
    elif kind is not None:
        for counted in getattr(metric, kind).data_points:
            yield FlatPoint(
                name=metric.name,
                attributes=_attributes(counted.attributes),
                value=counted.sum,
                count=counted.count,
            )


def _attributes(attributes: Iterable[KeyValue]) -> dict[str, AttributeValue]:
    return {attribute.key: _value(attribute.value) for attribute in attributes}


def _value(value: AnyValue) -> AttributeValue:
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value
        case "int_value":
            return value.int_value
        case "double_value":
            return value.double_value
        case "bool_value":
            return value.bool_value
        case _:
            return str(value).strip()
