"""Splits a data point into Prometheus samples and labels each of them.

A number has one sample; a histogram or a summary has several.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from prometheus_client.utils import floatToGoString

from plugins._shared.cumulative import Kind
from plugins.prometheus.names import MetricName, labels_of
from plugins.prometheus.targets import MAX_LABEL_NAME, Labels
from plugins.prometheus.trust import client_label

#: For each sample of a point: the suffix of its name, and the name and value of an additional
#: label.
Layout = tuple[tuple[str, str, str], ...]

#: The layout of a number.
ONE_SAMPLE: Final[Layout] = (("", "", ""),)
#: Bound on the attributes of a point, because a scraper with a label limit refuses the whole
#: scrape.
_MAX_ATTRIBUTES: Final = 32
_NAN: Final = math.nan


class LabelSet:
    """Labels without ``__name__``, shared by the series that have them.

    Attributes:
        text: The labels in both text formats, with braces, in UTF-8.
        encoded: The labels in remote write 1.0; empty until the first use.
    """

    __slots__ = ("__weakref__", "encoded", "pairs", "text")

    def __init__(self, pairs: Labels) -> None:
        self.pairs = pairs
        self.text = ("{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs) + "}").encode()
        self.encoded = b""


#: A Prometheus series: its name, labels, metric and description.
Line = tuple[str, LabelSet, MetricName, str]


def series_labels(target: Labels, attributes: Sequence[bytes], reserved: frozenset[str]) -> Labels:
    """Return the labels of a series: its target's and its own.

    A reserved attribute name gets a prefix, so it neither replaces nor becomes a label of the
    receiver or of Prometheus. Each attribute is an encoded ``KeyValue``.

    Raises:
        ValueError: There are too many attributes, or a name is too long.
        google.protobuf.message.DecodeError: An attribute is malformed.
    """
    if len(attributes) > _MAX_ATTRIBUTES:
        raise ValueError(f"{len(attributes)} attributes: at most {_MAX_ATTRIBUTES} are allowed")
    labels = labels_of(map(KeyValue.FromString, attributes), lambda name: client_label(name, reserved))
    if any(len(name) > MAX_LABEL_NAME for name in labels):
        raise ValueError(f"a label's name is too long: at most {MAX_LABEL_NAME} characters are allowed")
    return tuple(sorted({**labels, **dict(target)}.items()))


def layout_of(kind: Kind, point: Any) -> Layout:
    """Return the samples of a data point.

    Source: OpenTelemetry, "Prometheus and OpenMetrics Compatibility", "Histograms" and "Summaries".
    """
    if kind is Kind.HISTOGRAM:
        bounds = tuple(point.explicit_bounds) if point.bucket_counts else ()
        buckets = (("_bucket", "le", _boundary(bound)) for bound in (*bounds, math.inf))
        # With negative observations the sum may shrink, so it is no counter.
        has_sum = point.HasField("sum") and point.sum >= 0 and all(bound >= 0 for bound in bounds[:1])
        return (*buckets, *_parts(has_sum=has_sum))
    if kind is Kind.SUMMARY:
        quantiles = (("", "quantile", _boundary(value.quantile)) for value in point.quantile_values)
        return (*quantiles, *_parts(has_sum=point.sum >= 0))
    return ONE_SAMPLE


def _parts(*, has_sum: bool) -> Layout:
    """Return the layout of the sum and of the count.

    The sum may be neither negative nor NaN.
    """
    return ((("_sum", "", ""),) if has_sum else ()) + (("_count", "", ""),)


def lines_of(name: MetricName, description: str, labels: LabelSet, layout: Layout) -> tuple[Line, ...]:
    """Return the Prometheus series of a layout."""
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
    """Return the sample values of a histogram or a summary, in the layout's order."""
    sums = (float(point.sum),) if any(suffix == "_sum" for suffix, _, _ in layout) else ()
    if kind is Kind.HISTOGRAM:
        # The count is the last bucket, because the client's own count may differ.
        buckets = [float(count) for count in itertools.accumulate(point.bucket_counts or (point.count,))]
        return (*buckets, *sums, buckets[-1])
    return (*(number(value.value) for value in point.quantile_values), *sums, float(point.count))


def number(value: float) -> float:
    """Normalise NaN, because a client's NaN could be Prometheus's staleness marker."""
    return float(value) if value == value else _NAN


def _boundary(value: float) -> str:
    # Adding 0 turns -0 into 0, because they are one boundary.
    text: str = floatToGoString(value + 0.0)  # type: ignore[no-untyped-call]
    return text


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
