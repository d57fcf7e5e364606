"""Metrics of what principals and owners move, with a bounded number of series."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from receiver.metrics.families import counter, gauge
from receiver.telemetry.identity import SHARED_PRINCIPALS
from receiver.traffic.usage_store import Amounts, Key, PrincipalUse

#: Principals, and owners, with series of their own; the others share :data:`OTHER`.
MAX_PRINCIPALS: Final = 100
OTHER: Final = "other"
#: The owner of what nobody declares.
UNDECLARED: Final = "undeclared"

_NOTHING: Final = Amounts(0, 0, 0, 0)


class _Moved:
    """What each label has moved: the first labels for themselves, the others together."""

    def __init__(self) -> None:
        self._amounts: dict[str, Amounts] = {}

    def add(self, parts: Iterable[tuple[str, Amounts]]) -> None:
        """Add a settlement; labels with most bytes get series first."""
        sums: dict[str, Amounts] = {}
        for label, amounts in parts:
            sums[label] = sums.get(label, _NOTHING).plus(amounts)
        for label, amounts in sorted(sums.items(), key=lambda entry: -sum(entry[1][:2])):
            shown = self.shown(label)
            self._amounts[shown] = self._amounts.get(shown, _NOTHING).plus(amounts)

    def shown(self, label: str) -> str:
        """Return the label of the series that counts for a label."""
        is_one_too_many = label not in self._amounts and len(self._amounts) >= MAX_PRINCIPALS
        return OTHER if is_one_too_many else label

    def families(self, prefix: str, by: str) -> Iterator[Metric]:
        """Return the series of bytes and requests."""
        moved = {(label, "from_clients"): amounts.bytes_in for label, amounts in self._amounts.items()}
        moved |= {(label, "to_clients"): amounts.bytes_out for label, amounts in self._amounts.items()}
        yield counter(
            f"{prefix}_bytes",
            f"Bytes of Kafka's protocol from and to clients by {by}.",
            moved,
            by,
            "direction",
        )
        requests = {label: amounts.requests for label, amounts in self._amounts.items()}
        yield counter(f"{prefix}_requests", f"Requests of clients by {by}.", requests, by)


class TrafficMetrics(Collector):
    """What principals and owners have moved, and when principals were used.

    Counters begin with the core. The first labels keep series of their own, the greatest of a
    settlement first. So counters never fall, and their sum is everything.

    Args:
        label_of: Returns the label of a principal, hashed if privacy demands it; None: it has none.
        owner_of: Returns the owner of usage, empty without one; None: there are no owners.
    """

    def __init__(
        self,
        label_of: Callable[[str], str | None],
        uses: Callable[[], Mapping[str, PrincipalUse]],
        owner_of: Callable[[Key], str | None] = lambda _: None,
    ) -> None:
        self._label_of = label_of
        self._uses = uses
        self._owner_of = owner_of
        self._principals = _Moved()
        self._owners = _Moved()
        self._new_networks: dict[str, int] = {}

    def add(self, usage: Mapping[Key, Amounts], new_networks: Mapping[str, int]) -> None:
        """Add a settlement."""
        self._principals.add((self._label(key.principal), amounts) for key, amounts in usage.items())
        self._owners.add(
            (owner or UNDECLARED, amounts)
            for key, amounts in usage.items()
            if (owner := self._owner_of(key)) is not None
        )
        for principal, count in new_networks.items():
            label = self._principals.shown(self._label(principal))
            self._new_networks[label] = self._new_networks.get(label, 0) + count

    def _label(self, principal: str) -> str:
        return self._label_of(principal) or OTHER

    def collect(self) -> Iterator[Metric]:
        """Return all series."""
        yield from self._principals.families("traffic", "principal")
        yield from self._owners.families("owner_traffic", "owner")
        yield counter(
            "principal_new_networks",
            "Networks from which a principal was used that had been known for a week without them.",
            self._new_networks,
            "principal",
        )
        yield gauge(
            "principal_last_used_timestamp_seconds",
            "When a principal was last used, of those that were not for longest.",
            self._last_used(),
            "principal",
        )

    def _last_used(self) -> dict[str, float]:
        own = [
            (use.last_ms, principal)
            for principal, use in self._uses().items()
            if principal not in SHARED_PRINCIPALS
        ]
        oldest = [
            (self._label_of(principal), last_ms)
            for last_ms, principal in heapq.nsmallest(MAX_PRINCIPALS, own)
        ]
        return {label: last_ms / 1000 for label, last_ms in oldest if label is not None}
