"""Keeps carried counts as ranges of minutes.

The counts that a client's newest source carries forward are not stored by minute: the client's
state has them, and the first and last minute that have them. They are stored once another source
follows, as one contribution for a range of minutes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from spark_streaming.contributions.codec import NO_COUNTS
from spark_streaming.contributions.values import ClientState, Contribution

#: Most minutes of a range. The store looks for ranges that begin so many minutes before.
MAX_RANGE_MINUTES: Final = 64

_NO_CHANGES: Final[dict[int, Contribution]] = {}
_NOTHING: Final = frozenset({b"", NO_COUNTS})


def carries(state: ClientState | None, minute: int) -> bool:
    """Return whether a minute has the counts of a client's state, carried forward."""
    return (
        state is not None
        and state.carried_from <= minute <= state.covered_until
        and state.counts not in _NOTHING
    )


class KnownContributions:
    """Contributions by client and minute: those that states imply, and stored ones.

    Args:
        stored: Stored contributions, by client and minute.
    """

    __slots__ = ("_clients", "_minutes", "_stored")

    def __init__(
        self, stored: Mapping[tuple[int, int], Contribution], clients: Mapping[int, ClientState]
    ) -> None:
        self._stored = stored
        self._clients = clients
        self._minutes: dict[int, list[int]] = {}
        for key, minute in sorted(stored):
            self._minutes.setdefault(key, []).append(minute)

    def has_stored(self, client_key: int) -> bool:
        """Return whether there is a stored contribution of a client."""
        return client_key in self._minutes

    def free_until(self, client_key: int, first: int, until: int) -> int:
        """Return the last minute up to which there is no contribution.

        Returns:
            At most ``until``; ``first - 1`` if ``first`` has a contribution.
        """
        state = self._clients.get(client_key)
        if state is not None and state.covered_until >= first and state.counts not in _NOTHING:
            until = min(until, max(state.carried_from, first) - 1)
        minutes = self._minutes.get(client_key)
        if minutes is not None:
            at = bisect_left(minutes, first)
            if at < len(minutes):
                until = min(until, minutes[at] - 1)
        return max(until, first - 1)

    def get(self, pair: tuple[int, int]) -> Contribution | None:
        """Return the contribution of a client and minute; None if there is none."""
        key, minute = pair
        state = self._clients.get(key)
        if state is not None and carries(state, minute):
            return _carried(state, minute)
        return self._stored.get(pair)


def in_ranges(
    changed: Iterable[Contribution],
    new: Iterable[Contribution],
    own: Iterable[Contribution],
    *,
    before: Mapping[int, ClientState],
    after: Iterable[ClientState],
) -> tuple[list[Contribution], list[ClientState]]:
    """Return the contributions of carried counts to store, and the states.

    The states imply the other counts.

    Args:
        changed: Changed contributions of carried counts, each for one minute.
        new: Carried counts of ranges of minutes that had no contribution.
    """
    changes: dict[int, dict[int, Contribution]] = {}
    for contribution in changed:
        changes.setdefault(contribution.client_key, {})[contribution.minute] = contribution
    own_minutes: dict[int, list[int]] = {}
    for contribution in own:
        own_minutes.setdefault(contribution.client_key, []).append(contribution.minute)
    states = {state.client_key: state for state in after}
    found: list[Contribution] = []
    ranges: dict[int, list[Contribution]] = {}
    for key in changes.keys() | states.keys() | own_minutes.keys():
        of_client, old = changes.get(key, _NO_CHANGES), before.get(key)
        state = states[key] if key in states else before[key]
        # A late entry may change a minute amid the range, or have it. The range begins after it
        # then.
        others = [
            minute
            for minute, changed_one in of_client.items()
            if carries(state, minute) and changed_one.packed != state.counts
        ]
        others += [minute for minute in own_minutes.get(key, ()) if carries(state, minute)]
        if others:
            state = states[key] = state._replace(carried_from=max(others) + 1)
        kept = {
            minute: contribution for minute, contribution in of_client.items() if not carries(state, minute)
        }
        if old is not None and (old.counts, old.carried_from) != (state.counts, state.carried_from):
            written = of_client.keys() | own_minutes.get(key, ())
            whole = _no_longer_implied(old, state, written, kept)
            if whole is not None:
                ranges.setdefault(key, []).append(whole)
        if kept:
            found += _merged(kept)
    for contribution in new:
        state = (
            states[contribution.client_key]
            if contribution.client_key in states
            else before[contribution.client_key]
        )
        # Counts of an earlier source than the newest.
        if not carries(state, contribution.minute):
            ranges.setdefault(contribution.client_key, []).append(contribution)
    for of_one in ranges.values():
        found += _joined(of_one)
    return found, list(states.values())


def _no_longer_implied(
    old: ClientState, state: ClientState, written: AbstractSet[int], kept: dict[int, Contribution]
) -> Contribution | None:
    """Return the range that the old state implied and the new one does not.

    Args:
        written: Minutes whose contributions change.
        kept: Gets the minutes, if they are not one range.
    """
    first, last = old.carried_from, old.covered_until
    if last < first or old.counts in _NOTHING:
        return None
    same = old.counts == state.counts
    still = same and state.carried_from <= last and state.covered_until >= first
    if not still and not any(first <= minute <= last for minute in written):
        return _carried(old, first)._replace(until=last)
    for minute in range(first, last + 1):
        if minute not in written and not (same and carries(state, minute)):
            kept[minute] = _carried(old, minute)
    return None


def _carried(state: ClientState, minute: int) -> Contribution:
    return Contribution(
        client_key=state.client_key, minute=minute, entries=0, last_ns=state.last_ns, packed=state.counts
    )


def _joined(ranges: list[Contribution]) -> Iterator[Contribution]:
    """Join a client's equal ranges that follow each other, and split long ones."""
    ranges.sort(key=lambda span: span.minute)
    joined: list[Contribution] = []
    for span in ranges:
        if joined and joined[-1].last_minute + 1 == span.minute and joined[-1].packed == span.packed:
            joined[-1] = joined[-1]._replace(until=span.last_minute)
        else:
            joined.append(span)
    for span in joined:
        if span.until - span.minute < MAX_RANGE_MINUTES:
            yield span
            continue
        for minute in range(span.minute, span.last_minute + 1, MAX_RANGE_MINUTES):
            yield span._replace(minute=minute, until=min(minute + MAX_RANGE_MINUTES - 1, span.last_minute))


def _merged(contributions: Mapping[int, Contribution]) -> Iterator[Contribution]:
    """Merge the contributions of neighbouring minutes that are equal."""
    first: Contribution | None = None
    until = 0
    for minute in sorted(contributions):
        one = contributions[minute]
        if (
            first is not None
            and minute == until + 1
            and one.packed == first.packed
            and minute - first.minute < MAX_RANGE_MINUTES
        ):
            until = minute
            continue
        if first is not None:
            yield first._replace(until=until)
        first, until = one, minute
    if first is not None:
        yield first._replace(until=until)
