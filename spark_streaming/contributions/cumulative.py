"""Owns the turning of cumulative sums into what they grew by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from spark_streaming.contributions.codec import (
    CUMULATIVE,
    CUMULATIVE_ROW,
    LEGACY,
    decode_cumulative,
    decode_points,
    encode_cumulative,
)
from spark_streaming.contributions.corrections import Corrections
from spark_streaming.contributions.values import ClientState

__all__ = ["MAX_IDENTITIES", "reconcile_cumulative"]

#: Of one client; beyond it those are forgotten that were heard of longest ago. A consumer of 1,000 partitions
#: has about 3,000.
MAX_IDENTITIES: Final = 10_000

Integers = npt.NDArray[np.int64]


def reconcile_cumulative(
    packed: Sequence[bytes],
    *,
    client: Integers,
    minute: Integers,
    push_interval_ms: Integers,
    clients: Mapping[int, ClientState],
    corrections: Corrections,
) -> dict[int, bytes]:
    """Adds the growth of cumulative sums to the corrections: one point for each point, no min and max.

    By identity (metric and all attributes), in order of time, a point adds

    - its value less the one before, when both began at the same time;
    - its value, when it began later or fell: it was reset;
    - nothing, when it isn't newer than the one before (late): its growth is in the newer one;
    - its value, when it is the first and began within one and a half push intervals before; else nothing, as
      nobody knows when it grew.

    Whatever the order of arrival, growth is never counted twice; which minute gets it depends on the order,
    and what a late point would have told of a reset, or of the time before the first one, is lost.

    Args:
        packed: The decoder's packed cumulative points of each entry.
        client: The client of each entry.
        minute: The minute of each entry.
        push_interval_ms: The push interval of each entry.
        clients: What is remembered of the clients.
        corrections: Where corrections go.

    Returns:
        What to remember from now on, by client.

    Raises:
        CodecError: Bytes of another version.
    """
    points = decode_points(packed, CUMULATIVE)
    new = len(points.entry)
    if not new:
        return {}
    keys = np.unique(client[points.entry])
    stored = [decode_cumulative(clients[key].cumulative) if key in clients else b"" for key in keys.tolist()]
    known = np.frombuffer(b"".join(stored), CUMULATIVE_ROW)
    known_of = np.repeat(np.arange(len(keys)), [len(rows) // CUMULATIVE_ROW.itemsize for rows in stored])

    def both(name: str, column: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return np.concatenate((known[name], column))

    owner_of_point = np.searchsorted(keys, client[points.entry])
    known = _renamed(known, known_of, points.integers, owner_of_point)
    owner = np.concatenate((known_of, owner_of_point))
    high, low, start, time = (
        both(x, points.integers[x]) for x in ("identity_high", "identity_low", "start_ns", "time_ns")
    )
    value = both("value", points.value)
    point = np.concatenate((np.full(len(known), -1), np.arange(new)))

    # The known one goes first: what isn't newer than it is late.
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
    fresh = order[begins]
    entry = points.entry[point[fresh]]
    began = time[fresh] - start[fresh] <= 1_500_000 * push_interval_ms[entry]
    growth[begins] = np.where(began & (start[fresh] > 0), value[fresh], 0.0)

    total = np.zeros(new)
    is_point = point[order] >= 0
    total[point[order][is_point]] = growth[is_point]
    corrections.add(
        minute=minute[points.entry],
        series=points.integers["series"],
        fleet=points.integers["fleet"],
        flags=points.flags,
        total=total,
        points=np.ones(new, np.int64),
    )
    ends = order[np.append(begins[1:], [True])]
    return _remembered(keys, owner[ends], high[ends], low[ends], start[ends], time[ends], value[ends])


def _renamed(
    known: npt.NDArray[np.void], known_of: Integers, points: Mapping[str, Integers], owner: Integers
) -> npt.NDArray[np.void]:
    """Gives known rows whose identity is of version 1 the identity of the point that they are of."""
    legacy = np.flatnonzero(known["identity_high"] == LEGACY)
    if not len(legacy):
        return known
    at = {
        (of, identity): number
        for number, (of, identity) in enumerate(
            zip(owner.tolist(), points["legacy_identity"].tolist(), strict=True)
        )
    }
    renamed = known.copy()
    for row in legacy.tolist():
        number = at.get((int(known_of[row]), int(known["identity_low"][row])))
        if number is not None:
            for name in ("identity_high", "identity_low"):
                renamed[name][row] = points[name][number]
    return renamed


def _remembered(keys: Integers, owner: Integers, *columns: npt.NDArray[np.generic]) -> dict[int, bytes]:
    rows = np.empty(len(owner), CUMULATIVE_ROW)
    for name, column in zip(CUMULATIVE_ROW.names or (), columns, strict=True):
        rows[name] = column
    bounds = np.searchsorted(owner, np.arange(len(keys) + 1)).tolist()
    remembered = {}
    for key, begin, end in zip(keys.tolist(), bounds[:-1], bounds[1:], strict=True):
        own = rows[begin:end]
        if len(own) > MAX_IDENTITIES:
            own = own[np.argsort(own["time_ns"], kind="stable")[-MAX_IDENTITIES:]]
        remembered[key] = encode_cumulative(own.tobytes())
    return remembered


def _changes(*columns: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    """Tells where a run of equal rows begins."""
    begins = np.ones(len(columns[0]), np.bool_)
    begins[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return begins
