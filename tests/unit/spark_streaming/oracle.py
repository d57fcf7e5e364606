"""Expected results of the decoder, computed with protobuf's parser in Python.

In the place of ids are the dimensions of series; the hashes of those are in ``identities``.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from tests.unit.spark_streaming.identities import identity_hash, series_hash, storable

LABELS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "principal",
    "group_id",
    "cluster_id",
    "client_source_address",
    "client_source_port",
    "client_rack",
    "group_instance_id",
    "group_member_id",
    "transactional_id",
    "application_id",
    "broker_id",
    "client_owner",
)
MAX_ENTRIES: Final = 128
AT_ONCE_NS: Final = 1_000_000_000
SUM, RATE, LAST, MAX, MIN, DISTRIBUTION = range(6)
_CLIENTS, _PUSHES = "kafka.client.telemetry.clients", "kafka.client.telemetry.pushes"
_TEMPORALITY: Final = {1: "delta", 2: "cumulative"}
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


#: What two equal points have in common, beside their series and attributes.
_MEASURED: Final = (
    *("type", "time_ns", "start_ns", "value", "count", "sum", "min", "max", "bounds", "counts"),
    *("scale", "zero_count", "zero_threshold", "positive_offset", "positive_counts"),
    *("negative_offset", "negative_counts"),
)


class NoInstanceError(Exception):
    """A resource has data points but no client instance id."""


class BeyondBoundsError(Exception):
    """A number is beyond the plan's bounds."""


class Fleet(NamedTuple):
    """The dimensions of a fleet series."""

    metric: str
    cluster_id: str | None
    client_software_name: str | None
    client_software_version: str | None


class Series(NamedTuple):
    """The dimensions of a series."""

    fleet: Fleet
    client_id: str | None
    principal: str | None
    group_id: str | None
    topic: str | None
    node_id: str | None
    node_role: str | None
    reason: str | None
    error: str | None
    acks: str | None
    partition: str | None
    breakdown: bool

    @property
    def hash(self) -> tuple[int, int]:
        """Its hash by the key of the tests."""
        metric, *fleet_labels = self.fleet
        return series_hash(
            metric,
            (*fleet_labels, self.client_id, self.principal, self.group_id),
            (self.topic, self.node_id, self.node_role),
            (self.reason, self.error, self.acks, self.partition),
            breakdown=self.breakdown,
        )


@dataclass(slots=True, kw_only=True)
class Entry:
    """One row of ``otlp_entries``, with what it has packed taken apart."""

    labels: dict[str, str | None]
    time_ns: int
    first: bool
    points: int = 0
    left_out: int = 0
    histograms: int = 0
    gauges: list[tuple[Series, float, int]] = field(default_factory=list)
    added: list[tuple[Series, float, int]] = field(default_factory=list)
    #: With the two halves of the identity's hash.
    cumulative: list[tuple[Series, int, int, int, int, float, int]] = field(default_factory=list)
    #: With the halves of the histogram's hash, and the bounds of the part.
    cumulative_histograms: list[tuple[Series, int, int, int, int, float, float, float, int]] = field(
        default_factory=list
    )
    watched: list[float | None] = field(default_factory=list)

    @property
    def minute(self) -> int:
        return self.time_ns // 60_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of ``otlp_histograms``."""

    minute: int
    series: Series
    points: int
    sum: float | None
    min: float | None
    max: float | None
    buckets: tuple[tuple[float, float, int], ...] | None


@dataclass(slots=True)
class RolledUp:
    """What the roll-up takes from one push."""

    entries: list[Entry]
    rows: list[Row]
    rules: dict[Series, int]


