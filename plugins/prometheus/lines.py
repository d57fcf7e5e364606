"""A data point as Prometheus's samples: one for a number, several for a histogram or a summary.

Owns which samples a point has and what labels each of them bears. Pure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from plugins._shared.cumulative import Kind
from plugins.prometheus.names import MetricName, labels_of
from plugins.prometheus.targets import MAX_LABEL_NAME, Labels
from plugins.prometheus.trust import client_label

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
#: Attributes of a data point; a scraper that limits labels refuses the whole scrape for one series.
_MAX_ATTRIBUTES: Final = 32
_NAN: Final = math.nan


class LabelSet:
    """Labels without a name, for all series that have the same.

    Attributes:
        pairs: The labels.
        text: As both text formats write them, with their braces, in UTF-8.
        encoded: As remote write 1.0 has them; empty until somebody needs them.
    """

    __slots__ = ("__weakref__", "encoded", "pairs", "text")

    def __init__(self, pairs: Labels) -> None:
        self.pairs = pairs
        self.text = ("{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs) + "}").encode()
        self.encoded = b""


#: One series of Prometheus: its name, its labels, and its metric with what that is described as.
Line = tuple[str, LabelSet, MetricName, str]


def series_labels(target: Labels, attributes: Sequence[bytes], reserved: frozenset[str]) -> Labels:
    """The labels of a series: its target's and its own.

    An attribute whose name is reserved gets a prefix, so it neither replaces nor becomes a label that the
    receiver or Prometheus sets.

    Args:
        target: The labels of its target.
        attributes: Its attributes, each an encoded ``KeyValue``.
        reserved: From :func:`~plugins.prometheus.trust.reserved_labels`.

    Raises:
        ValueError: There are too many attributes, or a name is too long.
        google.protobuf.message.DecodeError: An attribute cannot be read.
    """
    if len(attributes) > _MAX_ATTRIBUTES:
        raise ValueError(f"{len(attributes)} attributes: at most {_MAX_ATTRIBUTES} are allowed")
    labels = labels_of(map(KeyValue.FromString, attributes), lambda name: client_label(name, reserved))
    if any(len(name) > MAX_LABEL_NAME for name in labels):
        raise ValueError(f"a label's name is too long: at most {MAX_LABEL_NAME} characters are allowed")
    return tuple(sorted({**labels, **dict(target)}.items()))


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
