"""One plugin's thread: queue -> batch -> retry -> observed export, between one start and one stop.

Owns the plugin's lifecycle as the contract numbers it, and what becomes of every push. Nothing a plugin does
leaves this thread; a plugin that hangs is left behind with it.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable

from receiver.host.discovery import HostedPlugin
from receiver.host.failure_log import FailureLog, Redaction
from receiver.host.observe import Again, BatchRefused, ObservedExport, Refused, Took
from receiver.host.queue import PushQueue
from receiver.host.retry import RetryPolicy
from receiver.host.statistics import DropReason, PluginState, PluginStatistics, Tally
from receiver.plugin import Push

__all__ = ["Sender"]


class Sender:
    """Takes the pushes of one queue to one plugin.

    Args:
        hosted: The plugin with the operator's settings.
        clock: Monotonic seconds.
        rng: Uniform numbers in [0, 1), for the jitter.
    """

    def __init__(
        self,
        hosted: HostedPlugin,
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
    ) -> None:
        settings = hosted.settings
        self.hosted = hosted
        self.queue = PushQueue(
            max_items=settings.queue.max_items, max_bytes=settings.queue.max_bytes, clock=clock
        )
        self.offer = self.queue.offer
        self._plugin = hosted.plugin
        self._policy = RetryPolicy.of(settings.retry, default_elapsed_s=300.0)
        self._max_items = min(settings.batch.max_items, max(1, hosted.plugin.max_batch_items))
        self._max_bytes = settings.batch.max_bytes
        self._linger_s = settings.batch.linger_ms / 1000 if self._max_items > 1 else 0.0
        self._clock = clock
        self._rng = rng
        self._tally = Tally()
        self._log = FailureLog(hosted.name, clock=clock)
        self._redaction = Redaction(hosted.plugin.config)
        self._export = ObservedExport(
            hosted.plugin, tally=self._tally, log=self._log, redaction=self._redaction, clock=clock
        )
        self._thread = threading.Thread(target=self._run, name=f"plugin-{hosted.name}", daemon=True)
        self._stopping = threading.Event()
        self._deadline = math.inf
        self._full_told = 0

    def start(self) -> None:
        """Start the thread, and on it the plugin; returns at once."""
        self._tally.entered(PluginState.STARTING)
        self._thread.start()

    def request_stop(self, deadline: float) -> None:
        """Take no more pushes; export what is queued until the deadline (on the clock); returns at once."""
        self._deadline = deadline
        self._stopping.set()
        self.queue.close()

    def join(self, deadline: float) -> bool:
        """Wait for the thread until the deadline; a thread that is still busy then is abandoned.

        Returns:
            Whether the plugin came to its end.
        """
        if self._thread.ident is not None:
            self._thread.join(max(0.0, deadline - self._clock()))
            if self._thread.is_alive():
                lost = self._tally.abandon(self.queue.clear())
                self._log.error("plugin hangs and is abandoned at the drain deadline", pushes_lost=lost)
                return False
            return True
        self._discard_queued()
        self._tally.entered(PluginState.STOPPED)
        return True

    def statistics(self) -> PluginStatistics:
        """One look at the plugin and its queue."""
        queue = self.queue.statistics()
        tally = self._tally.snapshot()
        dropped = dict(tally.dropped)
        dropped[DropReason.QUEUE_FULL] += queue.dropped_full
        dropped[DropReason.SHUTDOWN] += queue.dropped_closed
        began = tally.call_started_at
        return PluginStatistics(
            name=self.hosted.name,
            type=self.hosted.type,
            state=tally.state,
            queue_items=queue.items,
            queue_bytes=queue.bytes,
            queue_high_water_items=queue.high_water_items,
            queue_high_water_bytes=queue.high_water_bytes,
            queue_max_items=self.queue.max_items,
            queue_max_bytes=self.queue.max_bytes,
            in_flight_pushes=tally.in_flight_pushes,
            offered_pushes=queue.offered,
            exported_pushes=tally.exported_pushes,
            exported_batches=tally.exported_batches,
            dropped=dropped,
            rejected_points=tally.rejected_points,
            failures=tally.failures,
            retries=tally.retries,
            consecutive_failures=tally.consecutive_failures,
            last_error=tally.last_error,
            export_seconds=tally.export_seconds,
            exports=tally.exports,
            call_seconds=0.0 if began is None else max(0.0, self._clock() - began),
        )

    # Everything below runs on the plugin's thread.

    def _run(self) -> None:
        try:
            if self._start_plugin():
                self._tally.entered(PluginState.RUNNING)
                self._drain_queue()
        except BaseException as error:  # a fault of ours must not end in a silent dead thread
            self.queue.close()
            self._log.error(
                "plugin host failed; the plugin stays stopped", error=self._redaction.exception(error)
            )
        finally:
            self._discard_queued()
            self._stop_plugin()
            self._tally.entered(PluginState.STOPPED)

    def _start_plugin(self) -> bool:
        failures = 0
        while True:
            try:
                self._tally.call_began(self._clock())
                self._plugin.start()
            except BaseException as error:  # the contract: a failed start is tried again
                failures += 1
                said = self._redaction.exception(error)
                self._tally.failed(said)
                self._log.limited("plugin failed to start, will be tried again", error=said)
            else:
                failed_before = self._tally.succeeded()
                self._log.info("plugin started", failures=failed_before)
                return True
            finally:
                self._tally.call_ended()
            if not self._pause(self._policy.backoff_s(failures, self._rng())):
                return False

    def _stop_plugin(self) -> None:
        try:
            self._tally.call_began(self._clock())
            self._plugin.stop()
        except BaseException as error:  # it is over anyhow
            said = self._redaction.exception(error)
            self._tally.failed(said)
            self._log.error("plugin failed to stop", error=said)
        finally:
            self._tally.call_ended()

    def _drain_queue(self) -> None:
        while batch := self.queue.take(
            max_items=self._max_items, max_bytes=self._max_bytes, linger_s=self._linger_s
        ):
            self._tally.taken(len(batch))
            self._tell_of_full_queue()
            self._deliver(batch)

    def _deliver(self, batch: list[Push]) -> None:
        """Bring a batch to its end; one refused as a whole is halved, and each half is on its own then."""
        parts = [batch]
        while parts:
            part = parts.pop()
            match self._try(part):
                case BatchRefused():
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
                    continue
                case Took(rejected_points=points):
                    self._tally.exported(len(part), points)
                case Refused(reason=reason, rejected_points=points):
                    self._tally.dropped(len(part), reason, points)
            for push in part:
                push.payload.release()

    def _try(self, part: list[Push]) -> Took | BatchRefused | Refused:
        """Export until the destination takes it, refuses it, or time is up."""
        failures = 0
        first_failure_at = 0.0
        while self._clock() < self._deadline:
            outcome = self._export(part)
            if not isinstance(outcome, Again):
                return outcome
            failures += 1
            now = self._clock()
            if failures == 1:
                first_failure_at = now
            delay = self._policy.delay_s(
                failures=failures,
                elapsed_s=now - first_failure_at,
                retry_after_s=outcome.retry_after_s,
                random=self._rng(),
            )
            if delay is None:
                self._log.limited("export given up after retries, pushes dropped", pushes=len(part))
                return Refused(DropReason.RETRIES_EXHAUSTED, 0)
            if not self._pause(delay):
                break
            self._tally.retried()
        return Refused(DropReason.SHUTDOWN, 0)

    def _pause(self, delay_s: float) -> bool:
        """Wait; the request to stop ends the wait early, for one more attempt at once.

        Returns:
            False when the deadline would pass meanwhile.
        """
        if not self._stopping.is_set():
            self._stopping.wait(delay_s)
            return self._clock() < self._deadline
        if self._clock() + delay_s >= self._deadline:
            return False
        time.sleep(delay_s)
        return True

    def _discard_queued(self) -> None:
        queued = self.queue.clear()
        if queued:
            self._tally.taken(queued)
            self._tally.dropped(queued, DropReason.SHUTDOWN)
            self._log.error("pushes dropped at shutdown", pushes_lost=queued)

    def _tell_of_full_queue(self) -> None:
        dropped = self.queue.statistics().dropped_full
        if dropped > self._full_told:
            self._log.limited("queue full, oldest pushes dropped", dropped=dropped - self._full_told)
            self._full_told = dropped