def java_double(value: float) -> str:
    """Write a number as Java does."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return f"{sign}0.0"
    digits, exponent = next(
        text.split("e")
        for text in (f"{abs(value):.{precision}e}" for precision in range(17))
        if float(text) == abs(value)
    )
    digits = digits.replace(".", "")
    power = int(exponent)
    if -3 <= power < 7:
        digits = digits.rjust(len(digits) - power, "0") if power < 0 else digits.ljust(power + 1, "0")
        whole = max(power, 0) + 1
        return f"{sign}{digits[:whole]}.{digits[whole:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"


def _json(value: AnyValue) -> str:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return f"[{','.join(map(_json, value.array_value.values))}]"
    if kind == "kvlist_value":
        pairs = {pair.key: _json(pair.value) for pair in value.kvlist_value.values}
        return f"{{{','.join(f'{_quoted(key)}:{text}' for key, text in pairs.items())}}}"
    text = text_of(value)
    if text is None:
        return "null"
    quoted = kind in ("string_value", "bytes_value") or text in ("NaN", "Infinity", "-Infinity")
    return _quoted(text) if quoted else text


def _quoted(text: str) -> str:
    escaped = (_ESCAPES.get(char) or (f"\\u{ord(char):04X}" if char < " " else char) for char in text)
    return f'"{"".join(escaped)}"'


def text_of(value: AnyValue) -> str | None:
    """Write an attribute's value; None where it has none."""
    match value.WhichOneof("value"):
        case "string_value":
            return str(value.string_value)
        case "bool_value":
            return str(value.bool_value).lower()
        case "int_value":
            return str(value.int_value)
        case "double_value":
            return java_double(value.double_value)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "array_value" | "kvlist_value":
            return _json(value)
        case _:
            return None


def texts(attributes: Iterable[KeyValue]) -> dict[str, str | None]:
    return {pair.key: text_of(pair.value) for pair in attributes}


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


@dataclass(frozen=True, slots=True)
class _Pushed:
    """A data point with what it is of."""

    resource: Any
    scope: Any
    metric: Any
    kind: str
    data: Any
    point: Any


def _pushed(otlp: bytes) -> Iterator[_Pushed]:
    for resource_metrics in MetricsData.FromString(otlp).resource_metrics:
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                kind = metric.WhichOneof("data")
                if kind is None:
                    continue
                data = getattr(metric, kind)
                for point in data.data_points:
                    yield _Pushed(resource_metrics.resource, scope_metrics.scope, metric, kind, data, point)


def data_points(otlp: bytes) -> list[dict[str, Any]]:
    """Give what ``otlp_data_points`` gives; maps are dicts.

    Raises:
        google.protobuf.message.DecodeError: The bytes are no MetricsData.
    """
    return [_data_point(pushed) for pushed in _pushed(otlp)]


def _data_point(pushed: _Pushed) -> dict[str, Any]:
    point, kind = pushed.point, pushed.kind
    row: dict[str, Any] = {
        "resource": texts(pushed.resource.attributes),
        "scope": pushed.scope.name,
        "metric": pushed.metric.name,
        "unit": pushed.metric.unit,
        "type": kind,
        "temporality": _TEMPORALITY.get(getattr(pushed.data, "aggregation_temporality", 0)),
        "monotonic": pushed.data.is_monotonic if kind == "sum" else None,
        "time_ns": _signed(point.time_unix_nano),
        "start_ns": _signed(point.start_time_unix_nano),
        "recorded": not point.flags & 1,
        "attributes": texts(point.attributes),
    }
    if kind in ("gauge", "sum"):
        return row | {"value": _value(point)}
    row["count"] = _signed(point.count)
    if kind == "summary":
        quantiles = {quantile.quantile + 0.0: quantile.value for quantile in point.quantile_values}
        return row | {
            "sum": point.sum,
            "min": quantiles.get(0.0),
            "max": quantiles.get(1.0),
            "quantiles": quantiles,
        }
    for name in ("sum", "min", "max"):
        row[name] = getattr(point, name) if point.HasField(name) else None
    if kind == "histogram":
        return row | {
            "bounds": list(point.explicit_bounds),
            "counts": list(map(_signed, point.bucket_counts)),
        }
    return row | {
        "scale": point.scale,
        "zero_count": _signed(point.zero_count),
        "zero_threshold": point.zero_threshold,
        "positive_offset": point.positive.offset,
        "positive_counts": list(map(_signed, point.positive.bucket_counts)),
        "negative_offset": point.negative.offset,
        "negative_counts": list(map(_signed, point.negative.bucket_counts)),
    }


def _value(point: Any) -> float | None:
    field_name = point.WhichOneof("value")
    return float(getattr(point, field_name)) if field_name else None


def _counts(value: float | None) -> bool:
    return value is not None and abs(value) < sys.float_info.max


