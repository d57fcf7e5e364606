"""The rules of spark_streaming/contributions/README.md, applied to all pushes at once."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

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
    entries: Sequence[Entry], rules: Mapping[int, int], closed: int
) -> tuple[dict[tuple[int, int], float], dict[tuple[int, int, int], int]]:
    """Return sums by minute and series, and observations by minute, series and bucket.

    Args:
        entries: Of all pushes, each with points, in any order.
        rules: The rule of each series.
        closed: The last complete minute.
    """
    clients: dict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        clients[entry.client].append(entry)
    sums: Counter[tuple[int, int]] = Counter()
    spread: Counter[tuple[int, int, int]] = Counter()
    for own in clients.values():
        minutes = sorted({entry.minute for entry in own})
        for minute, following in zip(minutes, [*minutes[1:], None], strict=True):
            there = [entry for entry in own if entry.minute == minute]
            newest = max(there, key=lambda entry: (entry.time_ns, entry.push))
            until = _last_minute(newest, following, closed)
            for series, value in _counts(newest, own).items():
                for counted in range(minute, until + 1):
                    sums[counted, series] += value  # type: ignore[assignment]
            for series, rule in rules.items():
                found = [[p.value for p in e.points if p.series == series] for e in there]
                found = [values for values in found if values]
                every = [value for values in found for value in values]
                if found and rule == RATE:
                    sums[minute, series] += sum(every) / len(found)  # type: ignore[assignment]
                if found and rule == DISTRIBUTION:
                    sums[minute, series] += sum(every)  # type: ignore[assignment]
                    spread[minute, series, bucket(sum(every) / len(every))] += 1
    return {k: v for k, v in sums.items() if not math.isclose(v, 0, abs_tol=1e-9)}, dict(spread)


def _last_minute(newest: Entry, following: int | None, closed: int) -> int:
    """Return the last minute that has the counts of a minute's newest push."""
    if newest.terminating:
        return newest.minute
    until = _silent_from(newest)
    until = min(until, closed if following is None else following - 1, END - 1)
    return max(until, newest.minute)


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
