"""What the host knows of each plugin's work, in plain numbers: for /metrics and the REST API.

Owns the shapes, and the counting of what is not the delivery log's; no metrics library, no log. Every push
that was offered, or found on disk from before, is at any quiet moment in exactly one place: in memory, on
disk, in flight, exported, or dropped for one reason.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["DropReason", "PluginState", "PluginStatistics", "QueueStatistics", "Tally", "TallySnapshot"]


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
    """Where a plugin is in its lifecycle."""

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    #: It has not come back from a call for long; what it was in before, nobody can tell.
    HANGS = "hangs"
    STOPPED = "stopped"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginStatistics:
    """One look at one plugin. Counters count from the start of the receiver.

    Attributes:
        name: The plugin's unique name.
        type: Its entry point's name.
        state: Where it is in its lifecycle.
        delivery: What of its pushes is kept on disk: ``memory``, ``spool_when_behind`` or ``spool_always``.
        isolation: Where it runs: ``thread`` or ``process``.
        circuit: Whether its destination is asked: ``closed`` (as usual), ``open`` (not now), ``half_open``.
        queue_items: Pushes in memory.
        queue_bytes: OTLP bytes in memory.
        queue_high_water_items: Most pushes ever in memory.
        queue_high_water_bytes: Most OTLP bytes ever in memory.
        queue_max_items: The memory's bound in pushes.
        queue_max_bytes: The memory's bound in bytes.
        spool_pushes: Pushes on disk.
        spool_bytes: Bytes on disk, compressed, with what is deleted later.
        spool_max_bytes: Their bound; 0 without a spool.
        spool_problem: Why the spool can't be used as it should; None while it can.
        in_flight_pushes: Pushes handed to the plugin, or about to be, and neither exported nor dropped yet.
        lag_s: How long ago the oldest push was received that is neither exported nor dropped, in seconds; 0.0
            without one.
        offered_pushes: Pushes handed to the host.
        recovered_pushes: Pushes found on disk from before.
        exported_pushes: Pushes that the destination took, also in part.
        exported_batches: Exports that the destination took.
        dropped: Pushes dropped, by reason; every reason is there.
        rejected_points: Data points that the destination refused in exports it took (OTLP's partial success).
        failures: Failed calls of the plugin's start and export.
        retries: Exports tried again.
        restarts: How often the plugin, or its process, was started again after a crash.
        consecutive_failures: Failures since the last success.
        last_error: What the last failure said; None while there was none.
        export_seconds: Time spent in export calls, in seconds, failed ones included.
        exports: Export calls that ended.
        call_seconds: How long the call that the plugin is in has lasted, in seconds; 0 outside: shows a hang.
    """

    name: str
    type: str
    state: PluginState
    delivery: str
    isolation: str
    circuit: str
    queue_items: int
    queue_bytes: int
    queue_high_water_items: int
    queue_high_water_bytes: int
    queue_max_items: int
    queue_max_bytes: int
    spool_pushes: int
    spool_bytes: int
    spool_max_bytes: int
    spool_problem: str | None
    in_flight_pushes: int
    lag_s: float
    offered_pushes: int
    recovered_pushes: int
    exported_pushes: int
    exported_batches: int
    dropped: Mapping[DropReason, int]
    rejected_points: int
    failures: int
    retries: int
    restarts: int
    consecutive_failures: int
    last_error: str | None
    export_seconds: float
    exports: int
    call_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatistics:
    """One consistent look at a delivery log: at any moment every push is in one of its places.

    ``offered + recovered`` is the sum of ``memory``, ``disk``, ``in_flight``, ``exported`` and what is
    ``dropped``.

    Attributes:
        offered: Pushes ever offered.
        recovered: Pushes found on disk from before.
        memory: Pushes in memory and not in flight.
        memory_bytes: Their OTLP bytes.
        disk: Pushes on disk and not in flight.
        in_flight: Pushes read and not acknowledged.
        exported: Pushes delivered.
        dropped: Pushes dropped, by reason; every reason is there.
        oldest_received_at_ns: When the oldest push that is neither exported nor dropped was received, in
            nanoseconds since the epoch; None without one.
        writing_since: Since when a write to disk has lasted, in monotonic seconds; None outside.
    """

    offered: int
    recovered: int = 0
    memory: int
    memory_bytes: int
    disk: int = 0
    in_flight: int
    exported: int
    dropped: Mapping[DropReason, int]
    oldest_received_at_ns: int | None
    writing_since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TallySnapshot:
    """One consistent look at a :class:`Tally`; attributes as in :class:`PluginStatistics`."""

    state: PluginState
    exported_batches: int
    rejected_points: int
    failures: int
    retries: int
    restarts: int
    consecutive_failures: int
    last_error: str | None
    export_seconds: float
    exports: int
    call_started_at: float | None


class Tally:
    """The counts of one plugin: written by its thread, read by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = PluginState.NEW
        self._exported_batches = 0
        self._rejected_points = 0
        self._failures = 0
        self._retries = 0
        self._restarts = 0
        self._consecutive_failures = 0
        self._last_error: str | None = None
        self._export_seconds = 0.0
        self._exports = 0
        self._call_started_at: float | None = None

    def entered(self, state: PluginState) -> None:
        """The plugin is in another state; ABANDONED is final."""
        with self._lock:
            if self._state is not PluginState.ABANDONED:
                self._state = state

    def call_began(self, now: float) -> None:
        """The plugin is being called (monotonic seconds)."""
        with self._lock:
            self._call_started_at = now

    def call_ended(self) -> None:
        """The plugin came back from a call that is not an export."""
        with self._lock:
            self._call_started_at = None

    def export_ended(self, seconds: float) -> None:
        """The plugin came back from an export, however it went."""
        with self._lock:
            self._call_started_at = None
            self._export_seconds += seconds
            self._exports += 1

    def succeeded(self) -> int:
        """A call succeeded.

        Returns:
            How many calls in a row had failed before it.
        """
        with self._lock:
            failures, self._consecutive_failures = self._consecutive_failures, 0
            return failures

    def failed(self, error: str) -> None:
        """A call failed; the error is for people and holds no secret."""
        with self._lock:
            self._failures += 1
            self._consecutive_failures += 1
            self._last_error = error

    def retried(self) -> None:
        """An export is tried again."""
        with self._lock:
            self._retries += 1

    def restarted(self) -> None:
        """The plugin is started again after a crash."""
        with self._lock:
            self._restarts += 1

    def exported(self) -> None:
        """The destination took an export."""
        with self._lock:
            self._exported_batches += 1

    def rejected(self, points: int) -> None:
        """The destination refused data points."""
        with self._lock:
            self._rejected_points += points

    def snapshot(self) -> TallySnapshot:
        """One consistent look at the counts."""
        with self._lock:
            return TallySnapshot(
                state=self._state,
                exported_batches=self._exported_batches,
                rejected_points=self._rejected_points,
                failures=self._failures,
                retries=self._retries,
                restarts=self._restarts,
                consecutive_failures=self._consecutive_failures,
                last_error=self._last_error,
                export_seconds=self._export_seconds,
                exports=self._exports,
                call_started_at=self._call_started_at,
            )
