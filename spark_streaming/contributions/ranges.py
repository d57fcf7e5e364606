"""Keeps carried counts as ranges of minutes.

The counts that a client's newest source carries forward are not stored by minute: the client's
state has them, and the first and last minute that have them. They are stored once another source
follows, as one contribution for a range of minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from spark_streaming.contributions.codec import NO_COUNTS
from spark_streaming.contributions.values import ClientState, Contribution

__all__ = ["MAX_RANGE_MINUTES", "KnownContributions", "carries", "in_ranges", "since"]

#: Most minutes of a range. The store looks for ranges that begin so many minutes before.
MAX_RANGE_MINUTES: Final = 64

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
        clients: States of the clients.
    """

    __slots__ = ("_clients", "_stored")

    def __init__(
        self, stored: Mapping[tuple[int, int], Contribution], clients: Mapping[int, ClientState]
    ) -> None:
        self._stored = stored
        self._clients = clients

    def get(self, pair: tuple[int, int]) -> Contribution | None:
        """Return the contribution of a client and minute; None if there is none."""
        key, minute = pair
        state = self._clients.get(key)
        if state is not None and carries(state, minute):
            return _carried(state, minute)
        return self._stored.get(pair)


def in_ranges(
    carried: Iterable[Contribution],
    own: Iterable[Contribution],
    *,
    before: Mapping[int, ClientState],
    after: Iterable[ClientState],
) -> tuple[list[Contribution], list[ClientState]]:
    """Decide which carried counts are stored, and which the states imply.

    Args:
        carried: Changed contributions of carried counts, each for one minute.
        own: Changed contributions of entries.
        before: States of the clients before.
        after: Their new states.

    Returns:
        The contributions of carried counts to store, and the states.
    """
    changes: dict[int, dict[int, Contribution]] = {}
    for one in carried:
        changes.setdefault(one.client_key, {})[one.minute] = one
    own_minutes: dict[int, set[int]] = {}
    for one in own:
        own_minutes.setdefault(one.client_key, set()).add(one.minute)
    states = {state.client_key: state for state in after}
    found: list[Contribution] = []
    for key in changes.keys() | states.keys():
        changed, old = changes.get(key, {}), before.get(key)
        state = states[key] if key in states else before[key]
        # A late entry may change a minute amid the range. The range begins after it then.
        others = [m for m, one in changed.items() if carries(state, m) and one.packed != state.counts]
        if others:
            state = states[key] = replace(state, carried_from=max(others) + 1)
        kept = {minute: one for minute, one in changed.items() if not carries(state, minute)}
        if old is not None and (old.counts, old.carried_from) != (state.counts, state.carried_from):
            written = changed.keys() | own_minutes.get(key, set())
            same = old.counts == state.counts
            for minute in range(old.carried_from, old.covered_until + 1):
                if carries(old, minute) and minute not in written and not (same and carries(state, minute)):
                    kept[minute] = _carried(old, minute)
        found += _merged(kept)
    return found, list(states.values())


def since(contributions: Iterable[Contribution], minute: int) -> list[Contribution]:
    """Return what contributions say of the minutes from one on."""
    return [
        one if one.minute >= minute else replace(one, minute=minute)
        for one in contributions
        if one.last_minute >= minute
    ]


def _carried(state: ClientState, minute: int) -> Contribution:
    return Contribution(
        client_key=state.client_key, minute=minute, entries=0, last_ns=state.last_ns, packed=state.counts
    )


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
            yield replace(first, until=until)
        first, until = one, minute
    if first is not None:
        yield replace(first, until=until)
