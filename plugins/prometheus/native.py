"""Converts exponential histograms to Prometheus's native ones.

Both versions of remote write share the encoding except for the start time (Prometheus,
``prompb/types.proto`` and ``prompb/io/prometheus/write/v2/types.proto``, ``Histogram``).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from plugins._shared.cumulative import ExponentialTotal
from plugins.prometheus.protobuf import delimited, varint, zigzag

#: The range of Prometheus's schemas.
_FINEST, _COARSEST = 8, -4
#: Default of the zero threshold.
_ZERO_THRESHOLD: Final = 1e-128
#: Differences of counts are ``sint64``, and offsets of spans ``sint32``.
_MAX_COUNT: Final = (1 << 63) - 1
_MIN_INDEX, _MAX_INDEX = -(1 << 31), (1 << 31) - 1


def native_histogram(point: Any) -> bytes | None:
    """Encode a cumulative exponential histogram as a ``Histogram`` without times.

    None if Prometheus has no buckets that wide, or the counts do not fit.

    Source: OpenTelemetry, "Prometheus and OpenMetrics Compatibility", "Exponential Histograms".
    """
    total = ExponentialTotal.of(point)
    if total is None or total.scale < _COARSEST:
        return None
    total = total.at_scale(min(total.scale, _FINEST))
    # Prometheus refuses a count that differs from the sum of the buckets.
    count = total.zero_count + sum(total.positive.values()) + sum(total.negative.values())
    indexes = (*total.positive, *total.negative)
    if count > _MAX_COUNT or any(not _MIN_INDEX <= index < _MAX_INDEX for index in indexes):
        return None
    return b"".join(
        [
            b"\x08" + varint(count),
            b"\x19" + struct.pack("<d", float("nan") if total.sum is None else total.sum),
            b"\x20" + varint(zigzag(total.scale)),
            b"\x29" + struct.pack("<d", total.zero_threshold or _ZERO_THRESHOLD),
            b"\x30" + varint(total.zero_count),
            _buckets(b"\x42", b"\x4a", total.negative),
            _buckets(b"\x5a", b"\x62", total.positive),
        ]
    )


def _buckets(span_tag: bytes, delta_tag: bytes, counts: Mapping[int, int]) -> bytes:
    """Encode buckets as spans of consecutive indexes, and counts as differences."""
    spans: list[tuple[int, int]] = []
    deltas = []
    next_index = last_count = 0
    for index, count in sorted(counts.items()):
        # Prometheus names a bucket by its upper boundary, OpenTelemetry by its lower one.
        gap = index + 1 - next_index
        if spans and gap == 0:
            spans[-1] = (spans[-1][0], spans[-1][1] + 1)
        else:
            spans.append((gap, 1))
        deltas.append(varint(zigzag(count - last_count)))
        next_index, last_count = index + 2, count
    encoded = [
        delimited(span_tag, b"\x08" + varint(zigzag(offset)) + b"\x10" + varint(length))
        for offset, length in spans
    ]
    return b"".join(encoded) + (delimited(delta_tag, b"".join(deltas)) if deltas else b"")
