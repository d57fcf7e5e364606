"""Statistics of a plugin, for /metrics and the REST API.

Owns their form, and the counters of a plugin's calls. Every push that was offered, or recovered
from disk, is in exactly one place: in memory, on disk, in flight, exported, or dropped for one
reason.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from receiver.host.delivery.backlog import Backlog

#: Upper bounds of the histogram of delivery times, in seconds: from a prompt destination to an
#: outage of a day.
DELIVERY_BOUNDS_S: Final = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 86_400.0)


class DropReason(StrEnum):
    """Why a push never reached its destination."""

    QUEUE_FULL = "queue_full"
    PERMANENT = "permanent"
    CRASH = "crash"
    RETRIES_EXHAUSTED = "retries_exhausted"
    SPOOL_FULL = "spool_full"
    SPOOL_DAMAGED = "spool_damaged"
    SHUTDOWN = "shutdown"


class PluginState(StrEnum):
    """A plugin's state in its lifecycle."""

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    #: A call has not returned for long.
    HANGS = "hangs"
    STOPPED = "stopped"
    ABANDONED = "abandoned"


@dataclass(slots=True, kw_only=True)
class CallStatistics:
    """The statistics of one plugin's calls, counted from the start of the receiver."""

    state: PluginState = PluginState.NEW
    exported_batches: int = 0
    """Exports that the destination accepted."""
    rejected_points: int = 0
    """Data points that the destination rejected in accepted exports (OTLP's partial success)."""
    failures: int = 0
    """Failed calls of the plugin's start and export."""
    retries: int = 0
    restarts: int = 0
    """Restarts of the plugin, or of its process, after a crash."""
    consecutive_failures: int = 0
    """Failures since the last success."""
    last_error: str | None = None
    deliveries: tuple[int, ...] = (0,) * (len(DELIVERY_BOUNDS_S) + 1)
    """Exported pushes by the time from their receipt to their export: one number for each of
    :data:`DELIVERY_BOUNDS_S`, and one for longer times."""
    delivery_seconds: float = 0.0
    """The sum of these times."""
    export_seconds: float = 0.0
    """Seconds spent in export calls, including failed ones."""
    exports: int = 0
    """Export calls that returned."""
    call_started_at: float | None = None
    """The start of the current call, in monotonic seconds; None without one."""
    failing_since: float | None = None
    """The start of the first of the failures in a row, in monotonic seconds; None without one."""


@dataclass(slots=True, kw_only=True)
class PluginStatistics(CallStatistics):
    """One plugin's statistics; counters count from the start of the receiver."""

    name: str
    type: str
    """The name of its entry point."""
    delivery: str
    """Which pushes go to disk: ``memory`` (none), ``spool_when_behind`` or ``spool_always``."""
    isolation: str
    """Where it runs: ``thread`` or ``process``."""
    circuit: str
    """The state of its circuit breaker: ``closed`` (normal), ``open`` or ``half_open``."""
    queue_items: int
    """Pushes in memory."""
    queue_bytes: int
    """OTLP bytes in memory."""
    queue_high_water_items: int
    """The most pushes ever in memory."""
    queue_high_water_bytes: int
    """The most OTLP bytes ever in memory."""
    queue_max_items: int
    """The memory's bound in pushes."""
    queue_max_bytes: int
    """The memory's bound in bytes."""
    spool_pushes: int
    spool_bytes: int
    """Bytes on disk, compressed, including delivered pushes that are not deleted yet."""
    spool_max_bytes: int
    """The spool's bound in bytes; 0 without a spool."""
    spool_problem: str | None
    """Why the spool can't be written or committed; None if it works."""
    files_problem: str | None
    """Why changed secrets or certificates can't be used; None if they are in use."""
    in_flight_pushes: int
    """Pushes read for an export, and neither exported nor dropped yet."""
    lag_seconds: float
    """The age of the oldest push that is neither exported nor dropped, in seconds; 0.0 without
    one."""
    offered_pushes: int
    """Pushes handed to the host."""
    recovered_pushes: int
    """Pushes of an earlier run, found on disk."""
    exported_pushes: int
    """Pushes that the destination accepted, also in part, or that had no metrics for it."""
    dropped: Mapping[DropReason, int]
    backlog: Backlog
    """The pushes that wait, and the room for more."""
    call_seconds: float
    """Seconds for which the current call of the plugin has lasted; 0 without one. A hang shows
    here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatistics:
    """A consistent snapshot of a plugin's queue.

    ``offered + recovered`` is the sum of ``memory``, ``disk``, ``in_flight``, ``exported`` and all
    of ``dropped``.
    """

    offered: int
    """Pushes ever offered."""
    recovered: int = 0
    """Pushes of an earlier run, found on disk."""
    memory: int
    """Pushes in memory and not in flight."""
    memory_bytes: int
    """Their OTLP bytes."""
    disk: int = 0
    """Pushes on disk and not in flight."""
    in_flight: int
    """Pushes read and not acknowledged."""
    exported: int
    """Delivered pushes."""
    dropped: Mapping[DropReason, int]
    oldest_received_at_ns: int | None
    """The receive time of the oldest push that is neither exported nor dropped, in nanoseconds
    since the epoch; None without one."""
    writing_since: float | None = None
    """The start of the current write to disk, in monotonic seconds; None without one."""


class Tally:
    """Counts one plugin's calls; its thread writes, any thread reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values = CallStatistics()

    def entered(self, state: PluginState) -> None:
        """Set the plugin's state; ABANDONED is final."""
        with self._lock:
            if self._values.state is not PluginState.ABANDONED:
                self._values.state = state

    def call_began(self, now: float) -> None:
        """Record the start of a call of the plugin, in monotonic seconds."""
        with self._lock:
            self._values.call_started_at = now

    def call_ended(self) -> None:
        """Record the end of a call other than an export."""
        with self._lock:
            self._values.call_started_at = None

    def export_ended(self, seconds: float) -> None:
        """Record the end of an export, successful or not."""
        with self._lock:
            self._values.call_started_at = None
            self._values.export_seconds += seconds
            self._values.exports += 1

    def succeeded(self) -> int:
        """Record a successful call; return the number of failures in a row before it."""
        with self._lock:
            failures, self._values.consecutive_failures = self._values.consecutive_failures, 0
            self._values.failing_since = None
            return failures

    def failed(self, error: str) -> None:
        """Record a failed call; the error text must hold no secret."""
        with self._lock:
            if not self._values.consecutive_failures:
                self._values.failing_since = self._values.call_started_at
            self._values.failures += 1
            self._values.consecutive_failures += 1
            self._values.last_error = error

    def retried(self) -> None:
        """Count a retried export."""
        with self._lock:
            self._values.retries += 1

    def restarted(self) -> None:
        """Count a restart after a crash."""
        with self._lock:
            self._values.restarts += 1

    def exported(self, delivery_times_s: Iterable[float]) -> None:
        """Count an export that the destination accepted.

        ``delivery_times_s`` has each push's seconds since its receipt.
        """
        with self._lock:
            counts = list(self._values.deliveries)
            for time_s in delivery_times_s:
                counts[bisect_left(DELIVERY_BOUNDS_S, time_s)] += 1
                self._values.delivery_seconds += time_s
            self._values.deliveries = tuple(counts)
            self._values.exported_batches += 1

    def rejected(self, points: int) -> None:
        """Count data points that the destination rejected."""
        with self._lock:
            self._values.rejected_points += points

    def snapshot(self) -> CallStatistics:
        """Return a consistent copy of the values."""
        with self._lock:
            return replace(self._values)