def _near(value: float | None) -> float | None:
    """A number as it is rolled up; None where it isn't."""
    if value is None or not _counts(value):
        return None
    return 0.0 if abs(value) < 1e-100 else value


def roll_up(otlp: bytes, instance: str | None, received_at_ns: int, plan: str) -> RolledUp:
    """Give what the three functions of the roll-up give.

    Raises:
        google.protobuf.message.DecodeError: The bytes are no MetricsData.
        NoInstanceError: There are data points of nobody.
        BeyondBoundsError: There is a number beyond the plan's bounds.
    """
    return _Oracle(instance, received_at_ns, json.loads(plan)).run(otlp)


class _Oracle:
    def __init__(self, instance: str | None, received_at_ns: int, plan: dict[str, Any]) -> None:
        self._instance = instance
        self._received = received_at_ns
        self._plan = plan
        self._entries: list[Entry] = []
        self._counted = 0
        self._bucketed = 0
        self._seen: set[tuple[Any, ...]] = set()
        self._result = RolledUp([], [], {})

    def run(self, otlp: bytes) -> RolledUp:
        for pushed in _pushed(otlp):
            self._point(pushed)
        self._result.entries.extend(self._entries)
        for entry in filter(self._is_kept, self._entries):
            self._add(entry, self._series(_CLIENTS, entry.labels, ()), LAST, 1.0)
            if entry.first:
                self._add(entry, self._series(_PUSHES, entry.labels, ()), SUM, 1.0)
        return self._result

    def _is_kept(self, entry: Entry) -> bool:
        least = self._plan["min_minute"]
        return least is None or entry.minute >= least

    def _entry(self, labels: dict[str, str | None], time_ns: int) -> Entry:
        instance = labels["client_instance_id"] or storable(self._instance)
        if not instance:
            raise NoInstanceError
        ahead, behind = self._plan["max_ahead_ns"], self._plan["max_behind_ns"]
        if time_ns == 0 or not self._received - behind <= time_ns <= self._received + ahead:
            time_ns = self._received
        own = [entry for entry in self._entries if entry.labels["client_instance_id"] == instance]
        times = (time_ns, self._received) if len(own) >= MAX_ENTRIES else (time_ns,)
        for time_ns in times:  # the last one tried is the new entry's
            for entry in own:
                if abs(entry.time_ns - time_ns) <= AT_ONCE_NS:
                    return entry
        entry = Entry(
            labels=labels | {"client_instance_id": instance},
            time_ns=time_ns,
            first=not own,
            watched=[None] * len(self._plan["watched"]),
        )
        self._entries.append(entry)
        return entry

    def _point(self, pushed: _Pushed) -> None:
        resource = texts(pushed.resource.attributes)
        labels = {label: storable(resource.get(label)) for label in LABELS}
        point, kind = pushed.point, pushed.kind
        entry = self._entry(labels, point.time_unix_nano)
        entry.points += 1
        metric = str(storable(pushed.metric.name))
        temporality = _TEMPORALITY.get(getattr(pushed.data, "aggregation_temporality", 0))
        left_out = (
            point.flags & 1
            or metric in (_CLIENTS, _PUSHES)
            or (kind == "sum" and temporality is None)
            or (kind in ("histogram", "exponential_histogram") and temporality is None)
        )
        if left_out:
            return
        self._check_bounds(kind, point)
        if not self._is_kept(entry):
            return
        series = self._series(metric, labels, point.attributes)
        is_cumulative = temporality == "cumulative"
        value = _near(_value(point)) if kind in ("gauge", "sum") else None
        if value is None if kind in ("gauge", "sum") else not point.count and not is_cumulative:
            return
        if kind == "sum" and pushed.data.is_monotonic and float(_value(point) or 0) < 0:
            entry.left_out += 1
            return
        if self._is_repeated(series, pushed):
            entry.left_out += 1
            return
        if value is None:
            self._histogram(entry, series, pushed)
            return
        if kind == "sum" and temporality == "cumulative" and pushed.data.is_monotonic:
            self._result.rules.setdefault(series, SUM)
            everything = [(pair.key, text_of(pair.value)) for pair in point.attributes]
            entry.cumulative.append(
                (
                    series,
                    *identity_hash(metric, everything),
                    _signed(point.start_time_unix_nano),
                    entry.time_ns,
                    value,
                    SUM | (16 if series.breakdown else 0),
                )
            )
            return
        self._add(entry, series, self._rule(metric, kind, temporality), value)

    def _is_repeated(self, series: Series, pushed: _Pushed) -> bool:
        """Return whether the push had the same point before: also where it is encoded otherwise."""
        point = _data_point(pushed)
        attributes = sorted((pair.key, repr(text_of(pair.value))) for pair in pushed.point.attributes)
        measured = [repr(point.get(name)) for name in _MEASURED]
        pairs = [(pair.quantile, pair.value) for pair in getattr(pushed.point, "quantile_values", ())]
        found = (series, repr(attributes), *measured, repr(pairs))
        repeated = found in self._seen
        self._seen.add(found)
        return repeated

    def _check_bounds(self, kind: str, point: Any) -> None:
        if kind in ("gauge", "sum"):
            self._check_values(_value(point))
            return
        if kind == "summary":
            seen = {pair.quantile: pair.value for pair in point.quantile_values}
            self._check_values(point.sum, *(seen[end] for end in (0.0, 1.0) if end in seen))
        else:
            names = [name for name in ("sum", "min", "max") if point.HasField(name)]
            self._check_values(*(getattr(point, name) for name in names))
        self._counted += point.count
        self._check_counts()
        # The decoder names the bound that is checked first.
        if kind == "histogram":
            self._check_values(*point.explicit_bounds)
            self._bucketed += sum(point.bucket_counts)
        elif kind == "exponential_histogram":
            self._check_values(point.zero_threshold)
            self._bucketed += (
                sum(point.negative.bucket_counts) + point.zero_count + sum(point.positive.bucket_counts)
            )
        self._check_counts()

    def _check_values(self, *values: float | None) -> None:
        if any(
            value is not None and _counts(value) and abs(value) > self._plan["max_value"] for value in values
        ):
            raise BeyondBoundsError("max_value")

    def _check_counts(self) -> None:
        if max(self._counted, self._bucketed) > self._plan["max_count"]:
            raise BeyondBoundsError("max_count")

    def _rule(self, metric: str, kind: str, temporality: str | None) -> int:
        if kind == "sum":
            return SUM if temporality == "delta" else LAST
        known = self._plan["metrics"].get(metric)
        if known is not None:
            return LAST if known["rule"] == SUM else int(known["rule"])
        endings = {"rate": RATE, "max": MAX, "min": MIN}
        return endings.get(metric.rpartition(".")[2], DISTRIBUTION) if "." in metric else DISTRIBUTION

    def _series(self, metric: str, labels: dict[str, str | None], pairs: Iterable[KeyValue]) -> Series:
        fleet = Fleet(metric, *(labels[name] for name in Fleet._fields[1:]))
        finer = self._plan["metrics"].get(metric, {}).get("finer", ())
        attributes = texts(pairs)
        nodes = [text_of(pair.value) for pair in pairs if pair.key in ("node_id", "node.id")]
        return Series(
            fleet,
            labels["client_id"],
            labels["principal"],
            labels["group_id"],
            storable(attributes.get("topic")),
            storable(nodes[-1]) if nodes else None,
            storable(attributes.get("node_role")),
            storable(attributes.get("reason")),
            storable(attributes.get("error")),
            _acks(attributes.get("acks")),
            _partition(attributes.get("partition"), self._plan["max_partitions"]),
            any(key in attributes for key in finer),
        )

    def _add(self, entry: Entry, series: Series, rule: int, value: float) -> None:
        self._result.rules.setdefault(series, rule)
        packed = entry.gauges if rule in (RATE, LAST, DISTRIBUTION) else entry.added
        packed.append((series, value, rule | (16 if series.breakdown else 0)))
        for slot, watched in enumerate(self._plan["watched"]):
            if series.fleet.metric in watched["metrics"] and not series.breakdown:
                before = entry.watched[slot]
                added = 1.0 if watched["keeps"] == "points" else value
                if before is None:
                    entry.watched[slot] = added
                else:
                    entry.watched[slot] = max(before, added) if watched["keeps"] == "max" else before + added

    def _histogram(self, entry: Entry, series: Series, pushed: _Pushed) -> None:
        seen = _data_point(pushed)
        self._result.rules.setdefault(series, DISTRIBUTION)
        buckets = {"histogram": _explicit, "exponential_histogram": _exponential}.get(pushed.kind)
        if seen["temporality"] == "cumulative":
            self._cumulative_histogram(
                entry, series, pushed, _merged(buckets(pushed.point)) if buckets else ()
            )
            return
        entry.histograms += 1
        self._result.rows.append(
            Row(
                minute=entry.minute,
                series=series,
                points=pushed.point.count,
                sum=_near(seen["sum"]),
                min=_near(seen["min"]),
                max=_near(seen["max"]),
                buckets=None if buckets is None else _merged(buckets(pushed.point)),
            )
        )

    def _cumulative_histogram(
        self,
        entry: Entry,
        series: Series,
        pushed: _Pushed,
        buckets: Iterable[tuple[float, float, int]],
    ) -> None:
        point = pushed.point
        if pushed.kind == "histogram":
            bounds = [*map(_bits, point.explicit_bounds), 2]
        else:
            bounds = [min(point.scale, 3), _bits(point.zero_threshold), 3]
        everything = [(pair.key, text_of(pair.value)) for pair in point.attributes]
        whole = identity_hash(series.fleet.metric, everything, bounds)
        total = _near(point.sum) if point.HasField("sum") else None
        parts = [(0.0, 0.0, float(point.count), 32), (0.0, 0.0, math.nan if total is None else total, 64)]
        parts += [(lower, upper, float(count), 96) for lower, upper, count in buckets]
        flags = DISTRIBUTION | (16 if series.breakdown else 0)
        start_ns = _signed(point.start_time_unix_nano)
        entry.cumulative_histograms += [
            (series, *whole, start_ns, entry.time_ns, lower, upper, value, flags | flag)
            for lower, upper, value, flag in parts
        ]


