"""Builds the metrics that are read at each scrape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

PREFIX: Final = "kafka_telemetry_"

#: The value of a metric, or that of each series by its label, or by the tuple of its labels.
Values: TypeAlias = float | Mapping[Any, float]

_Family = TypeVar("_Family", GaugeMetricFamily, CounterMetricFamily)


def gauge(name: str, text: str, values: Values, *labels: str) -> GaugeMetricFamily:
    """Return a gauge of the receiver."""
    return _filled(GaugeMetricFamily(PREFIX + name, text, labels=labels), values)


def counter(name: str, text: str, values: Values, *labels: str) -> CounterMetricFamily:
    """Return a counter of the receiver."""
    return _filled(CounterMetricFamily(PREFIX + name, text, labels=labels), values)


def _filled(family: _Family, values: Values) -> _Family:
    for labels, value in values.items() if isinstance(values, Mapping) else [((), values)]:
        family.add_metric((labels,) if isinstance(labels, str) else labels, value)
    return family
