"""Carries a client's counts forward into minutes without a push.

A minute without an entry gets the counts of the last minute before it that has one, its *source*.
Counts are carried up to three push intervals after the source's newest push, and not after a
terminating push. Minutes between two sources are filled at once. Minutes after the newest source
are filled when they are complete.

A late entry also changes the minutes after it. Those that were carried from an older source are now
carried from the late entry, or not at all. This reaches three push intervals far, of the late or
the newest entry, whichever interval is longer. If the interval was longer in between, older counts
remain beyond that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from spark_streaming.contributions.codec import NO_COUNTS, decode_contribution
from spark_streaming.contributions.ranges import KnownContributions
from spark_streaming.contributions.values import ClientState, Contribution

_MINUTE_MS: Final = 60_000
_MS_NS: Final = 1_000_000
_INTERVALS: Final = 3


class Source(NamedTuple):
    """Newest push of a client in a minute. A push without entries has no counts."""

    minute: int
    time_ns: int
    push_interval_ms: int
    terminating: bool
    counts: bytes | None


@dataclass(slots=True, kw_only=True)
class CarryResult:
    """Changes made by carrying counts forward."""

    counts: list[tuple[int, int, bytes, int]] = field(default_factory=list)
    """First and last minute, encoded counts, and 1 to add or -1 to subtract them."""
    new: list[Contribution] = field(default_factory=list)
    """Contributions of minutes that had none."""
    contributions: list[Contribution] = field(default_factory=list)
    """Other contributions of minutes that counts are carried to, or no longer carried to, each for
    one minute."""
    clients: list[ClientState] = field(default_factory=list)

    def add(self, client_key: int, first: int, until: int, *, packed: bytes, last_ns: int) -> None:
        """Add encoded counts to minutes that had none."""
        self.counts.append((first, until, decode_contribution(packed).body, 1))
        self.new.append(Contribution(client_key, first, 0, last_ns, packed, until))

    def subtract(self, contribution: Contribution) -> None:
        """Subtract counts that were carried to a minute."""
        minute = contribution.minute
        self.counts.append((minute, minute, decode_contribution(contribution.packed).body, -1))


def carry_limit(minute: int, time_ns: int, push_interval_ms: int, *, terminating: bool = False) -> int:
    """Return the last minute to which an entry's counts are carried.

    PostgreSQL computes it in ``client_state.to_carry``. If it were less here, no minute would ever
    be complete.
    """
    if terminating:
        return minute
    return max(minute, (time_ns // _MS_NS + _INTERVALS * push_interval_ms) // _MINUTE_MS)


def carry_limits(
    time_ns: npt.NDArray[np.int64], push_interval_ms: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return :func:`carry_limit` of many entries, none of them of a terminating push."""
    return (time_ns // _MS_NS + _INTERVALS * push_interval_ms) // _MINUTE_MS


def carry_forward(
    client_key: int,
    sources: Sequence[Source],
    *,
    state: ClientState | None,
    cumulative: bytes | None,
    known: KnownContributions,
    closed: int,
    carried: CarryResult,
) -> None:
    """Carry one client's counts forward and update its state.

    A push without entries has no counts. If it is newer than all entries, the three intervals start
    at it, or end with its minute if it is a terminating push.

    Args:
        sources: In ascending order: minutes whose newest push is in this batch, and pushes without
            entries.
        state: Stored state of the client.
        known: The contributions before.
    """
    if _is_in_order(sources, state) and not known.has_stored(client_key):
        _follow(client_key, sources, state, cumulative, closed, carried)
        return
    own = [source for source in sources if source.counts is not None]
    # An empty push may be ahead of the minutes with counts. Entries up to it are not older than
    # those.
    last_known = min(state.minute, state.covered_until) if state is not None else None
    newest = own[-1] if own and (last_known is None or own[-1].minute >= last_known) else None
    if state is None:
        last = newest or sources[-1]
        covered, carried_from = last.minute, last.minute + 1
    else:
        last = Source(
            state.minute, state.last_ns, state.push_interval_ms, state.terminated, state.counts or NO_COUNTS
        )
        covered, carried_from = state.covered_until, state.carried_from
        if newest is not None:
            last = newest if newest.time_ns >= state.last_ns else last._replace(counts=newest.counts)
            covered, carried_from = newest.minute, newest.minute + 1
    for source in sources:
        if source.counts is None and source.time_ns > last.time_ns:
            last = source._replace(minute=max(last.minute, source.minute), counts=last.counts)

    with_entries = {source.minute for source in own}
    if last_known is not None:
        with_entries.add(last_known)

    def fill(first: int, until: int, counts: bytes, last_ns: int) -> int:
        body = decode_contribution(counts).body
        wanted_until = until if counts != NO_COUNTS else first - 1
        # At once up to the first minute that may have a contribution or an entry.
        free_until = min(wanted_until, known.free_until(client_key, first, wanted_until))
        free_until = min([free_until, *(minute - 1 for minute in with_entries if minute >= first)])
        if free_until >= first:
            carried.add(client_key, first, free_until, packed=counts, last_ns=last_ns)
            first = free_until + 1
        for minute in count(first):
            existing = known.get((client_key, minute))
            wanted = minute <= until and counts != NO_COUNTS
            if minute in with_entries or (existing is not None and existing.entries > 0):
                return max(first - 1, min(minute - 1, until))
            if existing is None and not wanted:
                return max(first - 1, until)
            values = counts if wanted else NO_COUNTS
            if existing is None or existing.packed != values:
                if existing is not None:
                    carried.subtract(existing)
                if wanted:
                    carried.counts.append((minute, minute, body, 1))
                carried.contributions.append(
                    Contribution(
                        client_key=client_key, minute=minute, entries=0, last_ns=last_ns, packed=values
                    )
                )
        raise AssertionError("count() has no end")

    final = min(closed, _source_limit(last))
    for source in own:
        if source is not newest:
            fill(
                source.minute + 1,
                min(_source_limit(source), last.minute - 1),
                source.counts or NO_COUNTS,
                source.time_ns,
            )
    if state is not None and last_known is not None and (newest is None or newest.minute > last_known):
        following = next((source.minute for source in own if source.minute > last_known), None)
        if following is None:
            covered = fill(covered + 1, final, last.counts or NO_COUNTS, last.time_ns)
        elif following > state.covered_until and all(source.minute != last_known for source in own):
            # Else this batch has the newest push of the minute, which was carried above.
            until = carry_limit(
                state.minute, state.last_ns, state.push_interval_ms, terminating=state.terminated
            )
            fill(state.covered_until + 1, until, state.counts or NO_COUNTS, state.last_ns)
    if newest is not None:
        covered = fill(newest.minute + 1, final, newest.counts or NO_COUNTS, newest.time_ns)

    new_state = _state(client_key, last, covered, carried_from, state, cumulative)
    if new_state != state:
        carried.clients.append(new_state)


def _is_in_order(sources: Sequence[Source], state: ClientState | None) -> bool:
    """Return whether all sources have counts, and are newer than the state."""
    if not sources or any(source.counts is None for source in sources):
        return False
    return state is None or (
        state.minute <= state.covered_until < sources[0].minute and state.last_ns <= sources[-1].time_ns
    )


def _follow(
    client_key: int,
    sources: Sequence[Source],
    state: ClientState | None,
    cumulative: bytes | None,
    closed: int,
    carried: CarryResult,
) -> None:
    """Carry forward the counts of sources that follow each other.

    This is the usual case, in which no minute between them has a contribution. The result equals
    that of the general one.
    """
    if state is not None and state.counts and state.counts != NO_COUNTS:
        first = state.covered_until + 1
        until = carry_limit(state.minute, state.last_ns, state.push_interval_ms, terminating=state.terminated)
        until = min(until, sources[0].minute - 1)
        if until >= first:
            carried.add(client_key, first, until, packed=state.counts, last_ns=state.last_ns)
    for number, source in enumerate(sources, start=1):
        until = closed if number == len(sources) else sources[number].minute - 1
        until = max(source.minute, min(until, _source_limit(source)))
        if until > source.minute and source.counts is not None and source.counts != NO_COUNTS:
            carried.add(client_key, source.minute + 1, until, packed=source.counts, last_ns=source.time_ns)
    carried.clients.append(_state(client_key, source, until, source.minute + 1, state, cumulative))


def _state(
    client_key: int,
    last: Source,
    covered: int,
    carried_from: int,
    before: ClientState | None,
    cumulative: bytes | None,
) -> ClientState:
    if cumulative is None:
        cumulative = b"" if before is None else before.cumulative
    return ClientState(
        client_key=client_key,
        minute=last.minute,
        last_ns=last.time_ns,
        push_interval_ms=last.push_interval_ms,
        terminated=last.terminating,
        covered_until=covered,
        carried_from=carried_from,
        counts=last.counts or NO_COUNTS,
        cumulative=cumulative,
    )


def _source_limit(source: Source) -> int:
    return carry_limit(source.minute, source.time_ns, source.push_interval_ms, terminating=source.terminating)
