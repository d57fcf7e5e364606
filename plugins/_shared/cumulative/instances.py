"""Client instances and their peers, with the number of series and bytes of each."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from plugins._shared.cumulative.heaviest import Heaviest
from plugins._shared.cumulative.target import Target

__all__ = ["INSTANCE_BYTES", "Budget", "Instance", "Peer"]

#: Pushes that an instance remembers, so that a repeated push adds nothing.
_REMEMBERED_PUSHES: Final = 8
#: Bytes of an instance without series, with the identities of its last pushes.
INSTANCE_BYTES: Final = 3_072


@dataclass(frozen=True, slots=True)
class Budget:
    """The bounds that all series share.

    Attributes:
        max_series: Bound on the number of series.
        max_bytes: Bound on the estimated bytes.
    """

    max_series: int
    max_bytes: int

    def weight(self, series: int, size: int) -> int:
        """Return the larger of the two shares of the budget, scaled to an integer."""
        return max(series * self.max_bytes, size * self.max_series)

    def exceeded_by(self, series: int, size: int) -> bool:
        """Return whether this many series or bytes exceed the budget."""
        return series > self.max_series or size > self.max_bytes


@dataclass(slots=True, eq=False)
class Peer:
    """A principal or a source address, between which the budget is shared.

    Attributes:
        name: From :func:`plugins._shared.cumulative.peer.peer_of`.
        series: Number of series of its instances.
        size: Bytes of its instances.
        weight: :meth:`Budget.weight` of both.
        instances: Its instances, the first to end first.
        heaviest: The same instances by weight.
    """

    name: str
    series: int = 0
    size: int = 0
    weight: int = 0
    instances: OrderedDict[str, Instance] = field(default_factory=OrderedDict)
    heaviest: Heaviest[Instance] = field(default_factory=Heaviest)


@dataclass(slots=True, eq=False)
class Instance:
    """A client instance. It stays after its series ended, while it may repeat a push.

    Attributes:
        name: The client instance id.
        peer: Its peer.
        seen_ns: Receive time of its last push, nanoseconds since the epoch.
        silence_ns: Its series end after this long without a push.
        swept_ns: Time of the last check for series that it no longer pushes.
        series: Number of its series.
        size: Bytes of its series, targets and itself.
        weight: :meth:`Budget.weight` of both.
        targets: Its targets by key.
        by_resource: The target of its last Resource, by the Resource's bytes.
        pushes: Identities of its last pushes, two for each.
    """

    name: str
    peer: Peer
    seen_ns: int
    silence_ns: int
    swept_ns: int
    series: int = 0
    size: int = 0
    weight: int = 0
    targets: dict[Hashable, Target] = field(default_factory=dict)
    by_resource: dict[bytes, Target] = field(default_factory=dict)
    pushes: deque[Hashable] = field(default_factory=lambda: deque(maxlen=2 * _REMEMBERED_PUSHES))

    def overdue(self, now_ns: int) -> bool:
        """Return whether it has no series, or missed two of three push intervals."""
        return not self.targets or 3 * (now_ns - self.seen_ns) > 2 * self.silence_ns

    def account(self, budget: Budget, series: int, size: int) -> None:
        """Add series and bytes to the instance and its peer."""
        self.series += series
        self.size += size
        self.weight = budget.weight(self.series, self.size)
        self.peer.heaviest.changed(self)
        peer = self.peer
        peer.series += series
        peer.size += size
        peer.weight = budget.weight(peer.series, peer.size)
