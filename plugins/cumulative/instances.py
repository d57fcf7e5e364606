"""Client instances and their peers, with the series and the bytes that each of them holds.

Owns the accounts and their comparison. ``plugins.cumulative.cumulative`` decides what to do with them. Pure.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Generic

from plugins.cumulative.heaviest import Heaviest
from plugins.cumulative.series import SeriesState, Target, TargetState

__all__ = ["INSTANCE_BYTES", "Budget", "Instance", "Peer"]

#: Pushes of an instance that are remembered, so that a repeated push adds nothing.
_REMEMBERED_PUSHES: Final = 8
#: Memory of an instance without series, with the identities of its last pushes.
INSTANCE_BYTES: Final = 3_072


@dataclass(frozen=True, slots=True)
class Budget:
    """The memory that all series share.

    Attributes:
        max_series: Number of series.
        max_bytes: Estimated bytes of memory.
    """

    max_series: int
    max_bytes: int

    def weight(self, series: int, size: int) -> int:
        """Compare holdings: the larger of the two shares of the budget, scaled to an integer."""
        return max(series * self.max_bytes, size * self.max_series)

    def exceeded_by(self, series: int, size: int) -> bool:
        """Return whether this many series and bytes are more than the budget."""
        return series > self.max_series or size > self.max_bytes


@dataclass(slots=True, eq=False)
class Peer(Generic[TargetState, SeriesState]):
    """A principal, or a source address: the unit between which the budget is shared.

    Attributes:
        name: From :func:`plugins.cumulative.peer.peer_of`.
        series: Series of its instances.
        size: Bytes of its instances.
        weight: Both, as :meth:`Budget.weight` compares them.
        instances: Its instances. The first is the one to end first.
        heaviest: The same instances by weight.
    """

    name: str
    series: int = 0
    size: int = 0
    weight: int = 0
    instances: OrderedDict[str, Instance[TargetState, SeriesState]] = field(default_factory=OrderedDict)
    heaviest: Heaviest[Instance[TargetState, SeriesState]] = field(default_factory=Heaviest)


@dataclass(slots=True, eq=False)
class Instance(Generic[TargetState, SeriesState]):
    """A client instance. One that has ended stays while it may repeat a push.

    Attributes:
        name: Its client instance id.
        peer: Where its holdings are counted.
        seen_ns: When its last push was received, nanoseconds since the epoch.
        silence_ns: After this long without a push its series end.
        swept_ns: When its series were last checked for ones that it no longer pushes.
        series: Its series.
        size: Its bytes.
        weight: Both, as :meth:`Budget.weight` compares them.
        targets: Its targets by their keys.
        by_resource: The target of its last Resource, by the Resource's bytes.
        pushes: Identities of its last pushes, two for each.
    """

    name: str
    peer: Peer[TargetState, SeriesState]
    seen_ns: int
    silence_ns: int
    swept_ns: int
    series: int = 0
    size: int = 0
    weight: int = 0
    targets: dict[Hashable, Target[TargetState, SeriesState]] = field(default_factory=dict)
    by_resource: dict[bytes, Target[TargetState, SeriesState]] = field(default_factory=dict)
    pushes: deque[Hashable] = field(default_factory=lambda: deque(maxlen=2 * _REMEMBERED_PUSHES))

    def overdue(self, now_ns: int) -> bool:
        """Return whether it has no series, or has missed two of its three push intervals."""
        return not self.targets or 3 * (now_ns - self.seen_ns) > 2 * self.silence_ns

    def account(self, budget: Budget, series: int, size: int) -> None:
        """Add to its holdings and to its peer's."""
        self.series += series
        self.size += size
        self.weight = budget.weight(self.series, self.size)
        self.peer.heaviest.changed(self)
        peer = self.peer
        peer.series += series
        peer.size += size
        peer.weight = budget.weight(peer.series, peer.size)
