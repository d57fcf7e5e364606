"""Sets when the conditions of open findings began and last showed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import psycopg

from spark_streaming.findings.change_point import Bucket, Points, last_minute, onset
from spark_streaming.findings.settings import FindingSettings
from spark_streaming.findings.statements import statement

_Cursor = psycopg.Cursor[tuple[Any, ...]]

#: Members of a finding whose minutes are read, those that show most.
_MAX_MEMBERS: Final = 32
#: A look reads the time in which buckets empty. Where that leaves the onset open, it reads further
#: back by this factor, until the onset is certain.
_FURTHER: Final = 4
_FURTHEST: Final = timedelta(days=7)
#: Kinds whose minutes say yes or no, by a value beyond a threshold.
_BY_VALUE: Final = frozenset({"slow_client", "poll_bound", "lagging"})


@dataclass(frozen=True, slots=True)
class _Open:
    """An open finding; ``began`` is None if it is new."""

    finding_id: int
    kind: str
    holds: bool | None
    began: int | None


@dataclass(frozen=True, slots=True)
class _Found:
    """The times of a finding; None: those that are stored."""

    finding_id: int
    began: int | None
    last: int | None


def buckets(settings: FindingSettings, kinds: Iterable[str]) -> dict[str, Bucket]:
    """Return how the evidence of each kind counts.

    A full bucket empties in the time in which a finding is resolved: a window without the
    condition, and ``resolve_after_minutes``.
    """
    return {kind: _bucket(settings, kind) for kind in kinds}


def _bucket(settings: FindingSettings, kind: str) -> Bucket:
    window = getattr(settings, kind).window_minutes
    if kind in _BY_VALUE:
        return Bucket(leak=0.0, window=window)
    if kind == "shared_instance":
        # Between the minutes of one process and those of several.
        factor = settings.shared_instance.factor
        return Bucket(leak=(1 + factor) / (2 * factor * window), window=window)
    return Bucket(leak=1 / (window + settings.resolve_after_minutes), window=window)


def set_onsets(cursor: _Cursor, settings: FindingSettings, kinds: Sequence[str], now: datetime) -> None:
    """Set ``began_at`` and ``held_at`` of open findings that are judged by minutes.

    Args:
        cursor: In the look's transaction, after findings were refreshed and inserted.
        settings: Windows of the kinds.
        now: The last minute of the windows.
    """
    rules = buckets(settings, kinds)
    first = now - _FURTHEST
    to_do = [_Open(*row) for row in cursor.execute(statement("open_windowed"), {"kinds": list(kinds)})]
    minutes = max(rule.window for rule in rules.values()) + settings.resolve_after_minutes
    found: list[_Found] = []
    while to_do:
        since = max(first, now - timedelta(minutes=minutes))
        evidence = _evidence(cursor, [finding.finding_id for finding in to_do], since, now)
        settle = partial(_settle, start=_minute(since), end=_minute(now), is_all=since == first)
        settled = {
            finding.finding_id: settle(finding, evidence.get(finding.finding_id, []), rules[finding.kind])
            for finding in to_do
        }
        found += (done for done in settled.values() if done is not None)
        to_do = [finding for finding in to_do if settled[finding.finding_id] is None]
        minutes *= _FURTHER
    columns = {
        "findings": [done.finding_id for done in found],
        "began": [done.began for done in found],
        "last": [done.last for done in found],
    }
    cursor.execute(statement("set_onset"), columns)


def _settle(
    finding: _Open, members: Sequence[Points], rule: Bucket, *, start: int, end: int, is_all: bool
) -> _Found | None:
    """Return the times of a finding; None if they need earlier minutes."""
    if finding.began is not None and finding.holds is False:
        last = last_minute(members, rule, began=finding.began, start=start, end=end)
        return _Found(finding.finding_id, None, last)
    times = onset(members, rule, start=start, end=end)
    if times is None:
        # The mean of a window is beyond the threshold, and no minute of it is.
        return _Found(finding.finding_id, finding.began or end - rule.window + 1, end)
    if times.is_certain or is_all:
        return _Found(finding.finding_id, times.began, times.last)
    if finding.began is not None and finding.began < start:
        return _Found(finding.finding_id, None, times.last)
    return None


def _evidence(
    cursor: _Cursor, findings: Sequence[int], since: datetime, now: datetime
) -> dict[int, list[Points]]:
    """Return the evidence of each finding's members."""
    members = cursor.execute(statement("members"), {"findings": list(findings), "since": since}).fetchall()
    rows = cursor.execute(
        statement("evidence"),
        {
            "open": list(findings),
            "findings": [finding for finding, _ in members],
            "instances": [instance for _, instance in members],
            "since": since,
            "now": now,
            "max_members": _MAX_MEMBERS,
        },
    ).fetchall()
    by_finding = groupby(rows, key=itemgetter(0))
    return {finding: list(_by_member(of_finding)) for finding, of_finding in by_finding}


def _by_member(rows: Iterable[tuple[Any, ...]]) -> Iterator[Points]:
    for _, of_member in groupby(rows, key=itemgetter(1)):
        yield [(minute, amount) for _, _, minute, amount in of_member]


def _minute(time: datetime) -> int:
    return int(time.astimezone(UTC).timestamp()) // 60
