"""What metrics, units and attributes are called in Prometheus.

Owns the rules of OpenTelemetry's "Prometheus and OpenMetrics Compatibility" ("OTLP Metric points to
Prometheus") as Prometheus's own OTLP endpoint applies them, so that a metric has the same name whichever way
it came. Pure.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from plugins._shared.cumulative import Kind

__all__ = ["MetricName", "MetricType", "label_name", "label_value", "labels_of", "metric_name"]

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
#: No ``__`` anywhere: Prometheus keeps names that begin with it for itself.
_LABEL_NAME: Final = re.compile(r"(?!__)[a-zA-Z_]([a-zA-Z0-9]|_(?!_))*")


class MetricType(Enum):
    """What Prometheus calls a metric's type."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"
    INFO = "info"


_TYPES: Final = {
    Kind.GAUGE: MetricType.GAUGE,
    Kind.COUNTER: MetricType.COUNTER,
    # A sum that may shrink has no rate.
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
    """A metric as Prometheus knows it.

    Attributes:
        name: Its name, with all suffixes but those of a histogram's and a summary's parts.
        type: Its type.
        unit: Its unit in words, empty where it has none. Some clients tell it and some don't, of one metric.
    """

    name: str
    type: MetricType
    unit: str = field(compare=False)

    @property
    def family(self) -> str:
        """Its name in OpenMetrics, where a counter's suffix is its sample's."""
        suffix = _FAMILY_SUFFIX.get(self.type, "")
        return self.name.removesuffix(suffix)

    @property
    def samples(self) -> tuple[str, ...]:
        """Its name and those of its parts: what its samples are called."""
        return (self.name, *(self.name + part for part in _PARTS.get(self.type, ())))

    @property
    def openmetrics(self) -> tuple[str, ...]:
        """Every name that is its own in OpenMetrics: its samples', the family's, that of its start."""
        family = self.family
        created = (f"{family}_created",) if self.type in _COUNTING else ()
        return (*self.samples, *created, *((family,) if family != self.name else ()))


def metric_name(name: str, unit: str, kind: Kind) -> MetricName:
    """Name a metric.

    Dots and all else that Prometheus lacks become ``_``, of which no two follow each other. The unit in
    words is a suffix unless the name has that word. Then follows ``_total`` for a counter, ``_ratio`` for a
    gauge of unit 1, moved to the end where the name has it already.

    Args:
        name: The OTLP metric's name.
        unit: Its unit (UCUM), may be empty.
        kind: What it is.
    """
    words = [word for word in _NOT_IN_METRICS.split(name) if word]
    unit_words = _unit_words(unit)
    words += [word for word in unit_words if word not in words]
    in_words = "_".join(unit_words)
    if kind is Kind.COUNTER:
        words = [word for word in words if word != "total"] + ["total"]
    if unit.strip() == "1" and kind is Kind.GAUGE:
        words = [word for word in words if word != "ratio"] + ["ratio"]
        in_words = "ratio"
    joined = "_".join(words) or "_"
    return MetricName(name=f"_{joined}" if joined[0].isdigit() else joined, type=_TYPES[kind], unit=in_words)


def _unit_words(unit: str) -> list[str]:
    """A unit in words: bytes, or bytes and per_second; what is in braces is no unit."""
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
    """Name an attribute: all that Prometheus lacks becomes ``_``, a digit in front gets ``key_``."""
    if _LABEL_NAME.fullmatch(key):
        return key
    name = re.sub("_+", "_", _NOT_IN_LABELS.sub("_", key)) or "_"
    return f"key_{name}" if name[0].isdigit() else name


def label_value(value: AnyValue) -> str:
    """An attribute's value as text (OpenTelemetry specification, "Attribute", "AnyValue representation")."""
    form = value.WhichOneof("value")
    match form:
        case "string_value":
            return value.string_value
        case "int_value":
            return str(value.int_value)
        case None:
            return ""
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode("ascii")
        case _:
            return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False)


def _plain(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case "array_value":
            return [_plain(one) for one in value.array_value.values]
        case "kvlist_value":
            return {one.key: _plain(one.value) for one in value.kvlist_value.values}
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode("ascii")
        case None:
            return None
        case form:
            return getattr(value, form)


def labels_of(
    attributes: Iterable[KeyValue], rename: Callable[[str], str] = lambda name: name
) -> dict[str, str]:
    """Labels for a data point's attributes.

    Attributes that get the same name are joined by ``;`` in the order of their keys. An empty value is no
    label.

    Args:
        attributes: The attributes.
        rename: Makes a label's name of an attribute's name in Prometheus.
    """
    labels: dict[str, str] = {}
    for attribute in sorted(attributes, key=lambda one: one.key):
        name, value = rename(label_name(attribute.key)), label_value(attribute.value)
        if value:
            labels[name] = f"{labels[name]};{value}" if name in labels else value
    return labels
