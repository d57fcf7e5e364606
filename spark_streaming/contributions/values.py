"""State of clients between batches, and the result of a reconciliation.

``codec`` encodes the bytes in these values. The store keeps them unchanged. There are some for each
push, so they are named tuples, which are made in a quarter of a data class's time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc


class Contribution(NamedTuple):
    """What one client instance has added to one minute, or to each minute of a range."""

    client_key: int
    """Key of the instance."""
    minute: int
    """Whole minutes since the epoch."""
    entries: int
    """Number of combined entries. 0 if counts were only carried forward to the minute."""
    last_ns: int
    """Time of the newest entry. If ``entries`` is 0, of the entry that was carried forward."""
    packed: bytes
    """Encoded points, with which another entry of this minute is combined."""
    until: int = -1
    """The last minute to which the same counts were carried; -1 for ``minute`` alone."""

    @property
    def last_minute(self) -> int:
        """The last minute of the range."""
        return max(self.minute, self.until)


class ClientState(NamedTuple):
    """State of one client instance."""

    client_key: int
    """Key of the instance."""
    minute: int
    """Minute of its newest entry."""
    last_ns: int
    """Time of its newest entry."""
    push_interval_ms: int
    """Push interval at that time."""
    terminated: bool
    """Whether the newest push was a terminating one."""
    covered_until: int
    """Last minute that has the client's counts, its own or carried forward."""
    carried_from: int
    """First minute to which ``counts`` were carried forward. They were carried to all minutes from
    it to ``covered_until``. For these no contribution is stored."""
    counts: bytes
    """Encoded newest values of rule ``last``, which are carried forward."""
    cumulative: bytes
    """Encoded newest values of its cumulative sums and histograms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """Changes that the store must apply."""

    rows: pa.Table
    """``ROLLUP_ROWS`` to merge: aggregated points and corrections."""
    buckets: pa.Table
    """``BUCKET_ROWS`` to add: the growth of cumulative histograms."""
    contributions: list[Contribution]
    """To store. Each replaces the one of its client and minute."""
    clients: list[ClientState]
    """To store. Each replaces the state of its client."""

    def since(self, minute: int) -> Reconciliation:
        """Return what it says of the minutes from one on, and the states."""
        return replace(
            self,
            rows=self.rows.filter(pc.greater_equal(self.rows["minute"], minute)),
            buckets=self.buckets.filter(pc.greater_equal(self.buckets["minute"], minute)),
            contributions=[
                contribution if contribution.minute >= minute else contribution._replace(minute=minute)
                for contribution in self.contributions
                if contribution.last_minute >= minute
            ],
        )
