"""A data point as Prometheus's samples: one for a number, several for a histogram or a summary.

Owns which samples a point has and what labels each of them bears. Pure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from plugins.cumulative import Kind
from plugins.prometheus.names import MetricName, labels_of
from plugins.prometheus.targets import Labels

__all__ = [
    "ONE_SAMPLE",
    "LabelSet",
    "Layout",
    "Line",
    "layout_of",
    "lines_of",
    "number",
    "series_labels",
    "values_of",
]

#: What tells the samples of a point apart, beside its labels: a suffix of the name, a further label.
Layout = tuple[tuple[str, str, str], ...]

#: The layout of everything but histograms and summaries.
ONE_SAMPLE: Final[Layout] = (("", "", ""),)
_OF_SAMPLES: Final = frozenset({"le", "quantile"})
_NAN: Final = math.nan


class LabelSet:
    """Labels without a name, for all series that have the same.

    Attributes:
        pairs: The labels.
        text: As both text formats write them, with their braces.
        encoded: As remote write 1.0 has them; empty until somebody needs them.
    """

    __slots__ = ("__weakref__", "encoded", "pairs", "text")

    def __init__(self, pairs: Labels) -> None:
        self.pairs = pairs
        self.text = "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs) + "}"
        self.encoded = b""


#: One series of Prometheus: its name, its labels, and its metric with what that is described as.
Line = tuple[str, LabelSet, MetricName, str]


def series_labels(target: Labels, attributes: Sequence[bytes]) -> Labels:
    """The labels of a series: its target's and its own.

    The target's win: one of a point's own with the same name becomes ``exported_...``, as one that collides
    does when Prometheus scrapes. So does one with the name of a label that tells samples of a point apart.

    Args:
        target: The labels of its target.
        attributes: Its attributes, each an encoded ``KeyValue``.
    """
    labels = dict(target)
    for name, value in labels_of(map(KeyValue.FromString, attributes)).items():
        while name in labels or name in _OF_SAMPLES:
            name = f"exported_{name}"
        labels[name] = value
    return tuple(sorted(labels.items()))


def layout_of(kind: Kind, point: Any) -> Layout:
    """What samples a data point has.

    Source: OpenTelemetry, "Prometheus and OpenMetrics Compatibility", "Histograms" and "Summaries".
    """
    if kind is Kind.HISTOGRAM:
        bounds = tuple(point.explicit_bounds) if point.bucket_counts else ()
        buckets = (("_bucket", "le", _boundary(bound)) for bound in (*bounds, math.inf))
        # A sum that negative observations make smaller is no counter.
        sums = (
            (("_sum", "", ""),) if point.HasField("sum") and all(bound >= 0 for bound in bounds[:1]) else ()
        )
        return (*buckets, *sums, ("_count", "", ""))
    if kind is Kind.SUMMARY:
        quantiles = (("", "quantile", _boundary(one.quantile)) for one in point.quantile_values)
        return (*quantiles, ("_sum", "", ""), ("_count", "", ""))
    return ONE_SAMPLE


def lines_of(name: MetricName, description: str, labels: LabelSet, layout: Layout) -> tuple[Line, ...]:
    """The series of Prometheus that a layout needs."""
    return tuple(
        (
            name.name + suffix,
            LabelSet(tuple(sorted((*labels.pairs, (label, value))))) if label else labels,
            name,
            description,
        )
        for suffix, label, value in layout
    )


def values_of(kind: Kind, point: Any, layout: Layout) -> tuple[float, ...]:
    """The values of a histogram's or a summary's samples, in the layout's order."""
    if kind is Kind.HISTOGRAM:
        # The last bucket holds all: what the client calls the count may be another number.
        buckets = [float(count) for count in itertools.accumulate(point.bucket_counts or (point.count,))]
        sums = (number(point.sum),) if any(suffix == "_sum" for suffix, _, _ in layout) else ()
        return (*buckets, *sums, buckets[-1])
    return (*(number(one.value) for one in point.quantile_values), number(point.sum), float(point.count))


def number(value: float) -> float:
    """A value as Prometheus may have it: a client's NaN must not pass for the marker of a series' end."""
    return float(value) if value == value else _NAN


def _boundary(value: float) -> str:
    return "+Inf" if value == math.inf else repr(float(value))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