def _bits(value: float) -> int:
    """Return a double's bits as a signed number."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return int(bits)


def _acks(text: str | None) -> str | None:
    return text if text in (None, "all", "none", "leader", "-1", "0", "1") else "other"


def _partition(text: str | None, max_partitions: int) -> str | None:
    if text is None or max_partitions == 0:
        return None
    if text == "unassigned":
        return text
    is_number = text.isascii() and text.isdigit() and text == str(int(text))
    return text if is_number and int(text) < max_partitions else "other"


def _merged(buckets: Iterable[tuple[float, float, int]]) -> tuple[tuple[float, float, int], ...]:
    merged: list[tuple[float, float, int]] = []
    for lower, upper, count in buckets:
        if not count:
            continue
        if merged and merged[-1][:2] == (lower, upper):
            merged[-1] = (lower, upper, merged[-1][2] + count)
        else:
            merged.append((lower, upper, count))
    return tuple(merged)


def _explicit(point: Any) -> Iterator[tuple[float, float, int]]:
    bounds = list(point.explicit_bounds)
    ends = [-math.inf, *bounds, math.inf]
    rising = all(low < high for low, high in itertools.pairwise(ends)) and all(map(_counts, bounds))
    if len(point.bucket_counts) == len(bounds) + 1 and rising:
        ends = [end + 0.0 for end in ends]
        yield from zip(ends, ends[1:], point.bucket_counts, strict=False)


def _exponential(point: Any) -> Iterator[tuple[float, float, int]]:
    finer = max(0, point.scale - 3)
    scale = point.scale - finer

    def bound(bucket: int) -> float:
        try:
            exponent = math.ldexp(bucket, -max(scale, -2000))
        except OverflowError:
            exponent = math.copysign(math.inf, bucket)
        exponent = max(-1022.0, min(exponent, 1024.0))
        return math.inf if exponent == 1024.0 else 2.0**exponent

    def buckets(side: Any) -> list[tuple[int, int]]:
        return [((side.offset + index) >> finer, count) for index, count in enumerate(side.bucket_counts)]

    for bucket, count in reversed(buckets(point.negative)):
        yield -bound(bucket + 1), -bound(bucket), count
    threshold = point.zero_threshold if point.zero_threshold > 0 and _counts(point.zero_threshold) else 0.0
    yield 0.0 - threshold, threshold, point.zero_count
    for bucket, count in buckets(point.positive):
        yield bound(bucket), bound(bucket + 1), count
