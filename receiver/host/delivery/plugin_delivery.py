"""Delivers pushes to one plugin: assembles its queue, sender and spooler.

Owns their assembly, their common shutdown, and the plugin's statistics.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict

from receiver.host.delivery.backlog import Backlog, FillRate
from receiver.host.delivery.cpu_account import CpuAccount
from receiver.host.delivery.disk_queue import DiskQueue
from receiver.host.delivery.fair_queue import FairQueue
from receiver.host.delivery.memory_queue import MemoryQueue
from receiver.host.delivery.retry import RetryPolicy
from receiver.host.delivery.sender import Sender
from receiver.host.delivery.spooler import Spooler
from receiver.host.delivery.statistics import (
    CallStatistics,
    DropReason,
    PluginState,
    PluginStatistics,
    QueueStatistics,
    Tally,
)
from receiver.host.discovery import HostedPlugin
from receiver.host.failure_log import FailureLog
from receiver.host.isolation.proxy import PluginProxy
from receiver.host.plugin_files import PluginFiles
from receiver.host.redaction import Redaction
from receiver.host.settings import Delivery
from receiver.host.spool.disk import Disk
from receiver.plugin.breaker import CircuitState

#: Seconds that the disk may take at shutdown beyond the drain time.
_LAST_WRITES_S = 5.0
#: Seconds after which a write to disk is reported as a problem.
_SLOW_WRITE_S = 5.0
_MEMORY_ELAPSED_S = 300.0
#: Seconds between two lines that say what waits.
_BACKLOG_EVERY_S = 60.0
#: The log events of drops. The host's watch thread logs them, because the plugin's threads may
#: hang.
_DROP_EVENTS = {
    DropReason.QUEUE_FULL: "queue full, oldest pushes dropped",
    DropReason.SPOOL_FULL: "spool full, oldest pushes dropped",
    DropReason.SPOOL_DAMAGED: "spool damaged, pushes lost",
}


class PluginDelivery:
    """Delivers pushes to one plugin.

    Args:
        hangs_after_s: Seconds that a call of the plugin lasts before the plugin counts as hanging.

    Attributes:
        offer: :meth:`MemoryQueue.offer` of the plugin's queue.
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
        memory = FairQueue(max_items=settings.queue.max_items, max_bytes=settings.queue.max_bytes)
        self._disk: Disk | None = None
        self._spooler: Spooler | None = None
        self._queue: MemoryQueue
        path = hosted.spool_path
        if path is None:
            self._queue = MemoryQueue(memory, clock=clock)
        else:
            self._disk = Disk(path, settings.spool, log=self._log, clock=clock)
            always = settings.delivery is Delivery.SPOOL_ALWAYS
            after_s = None if always else settings.spool.after_ms / 1000
            queue = DiskQueue(memory, self._disk, after_s=after_s, clock=clock, cpu=cpu)
            self._queue = queue
            self._spooler = Spooler(queue, log=self._log, name=hosted.name)
        self.offer = self._queue.offer
        redaction = Redaction(hosted.plugin.config)
        self._files = PluginFiles(hosted, log=self._log, redaction=redaction, clock=clock)
        self.read_files_again = self._files.read_again
        self._sender = Sender(
            hosted.plugin,
            self._queue,
            settings,
            policy=RetryPolicy.from_settings(
                settings.retry, default_elapsed_s=_MEMORY_ELAPSED_S if self._disk is None else math.inf
            ),
            tally=self._tally,
            log=self._log,
            redaction=redaction,
            files=self._files,
            name=hosted.name,
            clock=clock,
            wall_ns=wall_ns,
            cpu=cpu,
        )
        self._logged_drops = dict.fromkeys(_DROP_EVENTS, 0)
        self._logged_call: float | None = None
        self._fill_rate = FillRate()
        self._full_in_s: float | None = None
        self._backlog_logged_at = -math.inf

    def start(self) -> None:
        """Start the threads, and on one of them the plugin, without waiting."""
        if self._spooler is not None:
            self._spooler.start()
        self._sender.start()

    def request_stop(self, deadline: float, closing_s: float) -> None:
        """Accept no more pushes, and export the queued ones, without waiting.

        Args:
            deadline: The time at which everything should have ended, on the clock.
            closing_s: No export begins in the last ``closing_s`` seconds before the deadline. After
                half of them the queue no longer waits for a running export: its pushes go to disk
                if there is one.
        """
        self._sender.request_stop(deadline - closing_s)
        self._queue.close(deadline - closing_s / 2)

    def join(self, deadline: float) -> bool:
        """Wait for the threads, abandon them at the deadline; return if all have ended."""
        ended = self._sender.join(deadline - self._clock())
        written = self._spooler is None or self._spooler.join(deadline + _LAST_WRITES_S - self._clock())
        if not ended or not written:
            lost = self._queue.abandon()
            if not ended:
                self._tally.entered(PluginState.ABANDONED)
                self._log.error("plugin hangs and is abandoned at the drain deadline", pushes_lost=lost)
            if not written:
                self._log.error("spool hangs and is abandoned at the drain deadline", pushes_lost=lost)
        self.watch()
        return ended

    def watch(self) -> None:
        """Log dropped pushes, a hanging call and what waits; called at intervals."""
        self._watch_backlog()
        dropped = self._queue.statistics().dropped
        for reason, event in _DROP_EVENTS.items():
            if more := dropped[reason] - self._logged_drops[reason]:
                self._logged_drops[reason] = dropped[reason]
                self._log.limited(event, dropped=more)
        began = self._tally.snapshot().call_started_at
        if began != self._logged_call and self._hangs(began):
            self._logged_call = began
            self._log.error("plugin hangs", call_seconds=round(self._since(began), 1))

    def _watch_backlog(self) -> None:
        """Log what waits for a destination that is away, in one line a minute."""
        now = self._clock()
        backlog = self._backlog(self._queue.statistics(), self._tally.snapshot())
        self._fill_rate.add(now, backlog.used)
        self._full_in_s = self._fill_rate.full_in_s()
        if not backlog.away_s or now - self._backlog_logged_at < _BACKLOG_EVERY_S:
            return
        self._backlog_logged_at = now
        self._log.warning(
            "the destination takes no pushes, they wait",
            away_s=round(backlog.away_s),
            pushes=backlog.pushes,
            bytes=backlog.bytes,
            used_percent=round(backlog.used * 100, 1),
            full_in_s=None if self._full_in_s is None else round(self._full_in_s),
            error=self._tally.snapshot().last_error,
        )

    def _backlog(self, queue: QueueStatistics, tally: CallStatistics) -> Backlog:
        settings, memory = self.hosted.settings, self._queue.memory
        on_disk = 0 if self._disk is None else self._disk.statistics.bytes
        used = (
            max(queue.memory / memory.max_items, queue.memory_bytes / memory.max_bytes)
            if self._disk is None
            else on_disk / settings.spool.max_bytes
        )
        closed = self._sender.circuit is CircuitState.CLOSED
        return Backlog(
            pushes=queue.memory + queue.disk + queue.in_flight,
            bytes=queue.memory_bytes + (on_disk if queue.disk + queue.in_flight else 0),
            used=min(1.0, used),
            full_in_s=self._full_in_s,
            away_s=0.0 if closed else self._since(tally.failing_since),
            has_spool=self._disk is not None,
        )

    def statistics(self) -> PluginStatistics:
        """Return the plugin's statistics; never waits for the disk."""
        hosted, settings = self.hosted, self.hosted.settings
        queue, memory = self._queue.statistics(), self._queue.memory
        tally = self._tally.snapshot()
        if self._hangs(tally.call_started_at) and tally.state is not PluginState.ABANDONED:
            tally.state = PluginState.HANGS
        if isinstance(hosted.plugin, PluginProxy):
            tally.restarts = hosted.plugin.restarts
        return PluginStatistics(
            **asdict(tally),
            name=hosted.name,
            type=hosted.type,
            delivery=str(settings.delivery),
            isolation=str(settings.isolation),
            circuit=str(self._sender.circuit),
            queue_items=queue.memory,
            queue_bytes=queue.memory_bytes,
            queue_high_water_items=memory.high_water_items,
            queue_high_water_bytes=memory.high_water_bytes,
            queue_max_items=memory.max_items,
            queue_max_bytes=memory.max_bytes,
            spool_pushes=queue.disk,
            spool_bytes=0 if self._disk is None else self._disk.statistics.bytes,
            spool_max_bytes=0 if self._disk is None else settings.spool.max_bytes,
            spool_problem=self._spool_problem(queue),
            files_problem=self._files.problem,
            in_flight_pushes=queue.in_flight,
            lag_seconds=self._lag_seconds(queue),
            offered_pushes=queue.offered,
            recovered_pushes=queue.recovered,
            exported_pushes=queue.exported,
            dropped=queue.dropped,
            backlog=self._backlog(queue, tally),
            call_seconds=self._since(tally.call_started_at),
        )

    def _since(self, began: float | None) -> float:
        return 0.0 if began is None else max(0.0, self._clock() - began)

    def _hangs(self, began: float | None) -> bool:
        return self._since(began) >= self._hangs_after_s

    def _lag_seconds(self, queue: QueueStatistics) -> float:
        if queue.oldest_received_at_ns is None:
            return 0.0
        return max(0, self._wall_ns() - queue.oldest_received_at_ns) / 1e9

    def _spool_problem(self, queue: QueueStatistics) -> str | None:
        if self._disk is None:
            return None
        seconds = self._since(queue.writing_since)
        if seconds >= _SLOW_WRITE_S:
            return f"a write has taken {seconds:.0f} s"
        return self._disk.problem or self._disk.statistics.problem
