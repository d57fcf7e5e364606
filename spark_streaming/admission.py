"""Decides which new series may be added, by client, principal and minute.

New are the series that the database does not have. They count in the hour or minute in which their
push was received, not in which it is read. So a backlog is admitted like the pushes were that it
consists of, and a batch that is repeated finds its series there.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from spark_streaming.settings import NewSeriesSettings

#: What a series is over the bound of.
Bound = Literal["client", "principal", "minute"]

#: A counter: the bound, the first minute of its time since the epoch, and the digest of a name.
Count: TypeAlias = tuple[Bound, int, bytes]

_HOUR: Final = 60
_EVERYBODY: Final = b""
#: Principals that many clients share. They have no bound, like in the receiver.
_SHARED: Final = frozenset({None, "", "User:ANONYMOUS", "User:unknown"})


class Candidate(NamedTuple):
    """A new series."""

    cluster_id: str | None
    principal: str | None
    client_id: str | None
    minute: int
    """When its push was received, in minutes since the epoch."""


def digest(*names: str | None) -> bytes:
    """Return a short text for names of any length."""
    return hashlib.blake2b(repr(names).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def counts(candidate: Candidate) -> Iterator[Count]:
    """Yield the counters of a series, that of its client first."""
    hour = candidate.minute // _HOUR * _HOUR
    yield "client", hour, digest(candidate.cluster_id, candidate.principal, candidate.client_id)
    if candidate.principal not in _SHARED:
        yield "principal", hour, digest(candidate.cluster_id, candidate.principal)
    yield "minute", candidate.minute, _EVERYBODY


def admit(
    candidates: Sequence[Candidate], counted: Mapping[Count, int], settings: NewSeriesSettings
) -> tuple[list[Bound | None], Counter[Count]]:
    """Decide which new series are added.

    Clients take turns, those with the fewest series in their hour first. So a client with many
    leaves room for the others.

    Args:
        counted: Series that were added before, by counter.

    Returns:
        For each candidate the bound that it is over, None if it is added; and the counters of the
        added ones.
    """
    most: dict[Bound, int | None] = {
        "client": settings.client_per_hour,
        "principal": settings.principal_per_hour,
        "minute": settings.per_minute,
    }
    of = {candidate: tuple(counts(candidate)) for candidate in set(candidates)}
    turns: list[int] = []
    next_turn: dict[Count, int] = {}
    for candidate in candidates:
        client = of[candidate][0]
        turn = next_turn.get(client, counted.get(client, 0))
        turns.append(turn)
        next_turn[client] = turn + 1
    over: list[Bound | None] = [None] * len(candidates)
    added: Counter[Count] = Counter()
    for index in sorted(range(len(candidates)), key=turns.__getitem__):
        counters = of[candidates[index]]
        for counter in counters:
            bound = most[counter[0]]
            if bound is not None and counted.get(counter, 0) + added[counter] >= bound:
                over[index] = counter[0]
                break
        else:
            added.update(counters)
    return over, added
