"""Owns what is remembered of a client between batches, and what settling a batch gives.

The bytes in these values are packed by ``packed``: whoever stores them keeps them as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

__all__ = ["ClientState", "Contribution", "Reconciliation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What one client instance has added to one minute.

    Attributes:
        client_key: The instance.
        minute: Whole minutes since the epoch.
        entries: How many entries it is made of; 0 when its counts were only carried there.
        last_ns: The time of the newest of them; of the entry they were carried from when ``entries`` is 0.
        packed: What a further entry in this minute is combined with.
    """

    client_key: int
    minute: int
    entries: int
    last_ns: int
    packed: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientState:
    """Where one client instance stands.

    Attributes:
        client_key: The instance.
        minute: The minute of its newest entry.
        last_ns: The time of its newest entry.
        push_interval_ms: The push interval it had then.
        terminated: Whether that entry was of a terminating push: it left.
        covered_until: Minutes up to and with this one have the client's counts, its own or carried ones.
        counts: The last values of rule ``last``, which are carried.
        cumulative: The last values of its cumulative sums.
    """

    client_key: int
    minute: int
    last_ns: int
    push_interval_ms: int
    terminated: bool
    covered_until: int
    counts: bytes
    cumulative: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """What entries change.

    Attributes:
        rows: What their points add up to, and corrections (``ROLLUP_ROWS``), to be merged.
        contributions: To be stored; each takes the place of the stored one of its client and minute.
        clients: To be stored; each takes the place of the stored one of its client.
    """

    rows: pa.Table
    contributions: list[Contribution]
    clients: list[ClientState]
