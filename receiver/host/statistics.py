"""What the host knows of each plugin's work, in plain numbers: for /metrics and the REST API.

Owns the counting and its lock; no metrics library, no log. Every push that was offered is, at any quiet
moment, in exactly one place: queued, in flight, exported, or dropped for one reason.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["DropReason", "PluginState", "PluginStatistics", "Tally", "TallySnapshot"]


class DropReason(StrEnum):
    """Why a push never reached its destination."""

    QUEUE_FULL = "queue_full"
    PERMANENT = "permanent"
    CRASH = "crash"
    RETRIES_EXHAUSTED = "retries_exhausted"
    SHUTDOWN = "shutdown"


class PluginState(StrEnum):
    """Where a plugin is in its lifecycle."""

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginStatistics:
    """One look at one plugin. Counters count from the start of the receiver.

    Attributes:
        name: The plugin's unique name.
        type: Its entry point's name.
        state: Where it is in its lifecycle.
        queue_items: Pushes queued.
        queue_bytes: OTLP bytes queued.
        queue_high_water_items: Most pushes ever queued.
        queue_high_water_bytes: Most OTLP bytes ever queued.
        queue_max_items: The queue's bound in pushes.
        queue_max_bytes: The queue's bound in bytes.
        in_flight_pushes: Pushes taken from the queue and neither exported nor dropped yet.
        offered_pushes: Pushes handed to the host.
        exported_pushes: Pushes that the destination took, also in part.
        exported_batches: Exports that the destination took.
        dropped: Pushes dropped, by reason; every reason is there.
        rejected_points: Data points that the destination refused in exports it took (OTLP's partial success).
        failures: Failed calls of the plugin's start and export.
        retries: Exports tried again.
        consecutive_failures: Failures since the last success.
        last_error: What the last failure said; None while there was none.
        export_seconds: Time spent in export calls, in seconds, failed ones included.
        exports: Export calls that ended.
        call_seconds: How long the call that the plugin is in has lasted, in seconds; 0 outside: shows a hang.
    """

    name: str
    type: str
    state: PluginState
    queue_items: int
    queue_bytes: int
    queue_high_water_items: int
    queue_high_water_bytes: int
    queue_max_items: int
    queue_max_bytes: int
    in_flight_pushes: int
    offered_pushes: int
    exported_pushes: int
    exported_batches: int
    dropped: Mapping[DropReason, int]
    rejected_points: int
    failures: int
    retries: int
    consecutive_failures: int
    last_error: str | None
    export_seconds: float
    exports: int
    call_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TallySnapshot:
    """One consistent look at a :class:`Tally`; attributes as in :class:`PluginStatistics`."""

    state: PluginState
    in_flight_pushes: int
    exported_pushes: int
    exported_batches: int
    dropped: Mapping[DropReason, int]
    rejected_points: int
    failures: int
    retries: int
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
        self._in_flight = 0
        self._exported_pushes = 0
        self._exported_batches = 0
        self._dropped = dict.fromkeys(DropReason, 0)
        self._rejected_points = 0
        self._failures = 0
        self._retries = 0
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

    def taken(self, pushes: int) -> None:
        """Pushes left the queue and are in flight."""
        with self._lock:
            if self._state is PluginState.ABANDONED:
                self._dropped[DropReason.SHUTDOWN] += pushes
            else:
                self._in_flight += pushes

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

    def exported(self, pushes: int, rejected_points: int) -> None:
        """Pushes in flight reached the destination, but for so many points."""
        with self._lock:
            if self._state is PluginState.ABANDONED:
                return
            self._in_flight -= pushes
            self._exported_pushes += pushes
            self._exported_batches += 1
            self._rejected_points += rejected_points

    def dropped(self, pushes: int, reason: DropReason, rejected_points: int = 0) -> None:
        """Pushes in flight are given up."""
        with self._lock:
            if self._state is PluginState.ABANDONED:
                return
            self._in_flight -= pushes
            self._dropped[reason] += pushes
            self._rejected_points += rejected_points

    def abandon(self, queued: int) -> int:
        """The receiver stops waiting for the plugin: what is queued and in flight counts as lost.

        What the abandoned thread still says of these pushes is not counted a second time.

        Returns:
            How many pushes are lost.
        """
        with self._lock:
            lost = queued + self._in_flight
            self._dropped[DropReason.SHUTDOWN] += lost
            self._in_flight = 0
            self._state = PluginState.ABANDONED
            return lost

    def snapshot(self) -> TallySnapshot:
        """One consistent look at the counts."""
        with self._lock:
            return TallySnapshot(
                state=self._state,
                in_flight_pushes=self._in_flight,
                exported_pushes=self._exported_pushes,
                exported_batches=self._exported_batches,
                dropped=dict(self._dropped),
                rejected_points=self._rejected_points,
                failures=self._failures,
                retries=self._retries,
                consecutive_failures=self._consecutive_failures,
                last_error=self._last_error,
                export_seconds=self._export_seconds,
                exports=self._exports,
                call_started_at=self._call_started_at,
            )
