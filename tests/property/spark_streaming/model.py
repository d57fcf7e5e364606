"""The rules of spark_streaming/contributions/README.md, applied to all pushes at once."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import zip_longest

from tests.unit.spark_streaming.contributions.support import (
    DISTRIBUTION,
    LAST,
    MINUTE_NS,
    RATE,
    Entry,
    bucket,
)

#: The model's minutes end before this one.
END = 40
_INTERVALS = 3
_MS_NS = 1_000_000


def totals(
    entries: Sequence[Entry], closed: int
) -> tuple[dict[tuple[int, int], float], dict[tuple[int, int, int], int]]:
    """Return sums by minute and series, and observations by minute, series and bucket.

    Args:
        entries: Of all pushes, in any order. Those without points must have arrived in order, in
            batches after the pushes before them, and in minutes that were not complete.
        closed: The last complete minute.
    """
    clients: dict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        clients[entry.client].append(entry)
    sums: Counter[tuple[int, int]] = Counter()
    spread: Counter[tuple[int, int, int]] = Counter()
    for own in clients.values():
        empty = [entry for entry in own if not entry.points]
        own = [entry for entry in own if entry.points]
        minutes = sorted({entry.minute for entry in own})
        for minute, following in zip_longest(minutes, minutes[1:]):
            there = [entry for entry in own if entry.minute == minute]
            newest = max(there, key=lambda entry: (entry.time_ns, entry.push))
            next_ns = min((entry.time_ns for entry in own if entry.minute == following), default=math.inf)
            since = [newest, *(entry for entry in empty if newest.time_ns < entry.time_ns < next_ns)]
            alive = max(since, key=lambda entry: entry.time_ns)
            until = max(minute, _last_minute(alive, following, closed))
            for series, value in _counts(newest, own).items():
                for counted in range(minute, until + 1):
                    sums[counted, series] += value  # type: ignore[assignment]
            for series, rule in {(point.series, point.rule) for entry in there for point in entry.points}:
                found = [[p.value for p in e.points if p.series == series] for e in there]
                found = [values for values in found if values]
                every = [value for values in found for value in values]
                if found and rule == RATE:
                    sums[minute, series] += sum(every) / len(found)  # type: ignore[assignment]
                if found and rule == DISTRIBUTION:
                    sums[minute, series] += sum(every)  # type: ignore[assignment]
                    spread[minute, series, bucket(sum(every) / len(every))] += 1
    return {k: v for k, v in sums.items() if not math.isclose(v, 0, abs_tol=1e-9)}, dict(spread)


def _last_minute(alive: Entry, following: int | None, closed: int) -> int:
    """Return the last minute that has the counts of a push.

    Args:
        alive: The push, or the last one without points since.
        following: The next minute with points.
    """
    until = alive.minute if alive.terminating else max(alive.minute, _silent_from(alive))
    return min(until, closed if following is None else following - 1, END - 1)


def _counts(newest: Entry, own: Sequence[Entry]) -> dict[int, float]:
    """Return the counts of a push in the minute of its newest entry."""
    push = sorted((e for e in own if e.push == newest.push), key=lambda e: e.time_ns)
    # A push that stamps each metric separately may reach over the end of a minute.
    before = [e for e in push if e.minute < newest.minute]
    if before and _silent_from(before[-1]) >= newest.minute:
        before = [e for e in before if e.minute == before[-1].minute]
    else:
        before = []
    values: dict[int, float] = {}
    for entry in (*before, *(e for e in push if e.minute == newest.minute)):
        last: Counter[int] = Counter()
        for point in entry.points:
            if point.rule == LAST:
                last[point.series] += point.value  # type: ignore[assignment]
        values.update(last)
    return values


def _silent_from(entry: Entry) -> int:
    return (entry.time_ns + _INTERVALS * entry.interval_ms * _MS_NS) // MINUTE_NS
