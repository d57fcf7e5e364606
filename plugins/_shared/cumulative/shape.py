"""Reads and writes a metric with one number without a protobuf object.

Its encoding is the same in each push except for the times and the number. Nearly all metrics of
Java clients have this form, and it takes a quarter of protobuf's time.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from plugins._shared.cumulative.series import Kind, Series

#: ``NumberDataPoint``'s start_time_unix_nano, time_unix_nano, as_double and as_int.
_START, _TIME, _DOUBLE, _INT = 0x11, 0x19, 0x21, 0x31

_DOUBLE_SINCE: Final = struct.Struct("<BQBQBd")
_INT_SINCE: Final = struct.Struct("<BQBQBq")
_DOUBLE_AT: Final = struct.Struct("<BQBd")
_INT_AT: Final = struct.Struct("<BQBq")


@dataclass(slots=True, eq=False, kw_only=True)
class Shape:
    """The constant bytes of a metric with one number, which is a delta or cumulative."""

    series: Series
    delta: bool
    size: int
    """Length of the encoded metric."""
    fields: struct.Struct
    """Layout of start, time and number, between the head and the tail."""
    has_start: bool
    tag: int
    head: bytes
    tail: bytes
    out_head: bytes
    out_tail: bytes

    def read(self, metric: bytes) -> tuple[int, int, int | float] | None:
        """Return start (0: none), time and number of an encoded ``Metric`` of this shape.

        None if it does not have the shape.
        """
        if len(metric) != self.size or not metric.startswith(self.head) or not metric.endswith(self.tail):
            return None
        values = self.fields.unpack_from(metric, len(self.head))
        if not self.has_start:
            values = (_START, 0, *values)
        start_tag, start_ns, time_tag, time_ns, tag, number = values
        if start_tag != _START or time_tag != _TIME or tag != self.tag:
            return None
        if not time_ns:  # the point has no time, however its encoding says so
            return None
        return start_ns, time_ns, number

    def write(self, start_ns: int, time_ns: int, number: float) -> bytes:
        """Encode the cumulative metric."""
        if isinstance(number, int):
            fields = _INT_SINCE.pack(_START, start_ns, _TIME, time_ns, _INT, number)
        else:
            fields = _DOUBLE_SINCE.pack(_START, start_ns, _TIME, time_ns, _DOUBLE, number)
        return self.out_head + fields + self.out_tail


def learn(
    series: Series, metric: bytes, output: Any, *, delta: bool, start_ns: int, time_ns: int, number: float
) -> Shape | None:
    """Learn the shape of a metric with one number, whose point its series has.

    ``metric`` is the metric as received, with its point's start (0: none), time and number.
    ``output`` is the same metric cumulative, a :data:`~plugins._shared.cumulative.view.MetricView`.

    Returns:
        The shape. None if times and number are not adjacent or occur twice in the encoding, or if
        the output may need a start that the input does not have.
    """
    if not (delta or start_ns or series.kind is Kind.GAUGE):
        # Its output gets a start when the series starts anew, and these bytes have no place for
        # one.
        return None
    whole = isinstance(number, int)
    tag = _INT if whole else _DOUBLE
    if start_ns:
        fields = _INT_SINCE if whole else _DOUBLE_SINCE
        found = fields.pack(_START, start_ns, _TIME, time_ns, tag, number)
    else:
        fields = _INT_AT if whole else _DOUBLE_AT
        found = fields.pack(_TIME, time_ns, tag, number)
    around = metric.split(found)
    if len(around) != 2:
        return None
    out_around = around
    if delta:
        whole = isinstance(series.number, int)
        struct_ = _INT_SINCE if whole else _DOUBLE_SINCE
        written = struct_.pack(
            _START, series.start_ns, _TIME, time_ns, _INT if whole else _DOUBLE, series.number
        )
        out_around = output.SerializeToString().split(written)
        if len(out_around) != 2:
            return None
    return Shape(
        series=series,
        delta=delta,
        size=len(metric),
        fields=fields,
        has_start=bool(start_ns),
        tag=tag,
        head=around[0],
        tail=around[1],
        out_head=out_around[0],
        out_tail=out_around[1],
    )
