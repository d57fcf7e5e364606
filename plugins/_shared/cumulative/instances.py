"""Client instances, their targets, and the peers that share the memory bounds."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

from plugins._shared.cumulative.series import Kind, Series
from plugins._shared.cumulative.shape import Shape
from receiver.peers.shares import Holdings
from receiver.peers.sources import block_of
from receiver.plugin import ClientTelemetryContext

#: Pushes that an instance remembers, so that a repeated push adds nothing.
_REMEMBERED_PUSHES: Final = 8
#: Bytes of an instance without series, with the identities of its last pushes.
INSTANCE_BYTES: Final = 3_072
#: Principals without an account. Their clients are grouped by source address.
_NO_ACCOUNT: Final = frozenset({"", "User:ANONYMOUS", "User:unknown"})


def peer_of(context: ClientTelemetryContext) -> str:
    """Name the peer of a push: its principal, or without one its address block."""
    if context.principal not in _NO_ACCOUNT:
        return f"principal {context.principal}"
    return f"address {block_of(context.source_address)}"


@dataclass(frozen=True, slots=True)
class Budget:
    """The bounds on series and estimated bytes that all peers share."""

    max_series: int
    max_bytes: int

    def weight(self, series: int, size: int) -> int:
        """Return the larger of the two shares of the budget, scaled to an integer."""
        return max(series * self.max_bytes, size * self.max_series)

    def exceeded_by(self, series: int, size: int) -> bool:
        """Return whether this many series or bytes exceed the budget."""
        return series > self.max_series or size > self.max_bytes


@dataclass(slots=True, eq=False)
class Target:
    """One Resource of one client instance: a source of series for a destination."""

    key: Hashable
    """The result of the caller's ``identify``, unique within the instance."""
    resource: bytes = b""
    """The Resource's bytes in the last push."""
    series: dict[tuple[str, str, Kind], dict[tuple[bytes, ...], Series]] = field(default_factory=dict)
    """Series by metric name, unit and kind, then by attributes."""
    shapes: list[Shape | None] = field(default_factory=list)
    """The encodings of the last push's metrics, in their order."""
    size: int = 0
    """Estimated bytes without the series."""
    state: Any = None
    """The caller's own state; None until the caller sets it."""


@dataclass(slots=True, eq=False)
class Peer:
    """A principal or a source address, from :func:`peer_of`."""

    name: str
    series: int = 0
    size: int = 0
    instances: OrderedDict[str, Instance] = field(default_factory=OrderedDict)
    """Its instances, the first to end first."""
    weights: Holdings[Instance] = field(default_factory=Holdings)
    """:meth:`Budget.weight` of each instance."""


@dataclass(slots=True, eq=False)
class Instance:
    """A client instance. It stays after its series ended, while it may repeat a push."""

    name: str
    peer: Peer
    seen_ns: int
    """Receive time of its last push, nanoseconds since the epoch."""
    silence_ns: int
    """Its series end after this long without a push."""
    swept_ns: int
    """Time of the last check for series that it no longer pushes."""
    series: int = 0
    size: int = 0
    """Bytes of its series, targets and itself."""
    targets: dict[Hashable, Target] = field(default_factory=dict)
    by_resource: dict[bytes, Target] = field(default_factory=dict)
    """The target of its last Resource, by the Resource's bytes."""
    pushes: deque[Hashable] = field(default_factory=lambda: deque(maxlen=2 * _REMEMBERED_PUSHES))
    """Identities of its last pushes, two for each."""

    def overdue(self, now_ns: int) -> bool:
        """Return whether it has no series, or missed two of three push intervals."""
        return not self.targets or 3 * (now_ns - self.seen_ns) > 2 * self.silence_ns
