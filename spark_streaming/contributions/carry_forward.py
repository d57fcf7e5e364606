"""Owns how a client's counts go on in minutes in which it says nothing, until it left.

A minute without an entry of its own has the counts of the nearest minute before it that has one (its
*source*), up to the minute in which three push intervals after the source's newest push end; none after a
terminating push. Minutes between two known ones are carried at once, those after the newest one when they are
over.

A late entry changes the minutes after it too: those that were carried from an older source are carried from
it now, or no more. That reaches as far as three push intervals (the longer one of the late entry's and the
newest one's); a client whose interval was longer in between keeps the older counts beyond that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

from spark_streaming.contributions.codec import NO_COUNTS, decode_contribution
from spark_streaming.contributions.values import ClientState, Contribution

__all__ = ["CarryResult", "Source", "carry_forward", "carry_limit"]

_MINUTE_MS: Final = 60_000
_MS_NS: Final = 1_000_000
_INTERVALS: Final = 3


class Source(NamedTuple):
    """The newest push of a client in a minute; ``counts`` is None for one without any entry."""

    minute: int
    time_ns: int
    push_interval_ms: int
    terminating: bool
    counts: bytes | None


@dataclass(slots=True, kw_only=True)
class CarryResult:
    """What carrying changes.

    Attributes:
        counts: Minutes, packed counts, and whether they are added (1) or taken away (-1).
        contributions: Of minutes that are carried now, or no more.
        clients: Where the clients stand.
    """

    counts: list[tuple[int, bytes, int]] = field(default_factory=list)
    contributions: list[Contribution] = field(default_factory=list)
    clients: list[ClientState] = field(default_factory=list)

    def take_away(self, contribution: Contribution) -> None:
        """Takes carried counts out of their minute again."""
        self.counts.append((contribution.minute, decode_contribution(contribution.packed).body, -1))


def carry_limit(minute: int, time_ns: int, push_interval_ms: int, *, terminating: bool = False) -> int:
    """Gives the last minute to which an entry's counts go on.

    It is what PostgreSQL computes as ``client_state.carry_to``: were it less, the client would be waited for
    without end.
    """
    if terminating:
        return minute
    return max(minute, (time_ns // _MS_NS + _INTERVALS * push_interval_ms) // _MINUTE_MS)


def carry_forward(
    client_key: int,
    sources: Sequence[Source],
    *,
    state: ClientState | None,
    cumulative: bytes | None,
    stored: Mapping[tuple[int, int], Contribution],
    closed: int,
    carried: CarryResult,
) -> None:
    """Carries one client's counts, and moves its state on.

    A push without any entry has no values to carry: when it is newer than all entries, it is what the three
    intervals are counted from, or what ends the carrying after its minute.

    Args:
        client_key: The client.
        sources: In ascending order: minutes whose newest push is in this batch, and pushes without any entry.
        state: Where the client stood.
        cumulative: Its cumulative sums, if they changed.
        stored: Contributions that are stored.
        closed: Minutes up to and with this one are over.
        carried: Where it goes.
    """
    if len(sources) == 1:
        (source,) = sources
        follows = state is None or source.minute == state.covered_until + 1
        if source.counts is not None and follows and closed <= source.minute:
            # As most are: nothing to fill before it, nothing to carry after it yet.
            carried.clients.append(_state(client_key, source, source.minute, state, cumulative))
            return
    own = [source for source in sources if source.counts is not None]
    # An empty push may be ahead of the minutes that have counts: entries up to it are no older than those.
    known = min(state.minute, state.covered_until) if state is not None else None
    newest = own[-1] if own and (known is None or own[-1].minute >= known) else None
    if state is None:
        last = newest or sources[-1]
        covered = last.minute
    else:
        last = Source(
            state.minute, state.last_ns, state.push_interval_ms, state.terminated, state.counts or NO_COUNTS
        )
        covered = state.covered_until
        if newest is not None:
            last = newest if newest.time_ns >= state.last_ns else last._replace(counts=newest.counts)
            covered = newest.minute
    for silent in sources:
        if silent.counts is None and silent.time_ns > last.time_ns:
            last = silent._replace(minute=max(last.minute, silent.minute), counts=last.counts)

    heard = {source.minute for source in own}
    if known is not None:
        heard.add(known)

    def walk(first: int, until: int, counts: bytes, last_ns: int) -> int:
        body = decode_contribution(counts).body
        for minute in count(first):
            held = stored.get((client_key, minute))
            wanted = minute <= until and counts != NO_COUNTS
            if minute in heard or (held is not None and held.entries > 0):
                return max(first - 1, min(minute - 1, until))
            if held is None and not wanted:
                return max(first - 1, until)
            values = counts if wanted else NO_COUNTS
            if held is None or held.packed != values:
                if held is not None:
                    carried.take_away(held)
                if wanted:
                    carried.counts.append((minute, body, 1))
                carried.contributions.append(
                    Contribution(
                        client_key=client_key, minute=minute, entries=0, last_ns=last_ns, packed=values
                    )
                )
        raise AssertionError("count() has no end")

    final = min(closed, _source_limit(last))
    for source in own:
        if source is not newest:
            walk(
                source.minute + 1,
                min(_source_limit(source), last.minute - 1),
                source.counts or NO_COUNTS,
                source.time_ns,
            )
    if state is not None and known is not None and (newest is None or newest.minute > known):
        following = next((source.minute for source in own if source.minute > known), None)
        if following is None:
            covered = walk(covered + 1, final, last.counts or NO_COUNTS, last.time_ns)
        elif following > state.covered_until:
            until = carry_limit(
                state.minute, state.last_ns, state.push_interval_ms, terminating=state.terminated
            )
            walk(state.covered_until + 1, until, state.counts or NO_COUNTS, state.last_ns)
    if newest is not None:
        covered = walk(newest.minute + 1, final, newest.counts or NO_COUNTS, newest.time_ns)

    moved = _state(client_key, last, covered, state, cumulative)
    if moved != state:
        carried.clients.append(moved)


def _state(
    client_key: int, last: Source, covered: int, before: ClientState | None, cumulative: bytes | None
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
        counts=last.counts or NO_COUNTS,
        cumulative=cumulative,
    )


def _source_limit(source: Source) -> int:
    return carry_limit(source.minute, source.time_ns, source.push_interval_ms, terminating=source.terminating)
