"""Translates names of metrics, units and attributes to Prometheus.

It follows OpenTelemetry's "Prometheus and OpenMetrics Compatibility" ("OTLP Metric points to
Prometheus") the way Prometheus's own OTLP endpoint does, so that a metric has the same name on
either path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from string import digits
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from plugins._shared.attribute_text import attribute_text
from plugins._shared.cumulative import Kind

_UNITS: Final = {
    "d": "days",
    "h": "hours",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "By": "bytes",
    "KiBy": "kibibytes",
    "MiBy": "mebibytes",
    "GiBy": "gibibytes",
    "TiBy": "tibibytes",
    "KBy": "kilobytes",
    "MBy": "megabytes",
    "GBy": "gigabytes",
    "TBy": "terabytes",
    "m": "meters",
    "V": "volts",
    "A": "amperes",
    "J": "joules",
    "W": "watts",
    "g": "grams",
    "Cel": "celsius",
    "Hz": "hertz",
    "1": "",
    "%": "percent",
}
_PER: Final = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month", "y": "year"}

_NOT_IN_METRICS: Final = re.compile(r"[^a-zA-Z0-9:]+")
_NOT_IN_LABELS: Final = re.compile(r"[^a-zA-Z0-9]+")
#: No ``__`` anywhere, because Prometheus reserves names that begin with it.
_LABEL_NAME: Final = re.compile(r"(?!__)[a-zA-Z_]([a-zA-Z0-9]|_(?!_))*")


class MetricType(Enum):
    """A metric's type in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"
    INFO = "info"


_TYPES: Final = {
    Kind.GAUGE: MetricType.GAUGE,
    Kind.COUNTER: MetricType.COUNTER,
    # A sum that may shrink has no rate, so it is a gauge.
    Kind.UP_DOWN: MetricType.GAUGE,
    Kind.HISTOGRAM: MetricType.HISTOGRAM,
    Kind.EXPONENTIAL: MetricType.HISTOGRAM,
    Kind.SUMMARY: MetricType.SUMMARY,
}


_FAMILY_SUFFIX: Final = {MetricType.COUNTER: "_total", MetricType.INFO: "_info"}
_PARTS: Final = {
    MetricType.HISTOGRAM: ("_bucket", "_count", "_sum"),
    MetricType.SUMMARY: ("_count", "_sum"),
}
_COUNTING: Final = frozenset({MetricType.COUNTER, MetricType.HISTOGRAM, MetricType.SUMMARY})


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricName:
    """Name, type and unit of a metric in Prometheus."""

    name: str
    """The name with all suffixes except those of histogram and summary parts."""
    type: MetricType
    unit: str = field(compare=False)
    """The unit in words; empty if it has none. Not compared, because some clients omit it."""

    @property
    def family(self) -> str:
        """The name in OpenMetrics, where a counter's suffix belongs to its sample."""
        return self.name.removesuffix(_FAMILY_SUFFIX.get(self.type, ""))

    @property
    def samples(self) -> tuple[str, ...]:
        """The names of its samples."""
        return (self.name, *(self.name + part for part in _PARTS.get(self.type, ())))

    @property
    def openmetrics(self) -> tuple[str, ...]:
        """The names of its samples, family and start time in OpenMetrics."""
        family = self.family
        created = (f"{family}_created",) if self.type in _COUNTING else ()
        return (*self.samples, *created, *((family,) if family != self.name else ()))


def metric_name(name: str, unit: str, kind: Kind) -> MetricName:
    """Name a metric.

    Characters that Prometheus does not allow become ``_``; repeated ``_`` become one. The unit in
    words is appended unless the name has that word. ``_total`` of a counter and ``_ratio`` of a
    gauge of unit 1 come last, and are moved there if the name has them already.
    """
    words = [word for word in _NOT_IN_METRICS.split(name) if word]
    unit_words = _unit_words(unit)
    words += [word for word in unit_words if word not in words]
    in_words = "_".join(unit_words)
    if kind is Kind.COUNTER:
        # OpenMetrics needs a name before the suffix.
        words = [word for word in words if word != "total"] or ["total"]
        words.append("total")
    if unit.strip() == "1" and kind is Kind.GAUGE:
        words = [word for word in words if word != "ratio"] + ["ratio"]
        in_words = "ratio"
    joined = "_".join(words) or "_"
    return MetricName(name=f"_{joined}" if joined[0] in digits else joined, type=_TYPES[kind], unit=in_words)


def _unit_words(unit: str) -> list[str]:
    """Return a unit in words, such as bytes and per_second, without {annotations}."""
    main, _, per = (part.strip() for part in unit.partition("/"))
    words = []
    if main and not re.search("[{}]", main):
        words.append(_clean(_UNITS.get(main, main)))
    if per and not re.search("[{}]", per) and (word := _clean(_PER.get(per, per))):
        words.append(f"per_{word}")
    return [word for word in words if word]


def _clean(unit: str) -> str:
    return "_".join(word for word in _NOT_IN_METRICS.split(unit) if word)


def label_name(key: str) -> str:
    """Replace invalid characters by ``_``; prefix a leading digit with ``key_``."""
    if _LABEL_NAME.fullmatch(key):
        return key
    name = re.sub("_+", "_", _NOT_IN_LABELS.sub("_", key)) or "_"
    return f"key_{name}" if name[0] in digits else name


def labels_of(attributes: Iterable[KeyValue], rename: Callable[[str], str]) -> dict[str, str]:
    """Return the labels of attributes.

    Values of attributes with the same label name are joined by ``;`` in the order of their keys.
    Empty values are left out. ``rename`` changes the names that Prometheus would give them.
    """
    labels: dict[str, str] = {}
    for attribute in sorted(attributes, key=lambda attribute: attribute.key):
        name, value = rename(label_name(attribute.key)), attribute_text(attribute.value)
        if value:
            labels[name] = f"{labels[name]};{value}" if name in labels else value
    return labels
