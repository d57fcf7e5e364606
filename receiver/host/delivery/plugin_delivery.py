"""One plugin with everything that belongs to it: its delivery log, its sender, its spooler.

Owns the putting together, the common end, and the look at the whole.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from receiver.host.delivery.cpu_account import CpuAccount
from receiver.host.delivery.disk_queue import DiskQueue
from receiver.host.delivery.failure_log import FailureLog
from receiver.host.delivery.fair_queue import FairQueue
from receiver.host.delivery.memory_queue import MemoryQueue
from receiver.host.delivery.retry import RetryPolicy
from receiver.host.delivery.sender import Sender
from receiver.host.delivery.spooler import Spooler
from receiver.host.delivery.statistics import (
    DropReason,
    PluginState,
    PluginStatistics,
    QueueStatistics,
    Tally,
)
from receiver.host.discovery import HostedPlugin
from receiver.host.isolation.proxy import PluginProxy
from receiver.host.settings import Delivery
from receiver.host.spool.disk import Disk

__all__ = ["PluginDelivery"]

#: How long the disk may take at the end, beyond the drain time, in seconds.
_LAST_WRITES_S = 5.0
#: How long a write to disk lasts before it is a problem to be shown, in seconds.
_SLOW_WRITE_S = 5.0
_MEMORY_ELAPSED_S = 300.0
#: What happens to pushes where no thread of the plugin's own can be relied on to tell of it.
_BOUNDS = {
    DropReason.QUEUE_FULL: "queue full, oldest pushes dropped",
    DropReason.SPOOL_FULL: "spool full, oldest pushes dropped",
    DropReason.SPOOL_DAMAGED: "spool damaged, pushes lost",
}


class PluginDelivery:
    """Delivers pushes to one plugin.

    Args:
        hosted: The plugin with the operator's settings.
        hangs_after_s: How long a call of the plugin lasts before it is said to hang, in seconds.
        clock: Monotonic seconds.
        wall_ns: Nanoseconds since the epoch.
        cpu: Where the CPU time of exports and of the spool is charged.

    Attributes:
        hosted: As given.
        offer: :meth:`MemoryQueue.offer` of its log.
    """

    def __init__(
        self,
        hosted: HostedPlugin,
        *,
        hangs_after_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
        cpu: CpuAccount | None = None,
    ) -> None:
        settings = hosted.settings
        self.hosted = hosted
        self._hangs_after_s = hangs_after_s
        self._clock = clock
        self._wall_ns = wall_ns
        self._log = FailureLog(hosted.name, clock=clock)
        self._tally = Tally()
        self._queue = FairQueue(max_items=settings.queue.max_items, max_bytes=settings.queue.max_bytes)
        self._disk: Disk | None = None
        self._spooler: Spooler | None = None
        self._pushes: MemoryQueue
        path = hosted.spool_path
        if path is None:
            self._pushes = MemoryQueue(self._queue, clock=clock)
        else:
            self._disk = Disk(path, settings.spool, log=self._log, clock=clock)
            always = settings.delivery is Delivery.SPOOL_ALWAYS
            after_s = None if always else settings.spool.after_ms / 1000
            spooled = DiskQueue(self._queue, self._disk, after_s=after_s, clock=clock, cpu=cpu)
            self._pushes = spooled
            self._spooler = Spooler(spooled, log=self._log, name=hosted.name)
        self.offer = self._pushes.offer
        self._sender = Sender(
            hosted.plugin,
            self._pushes,
            settings,
            policy=RetryPolicy.of(
                settings.retry, default_elapsed_s=_MEMORY_ELAPSED_S if self._disk is None else math.inf
            ),
            tally=self._tally,
            log=self._log,
            name=hosted.name,
            clock=clock,
            cpu=cpu,
        )
        self._told = dict.fromkeys(_BOUNDS, 0)
        self._told_of_call: float | None = None

    def start(self) -> None:
        """Start the threads, and on one of them the plugin; returns at once."""
        if self._spooler is not None:
            self._spooler.start()
        self._sender.start()

    def request_stop(self, deadline: float, last_moments_s: float) -> None:
        """Take no more pushes, and export what is left; returns at once.

        Args:
            deadline: When everything should have ended (on the clock).
            last_moments_s: No export begins so many seconds before that. One that is still under way after
                half of them is waited for no more: its pushes go to disk where there is one.
        """
        self._sender.request_stop(deadline - last_moments_s)
        self._pushes.close(deadline - last_moments_s / 2)

    def join(self, deadline: float) -> bool:
        """Wait for the end until the deadline; whoever is still busy then is abandoned.

        Returns:
            Whether the plugin came to its end.
        """
        ended = self._sender.join(deadline - self._clock())
        written = self._spooler is None or self._spooler.join(deadline + _LAST_WRITES_S - self._clock())
        if not ended or not written:
            lost = self._pushes.abandon()
            if not ended:
                self._tally.entered(PluginState.ABANDONED)
                self._log.error("plugin hangs and is abandoned at the drain deadline", pushes_lost=lost)
            if not written:
                self._log.error("spool hangs and is abandoned at the drain deadline", pushes_lost=lost)
        self.watch()
        return ended

    def watch(self) -> None:
        """Tell the log of drops at a bound, and of a call that does not come back; called now and then."""
        dropped = self._pushes.statistics().dropped
        for reason, event in _BOUNDS.items():
            if more := dropped[reason] - self._told[reason]:
                self._told[reason] = dropped[reason]
                self._log.limited(event, dropped=more)
        began = self._tally.snapshot().call_started_at
        if began != self._told_of_call and self._hangs(began):
            self._told_of_call = began
            self._log.error("plugin hangs", call_seconds=round(self._since(began), 1))

    def statistics(self) -> PluginStatistics:
        """One look at the plugin; never waits for the disk."""
        hosted, settings = self.hosted, self.hosted.settings
        log = self._pushes.statistics()
        tally = self._tally.snapshot()
        hangs = self._hangs(tally.call_started_at) and tally.state is not PluginState.ABANDONED
        plugin = hosted.plugin
        return PluginStatistics(
            name=hosted.name,
            type=hosted.type,
            state=PluginState.HANGS if hangs else tally.state,
            delivery=str(settings.delivery),
            isolation=str(settings.isolation),
            circuit=str(self._sender.circuit),
            queue_items=log.memory,
            queue_bytes=log.memory_bytes,
            queue_high_water_items=self._queue.high_water_items,
            queue_high_water_bytes=self._queue.high_water_bytes,
            queue_max_items=self._queue.max_items,
            queue_max_bytes=self._queue.max_bytes,
            spool_pushes=log.disk,
            spool_bytes=0 if self._disk is None else self._disk.statistics.bytes,
            spool_max_bytes=0 if self._disk is None else settings.spool.max_bytes,
            spool_problem=self._spool_problem(log),
            in_flight_pushes=log.in_flight,
            lag_s=self._lag_s(log),
            offered_pushes=log.offered,
            recovered_pushes=log.recovered,
            exported_pushes=log.exported,
            exported_batches=tally.exported_batches,
            dropped=log.dropped,
            rejected_points=tally.rejected_points,
            failures=tally.failures,
            retries=tally.retries,
            restarts=plugin.restarts if isinstance(plugin, PluginProxy) else tally.restarts,
            consecutive_failures=tally.consecutive_failures,
            last_error=tally.last_error,
            export_seconds=tally.export_seconds,
            exports=tally.exports,
            call_seconds=self._since(tally.call_started_at),
        )

    def _since(self, began: float | None) -> float:
        return 0.0 if began is None else max(0.0, self._clock() - began)

    def _hangs(self, began: float | None) -> bool:
        return self._since(began) >= self._hangs_after_s

    def _lag_s(self, log: QueueStatistics) -> float:
        if log.oldest_received_at_ns is None:
            return 0.0
        return max(0, self._wall_ns() - log.oldest_received_at_ns) / 1e9

    def _spool_problem(self, log: QueueStatistics) -> str | None:
        if self._disk is None:
            return None
        lasts = self._since(log.writing_since)
        if lasts >= _SLOW_WRITE_S:
            return f"a write has taken {lasts:.0f} s"
        return self._disk.problem or self._disk.statistics.problem
