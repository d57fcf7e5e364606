"""When the condition of a finding began, by the minutes that clients pushed.

Each member of a finding has a *bucket*. What a minute shows of the condition fills it, and time, or
minutes that show the opposite, empty it. The condition began in the minute in which the bucket that
is not empty now began to fill. So the onset depends on the pushed minutes alone: not on when the
roll-up looks, and not on what it found before. This is the change point of a CUSUM test, bounded so
that a long past does not outweigh the present.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

#: A full bucket: the condition holds.
_FULL: Final = 1.0


@dataclass(frozen=True, slots=True)
class Bucket:
    """How the evidence of a kind counts."""

    leak: float
    """What a minute takes from the bucket. Zero if minutes with data empty it."""
    window: int
    """Minutes. Without a leak, evidence counts for the minutes since the member's data before, at
    most the window, and a window without data empties the bucket."""


@dataclass(frozen=True, slots=True)
class Run:
    """Minutes in which a bucket was not empty."""

    began: float
    """The first minute with evidence; minus infinity if it is before the data."""
    last: float
    """The last minute with more evidence than leaked since the minute before it."""
    drained: float
    """When the bucket was empty again; infinity if it is not."""


Points = Sequence[tuple[int, float]]


def runs(points: Points, bucket: Bucket, *, start: int, end: int, level: float) -> list[Run]:
    """Return the runs of one member.

    Args:
        points: Minutes in rising order, and their evidence: positive for the condition, and 1 for
            as much as a window needs.
        level: The level before the first minute, from 0 to 1.
    """
    found: list[Run] = []
    run = Run(-inf, -inf, inf) if level > 0 else None
    before, seen = start, False
    for minute, amount in points:
        gap = minute - before
        if run is not None and (drained := _drained(bucket, before, gap, level)) is not None:
            found.append(replace(run, drained=drained))
            run, level = None, 0.0
        if bucket.leak:
            level = max(0.0, level - bucket.leak * gap)
        else:
            amount *= _minutes_of(amount, gap if seen else None, bucket, level) / bucket.window
        level = min(_FULL, level + amount)
        if level <= 0:
            if run is not None:
                found.append(replace(run, drained=minute))
            run, level = None, 0.0
        elif run is None and amount > 0:
            run = Run(minute, minute, inf)
        elif run is not None and seen and amount > bucket.leak * gap:
            run = replace(run, last=minute)
        before, seen = minute, True
    if run is not None:
        drained = _drained(bucket, before, end - before, level)
        found.append(run if drained is None else replace(run, drained=drained))
    return found


def _minutes_of(amount: float, gap: int | None, bucket: Bucket, level: float) -> int:
    """The minutes for which an amount counts.

    The first minute of the data may count for a window. If the bucket is not empty before it, it
    counts so that the bucket stays so.
    """
    if gap is None:
        return bucket.window if level > 0 and amount > 0 else 1
    return min(max(gap, 1), bucket.window)


def _drained(bucket: Bucket, since: int, gap: int, level: float) -> float | None:
    """When the bucket was empty without further data; None if it is not after the gap."""
    after = level / bucket.leak if bucket.leak else float(bucket.window)
    # Rounded, because a leak times a window is rarely exact.
    return since + after if after + 1e-9 < gap else None


def spells(members: Iterable[Sequence[Run]]) -> list[Run]:
    """Unite the runs of all members that overlap, in rising order."""
    united: list[Run] = []
    for run in sorted((run for member in members for run in member), key=lambda run: (run.began, run.last)):
        if united and run.began <= united[-1].drained:
            last = united[-1]
            united[-1] = Run(last.began, max(last.last, run.last), max(last.drained, run.drained))
        else:
            united.append(run)
    return united


@dataclass(frozen=True, slots=True)
class Onset:
    """When a condition began and last showed."""

    began: int
    """The first minute, since the epoch."""
    last: int
    """The last minute that shows it."""
    is_certain: bool
    """Nothing that happened before the data can change ``began``."""


def onset(members: Sequence[Points], bucket: Bucket, *, start: int, end: int) -> Onset | None:
    """Return the onset of a condition that holds at the end; None without evidence.

    It is certain if it is the same whether the buckets were empty or full before the data.

    Args:
        members: The evidence of each member, as for :func:`runs`.
        end: The last one, at which the condition holds.
    """
    empty, full = (
        spells(runs(points, bucket, start=start, end=end, level=level) for points in members)
        for level in (0.0, _FULL)
    )
    if not empty:
        return None
    now = max(empty, key=lambda run: (run.drained, run.last))
    pessimist = max(full, key=lambda run: (run.drained, run.last))
    return Onset(int(now.began), int(now.last), is_certain=now.began == pessimist.began)


def last_minute(members: Sequence[Points], bucket: Bucket, *, began: int, start: int, end: int) -> int | None:
    """Return the last minute that shows a condition which began at a known minute.

    None if the data does not show it.

    Args:
        members: As for :func:`onset`.
        bucket: As for :func:`onset`.
    """
    level, at = (_FULL, start) if began < start else (0.0, began)
    for run in spells(runs(points, bucket, start=start, end=end, level=level) for points in members):
        if run.began <= at <= run.drained and run.last > -inf:
            return int(run.last)
    return None
