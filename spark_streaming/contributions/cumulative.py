"""Converts cumulative sums to their growth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from spark_streaming.contributions.codec import (
    CUMULATIVE,
    CUMULATIVE_ROW,
    decode_cumulative,
    decode_points,
    encode_cumulative,
)
from spark_streaming.contributions.corrections import Corrections
from spark_streaming.contributions.values import ClientState

#: Cumulative sums stored for one client. If there are more, the oldest are dropped. A consumer of
#: 1,000 partitions has about 3,000.
MAX_IDENTITIES: Final = 10_000

Integers = npt.NDArray[np.int64]


def reconcile_cumulative(
    blobs: Sequence[bytes],
    *,
    client: Integers,
    minute: Integers,
    push_interval_ms: Integers,
    clients: Mapping[int, ClientState],
    corrections: Corrections,
) -> dict[int, bytes]:
    """Add the growth of cumulative sums to the corrections, without min and max.

    The points of an identity (metric and all attributes) are processed in order of time. A point
    adds

    - its value minus the previous one if both have the same start time;
    - its value if it has a later start time or is smaller, because the sum was reset;
    - nothing if it is not newer than the previous one, because the newer one contains its growth;
    - its value if it is the first and started within 1.5 push intervals before, else nothing,
      because it is unknown when it grew.

    Growth is never counted twice, whatever the order of arrival. The order decides which minute
    gets it. Resets and first values in late points are lost.

    Args:
        blobs: The decoder's cumulative points of each entry.
        client: Client key of each entry.
        minute: Minute of each entry.
        push_interval_ms: Push interval of each entry.
        clients: Stored states of the clients.
        corrections: Receives the corrections.

    Returns:
        The encoded sums to store, by client.

    Raises:
        CodecError: Bytes of another version.
    """
    points = decode_points(blobs, CUMULATIVE)
    size = len(points.entry)
    if not size:
        return {}
    keys = np.unique(client[points.entry])
    stored = [decode_cumulative(clients[key].cumulative) if key in clients else b"" for key in keys.tolist()]
    known = np.frombuffer(b"".join(stored), CUMULATIVE_ROW)
    known_owner = np.repeat(np.arange(len(keys)), [len(rows) // CUMULATIVE_ROW.itemsize for rows in stored])

    def joined(name: str, column: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return np.concatenate((known[name], column))

    point_owner = np.searchsorted(keys, client[points.entry])
    owner = np.concatenate((known_owner, point_owner))
    high, low, start, time = (
        joined(x, points.integers[x]) for x in ("identity_high", "identity_low", "start_ns", "time_ns")
    )
    value = joined("value", points.value)
    point = np.concatenate((np.full(len(known), -1), np.arange(size)))

    # The stored value comes first. Points that are not newer than it are late.
    order = np.lexsort((time, point >= 0, low, high, owner))
    begins = _changes(owner[order], high[order], low[order])
    floor = np.where(point[order] < 0, time[order], np.iinfo(np.int64).min)[begins][np.cumsum(begins) - 1]
    in_time = (point[order] < 0) | (time[order] > floor)
    in_time[1:] &= begins[1:] | (time[order][1:] != time[order][:-1]) | (point[order][:-1] < 0)
    order = order[in_time]

    begins = _changes(owner[order], high[order], low[order])
    before, at = order[:-1], order[1:]
    growth = np.zeros(len(order))
    reset = (start[at] > start[before]) | (value[at] < value[before])
    growth[1:] = np.where(reset, value[at], value[at] - value[before])
    initial = order[begins]
    entry = points.entry[point[initial]]
    is_recent = time[initial] - start[initial] <= 1_500_000 * push_interval_ms[entry]
    growth[begins] = np.where(is_recent & (start[initial] > 0), value[initial], 0.0)

    total = np.zeros(size)
    is_point = point[order] >= 0
    total[point[order][is_point]] = growth[is_point]
    corrections.add(
        minute=minute[points.entry],
        series=points.integers["series"],
        fleet=points.integers["fleet"],
        flags=points.flags,
        total=total,
        points=np.ones(size, np.int64),
    )
    ends = order[np.append(begins[1:], [True])]
    return _encode(keys, owner[ends], high[ends], low[ends], start[ends], time[ends], value[ends])


def _encode(keys: Integers, owner: Integers, *columns: npt.NDArray[np.generic]) -> dict[int, bytes]:
    rows = np.empty(len(owner), CUMULATIVE_ROW)
    for name, column in zip(CUMULATIVE_ROW.names or (), columns, strict=True):
        rows[name] = column
    bounds = np.searchsorted(owner, np.arange(len(keys) + 1)).tolist()
    encoded = {}
    for key, begin, end in zip(keys.tolist(), bounds[:-1], bounds[1:], strict=True):
        own = rows[begin:end]
        if len(own) > MAX_IDENTITIES:
            own = own[np.argsort(own["time_ns"], kind="stable")[-MAX_IDENTITIES:]]
        encoded[key] = encode_cumulative(own.tobytes())
    return encoded


def _changes(*columns: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that differ from the previous one."""
    begins = np.ones(len(columns[0]), np.bool_)
    begins[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return begins
