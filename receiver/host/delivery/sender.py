"""A plugin's sender thread: exports and retries batches from the queue.

Owns the fate of every push that is read, and the time of each export. No failure of a plugin leaves
this thread. If the plugin hangs, the host abandons the thread with it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from receiver.host.delivery.batch import Batch, Part
from receiver.host.delivery.cpu_account import CpuAccount
from receiver.host.delivery.lifecycle import PluginLifecycle
from receiver.host.delivery.memory_queue import MemoryQueue
from receiver.host.delivery.observed_export import (
    Accepted,
    BatchRefused,
    ObservedExport,
    Outcome,
    Refused,
    Retry,
    Unclear,
)
from receiver.host.delivery.pause import Pause
from receiver.host.delivery.retry import RetryPolicy
from receiver.host.delivery.statistics import DropReason, PluginState, Tally
from receiver.host.failure_log import FailureLog
from receiver.host.plugin_files import PluginFiles
from receiver.host.redaction import Redaction
from receiver.host.settings import HostSettings
from receiver.plugin import ClientTelemetryReceiver
from receiver.plugin.breaker import CircuitBreaker, CircuitState, requested_delay_s
from receiver.workers import report

#: An open circuit stays open up to half as long again, so that sidecars do not retry in step.
_JITTER = 0.5


class Sender:
    """Exports the pushes of one queue to one plugin."""

    def __init__(
        self,
        plugin: ClientTelemetryReceiver,
        queue: MemoryQueue,
        settings: HostSettings,
        *,
        policy: RetryPolicy,
        tally: Tally,
        log: FailureLog,
        redaction: Redaction,
        files: PluginFiles,
        name: str,
        clock: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
        rng: Callable[[], float] = random.random,
        cpu: CpuAccount | None = None,
    ) -> None:
        self._queue = queue
        self._policy = policy
        self._max_items = min(settings.batch.max_items, max(1, plugin.max_batch_items))
        self._max_bytes = settings.batch.max_bytes
        self._linger_s = settings.batch.linger_ms / 1000 if self._max_items > 1 else 0.0
        self._clock = clock
        self._wall_ns = wall_ns
        self._rng = rng
        self._tally = tally
        self._log = log
        self._redaction = redaction
        self._files = files
        self._pause = Pause(clock)
        self._breaker = CircuitBreaker(settings.breaker.failures, policy.max_s)
        self._is_open_logged = False
        self._export = ObservedExport(
            plugin, tally=tally, log=log, redaction=self._redaction, clock=clock, cpu=cpu
        )
        self._lifecycle = PluginLifecycle(
            plugin,
            tally=tally,
            log=log,
            redaction=self._redaction,
            policy=policy,
            pause=self._pause,
            clock=clock,
            rng=rng,
        )
        self._thread = threading.Thread(target=self._run, name=f"plugin-{name}", daemon=True)

    @property
    def circuit(self) -> CircuitState:
        """The state of the circuit breaker."""
        return self._breaker.state(self._clock())

    def start(self) -> None:
        """Start the thread, and on it the plugin, without waiting."""
        self._tally.entered(PluginState.STARTING)
        self._thread.start()

    def request_stop(self, deadline: float) -> None:
        """Export the queued pushes until a deadline on the clock, without waiting."""
        self._pause.request_stop(deadline)

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread; return False if the plugin hangs.

        Without a thread, it leaves the queue in its place.
        """
        if self._thread.ident is None:
            self._leave()
            self._tally.entered(PluginState.STOPPED)
            return True
        self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    # Everything below runs on the plugin's thread.

    def _run(self) -> None:
        try:
            if self._lifecycle.start():
                self._export_queue()
        except BaseException as error:  # a bug of ours must not end the thread silently
            self._queue.close(self._clock())
            self._log.error("internal error, plugin stays stopped", error=self._redaction.exception(error))
            report(self._thread.name, error, is_logged=True)
        finally:
            self._leave()
            self._lifecycle.stop()
            self._tally.entered(PluginState.STOPPED)

    def _leave(self) -> None:
        if lost := self._queue.leave():
            self._log.error("pushes dropped at shutdown", pushes_lost=lost)

    def _export_queue(self) -> None:
        while pushes := self._queue.read(
            max_items=self._max_items, max_bytes=self._max_bytes, linger_s=self._linger_s
        ):
            if not self._deliver(Batch(pushes, self._max_items)):
                return

    def _deliver(self, batch: Batch) -> bool:
        """Export a batch, in parts if necessary; return False after the deadline."""
        while not batch.is_done:
            if batch.has_only_suspects:
                # They can be compared with others only.
                batch.extend(self._queue.read_more(max_items=self._max_items, max_bytes=self._max_bytes))
            part, at_once = batch.next(one_push=self.circuit is not CircuitState.CLOSED)
            outcome = self._try(part, at_once=at_once)
            if outcome is None or not self._note(batch, part, outcome):
                return False
            if not all(self._done(finished, result) for finished, result in batch.take_finished()):
                return False
        return True

    def _note(self, batch: Batch, part: Part, outcome: Outcome) -> bool:
        """Say to the batch what came of a part; return False after the deadline."""
        match outcome:
            case Retry(retry_after_s=retry_after_s):
                batch.retry(part, *self._failed(retry_after_s))
            case BatchRefused():
                self._destination_responded()
                batch.halve(part)
            case Unclear(is_crash=is_crash):
                if len(part.pushes) > 1:
                    batch.halve(part)
                else:
                    self._suspect(batch, part, DropReason.CRASH if is_crash else DropReason.PERMANENT)
                return not is_crash or self._lifecycle.restart()
            case Refused(reason=DropReason.RETRIES_EXHAUSTED):
                batch.finish(part, outcome)
            case Accepted(sent=False):
                batch.finish(part, outcome)
            case Accepted() | Refused():
                self._destination_responded()
                batch.finish(part, outcome)
        return True

    def _suspect(self, batch: Batch, part: Part, reason: DropReason) -> None:
        now, _ = self._failed(None)
        batch.suspect(part, now, reason)
        if part.outcome is not None:
            error = self._tally.snapshot().last_error
            self._log.limited("export refused, pushes dropped", error=error, pushes=1)

    def _try(self, part: Part, *, at_once: bool) -> Outcome | None:
        """Wait for the retry delay and export; return None when the deadline comes first."""
        delay = self._delay_s(part, at_once=at_once)
        if delay is None:
            self._log.limited("export given up after retries, pushes dropped", pushes=len(part.pushes))
            return Refused(DropReason.RETRIES_EXHAUSTED, 0)
        if not self._pause(delay):
            return None
        if part.failures or part.is_suspect:
            self._tally.retried()
        self._log_circuit()
        self._files.follow()
        return self._export(part.pushes)

    def _delay_s(self, part: Part, *, at_once: bool) -> float | None:
        now = self._clock()
        pause = self._breaker.retry_in_s(now) * (1 + _JITTER * self._rng())
        if at_once or not part.failures:
            return pause
        return self._policy.delay_s(
            failures=part.failures,
            elapsed_s=now - part.failed_at,
            retry_after_s=max(pause, part.retry_after_s or 0.0),
            random=self._rng(),
        )

    def _failed(self, retry_after_s: float | None) -> tuple[float, float | None]:
        """Count a failure; return its time and the delay that is asked for."""
        now = self._clock()
        delay_s = requested_delay_s(retry_after_s)
        self._breaker.failed(now, delay_s)
        self._log_circuit()
        return now, delay_s

    def _destination_responded(self) -> None:
        """Record a response of the destination, even if it was a refusal."""
        self._breaker.succeeded()
        self._lifecycle.worked()
        self._log_circuit()

    def _log_circuit(self) -> None:
        """Log that the circuit opened or closed.

        Not each trial, which the watch's lines cover.
        """
        now = self._clock()
        is_open = self._breaker.state(now) is not CircuitState.CLOSED
        if is_open is self._is_open_logged:
            return
        self._is_open_logged = is_open
        if is_open:
            self._log.limited("circuit opened", retry_in_s=round(self._breaker.retry_in_s(now), 3))
        else:
            self._log.info("circuit closed")

    def _done(self, part: Part, outcome: Accepted | Refused) -> bool:
        """Acknowledge and count pushes; return False if the queue has taken them back."""
        dropped = outcome.reason if isinstance(outcome, Refused) else None
        if not self._queue.acknowledge(len(part.pushes), dropped):
            return False
        if isinstance(outcome, Accepted) and outcome.sent:
            now_ns = self._wall_ns()
            # A clock that was set back makes no negative time.
            self._tally.exported(max(0, now_ns - push.context.received_at_ns) / 1e9 for push in part.pushes)
        self._tally.rejected(outcome.rejected_points)
        for push in part.pushes:
            push.payload.release()
        return True
