"""Encodes remote write requests, versions 1.0 and 2.0.

The messages are ``prometheus.WriteRequest`` and ``io.prometheus.write.v2.Request``. In 1.0 labels
are encoded once and cached. In 2.0 they are references into the request's symbol table.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, Literal

from plugins.prometheus.lines import LabelSet, Line
from plugins.prometheus.names import MetricType
from plugins.prometheus.protobuf import delimited, varint

Version = Literal["1.0", "2.0"]

#: A series, and its sample encoded as a field of ``TimeSeries``.
Sample = tuple[Line, bytes]

#: Prometheus's staleness marker: the NaN that ends a series.
STALE: Final = struct.pack("<Q", 0x7FF0000000000002)

_NAME: Final = "__name__"
_DOUBLE: Final = struct.Struct("<d").pack
_TYPES: Final = {
    MetricType.COUNTER: 1,
    MetricType.GAUGE: 2,
    MetricType.HISTOGRAM: 3,
    MetricType.SUMMARY: 5,
    MetricType.INFO: 6,
}


def time_field(time_ms: int) -> bytes:
    """Encode the timestamp of a number, in milliseconds since the epoch."""
    return b"\x10" + varint(time_ms)


def start_field(start_ms: int, version: Version) -> bytes:
    """Encode the start time of a number; empty for 0 (no start) and in version 1.0."""
    return b"\x18" + varint(start_ms) if start_ms and version == "2.0" else b""


def number_sample(value: float, fields: bytes) -> bytes:
    """Encode a number with its :func:`time_field` and :func:`start_field`."""
    return b"\x12%c\x09%b%b" % (9 + len(fields), _DOUBLE(value), fields)


def stale_sample(version: Version, *, time_ms: int, native: bool) -> bytes:
    """Encode the staleness marker of a series of numbers or native histograms."""
    if native:
        return native_sample(b"\x19" + STALE, version, time_ms=time_ms)
    fields = time_field(time_ms)
    return b"\x12%c\x09%b%b" % (9 + len(fields), STALE, fields)


def native_sample(histogram: bytes, version: Version, *, time_ms: int, start_ms: int = 0) -> bytes:
    """Encode the result of ``native_histogram`` with its times."""
    encoded = histogram + b"\x78" + varint(time_ms)
    if version == "1.0":
        return delimited(b"\x22", encoded)
    return delimited(b"\x1a", encoded + b"\x88\x01" + varint(start_ms) if start_ms else encoded)


def encode_request(samples: Iterable[Sample], version: Version) -> bytes:
    """Encode a request. Older samples of a series come first."""
    return _request_1(samples) if version == "1.0" else _request_2(samples)


def _request_1(samples: Iterable[Sample]) -> bytes:
    names: dict[str, bytes] = {}
    series = []
    for (name, labels, _, _), sample in samples:
        if _name_is_first(labels):
            encoded_name = names.get(name)
            if encoded_name is None:
                encoded_name = names[name] = _label(_NAME, name)
            if not labels.encoded:
                labels.encoded = b"".join([_label(*pair) for pair in labels.pairs])
            encoded = encoded_name + labels.encoded
        else:
            encoded = b"".join([_label(*pair) for pair in _sorted(name, labels)])
        series.append(delimited(b"\x0a", encoded + sample))
    return b"".join(series)


def _label(name: str, value: str) -> bytes:
    return delimited(b"\x0a", delimited(b"\x0a", name.encode()) + delimited(b"\x12", value.encode()))


def _request_2(samples: Iterable[Sample]) -> bytes:
    symbols: dict[str, int] = {"": 0, _NAME: 1}

    def reference(text: str) -> bytes:
        return varint(symbols.setdefault(text, len(symbols)))

    # Most series of a target differ only in the name, and many targets have the same names.
    names: dict[str, bytes] = {}
    references: dict[LabelSet, bytes] = {}
    metadata: dict[int, bytes] = {}
    series = []
    for (name, labels, metric, description), sample in samples:
        known = references.get(labels)
        if known is None and _name_is_first(labels):
            known = references[labels] = b"".join([reference(text) for pair in labels.pairs for text in pair])
        if known is None:
            encoded = b"".join([reference(text) for pair in _sorted(name, labels) for text in pair])
        else:
            encoded_name = names.get(name)
            if encoded_name is None:
                encoded_name = names[name] = b"\x01" + reference(name)
            encoded = encoded_name + known
        described = metadata.get(id(metric))
        if described is None:
            kind = b"\x08" + varint(_TYPES[metric.type])
            help_, unit = b"\x18" + reference(description), b"\x20" + reference(metric.unit)
            described = metadata[id(metric)] = delimited(b"\x2a", kind + help_ + unit)
        content = b"\x0a%b%b%b%b" % (varint(len(encoded)), encoded, sample, described)
        series.append(b"\x2a%b%b" % (varint(len(content)), content))
    table = b"".join([delimited(b"\x22", text.encode()) for text in symbols])
    return table + b"".join(series)


def _name_is_first(labels: LabelSet) -> bool:
    """Return whether ``__name__`` sorts before the labels, which capitals precede."""
    return not labels.pairs or labels.pairs[0][0] > _NAME


def _sorted(name: str, labels: LabelSet) -> list[tuple[str, str]]:
    return sorted((*labels.pairs, (_NAME, name)))
