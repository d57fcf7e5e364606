"""A plugin's sender thread: exports and retries batches from the queue.

Owns the fate of every push that is read, and the time of each export. No failure of a plugin leaves
this thread. If the plugin hangs, the host abandons the thread with it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from receiver.host.delivery.cpu_account import CpuAccount
from receiver.host.delivery.lifecycle import PluginLifecycle
from receiver.host.delivery.memory_queue import MemoryQueue
from receiver.host.delivery.observed_export import (
    Accepted,
    BatchRefused,
    Crashed,
    ObservedExport,
    Outcome,
    Refused,
    Retry,
)
from receiver.host.delivery.pause import Pause
from receiver.host.delivery.retry import RetryPolicy
from receiver.host.delivery.statistics import DropReason, PluginState, Tally
from receiver.host.failure_log import FailureLog
from receiver.host.plugin_files import PluginFiles
from receiver.host.redaction import Redaction
from receiver.host.settings import HostSettings
from receiver.plugin import ClientTelemetryReceiver, Push
from receiver.plugin.breaker import CircuitBreaker, CircuitState, requested_delay_s
from receiver.workers import report

#: An open circuit stays open up to half as long again, so that sidecars do not retry in step.
_JITTER = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Pushes that are exported together, and their failures so far.

    Attributes:
        pushes: At least one.
        failures: Retryable failures.
        failed_at: The time of the first failure, in monotonic seconds.
        retry_after_s: The delay that the destination asked for last.
        crashed: Whether the plugin has crashed on this single push.
    """

    pushes: Sequence[Push]
    failures: int = 0
    failed_at: float = 0.0
    retry_after_s: float | None = None
    crashed: bool = False

    def split(self, at: int) -> list[_Part]:
        """Return two parts, the one with the older pushes last."""
        return [replace(self, pushes=self.pushes[at:]), replace(self, pushes=self.pushes[:at])]

    def halves(self) -> list[_Part]:
        """Return two halves without failures, the one with the older pushes last."""
        return _Part(pushes=self.pushes).split(len(self.pushes) // 2)

    def failed(self, now: float, retry_after_s: float | None) -> _Part:
        """Return the part with one more failure."""
        first_at = self.failed_at if self.failures else now
        return replace(self, failures=self.failures + 1, failed_at=first_at, retry_after_s=retry_after_s)


class Sender:
    """Exports the pushes of one queue to one plugin.

    Args:
        rng: Uniform numbers in [0, 1), for the jitter.
        cpu: Charged with the CPU time of exports.
    """

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
        rng: Callable[[], float] = random.random,
        cpu: CpuAccount | None = None,
    ) -> None:
        self._queue = queue
        self._policy = policy
        self._max_items = min(settings.batch.max_items, max(1, plugin.max_batch_items))
        self._max_bytes = settings.batch.max_bytes
        self._linger_s = settings.batch.linger_ms / 1000 if self._max_items > 1 else 0.0
        self._clock = clock
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
        """Wait for the thread; without one, leave the queue in its place.

        Returns:
            Whether the thread has ended; False if the plugin hangs.
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
        while batch := self._queue.read(
            max_items=self._max_items, max_bytes=self._max_bytes, linger_s=self._linger_s
        ):
            if not self._deliver(batch):
                return

    def _deliver(self, batch: Sequence[Push]) -> bool:
        """Export a batch, in parts if necessary; return False after the deadline."""
        parts = [_Part(pushes=batch)]
        while parts:
            part = parts.pop()
            if len(part.pushes) > 1 and self.circuit is not CircuitState.CLOSED:
                parts += part.split(1)
                continue
            outcome = self._try(part)
            match outcome:
                case None:
                    return False
                case Retry(retry_after_s=retry_after_s):
                    parts.append(self._failed(part, retry_after_s))
                case Crashed():
                    if len(part.pushes) > 1:
                        parts += part.halves()
                    elif not part.crashed:
                        parts.append(replace(part, crashed=True))
                    elif not self._done(part, Refused(DropReason.CRASH, 0)):
                        return False
                    if not self._lifecycle.restart():
                        return False
                case Refused(reason=DropReason.RETRIES_EXHAUSTED):
                    if not self._done(part, outcome):
                        return False
                case BatchRefused():
                    self._destination_responded()
                    parts += part.halves()
                case Accepted() | Refused():
                    self._destination_responded()
                    if not self._done(part, outcome):
                        return False
                    # The destination works, so the remaining parts get the full retry time.
                    parts = [_Part(pushes=part.pushes) for part in parts]
        return True

    def _try(self, part: _Part) -> Outcome | None:
        """Wait for the retry delay and export; return None when the deadline comes first."""
        delay = self._delay_s(part)
        if delay is None:
            self._log.limited("export given up after retries, pushes dropped", pushes=len(part.pushes))
            return Refused(DropReason.RETRIES_EXHAUSTED, 0)
        if not self._pause(delay):
            return None
        if part.failures:
            self._tally.retried()
        self._log_circuit()
        self._files.follow()
        return self._export(part.pushes)

    def _delay_s(self, part: _Part) -> float | None:
        now = self._clock()
        pause = self._breaker.retry_in_s(now) * (1 + _JITTER * self._rng())
        if not part.failures:
            return pause
        return self._policy.delay_s(
            failures=part.failures,
            elapsed_s=now - part.failed_at,
            retry_after_s=max(pause, part.retry_after_s or 0.0),
            random=self._rng(),
        )

    def _failed(self, part: _Part, retry_after_s: float | None) -> _Part:
        now = self._clock()
        delay_s = requested_delay_s(retry_after_s)
        self._breaker.failed(now, delay_s)
        self._log_circuit()
        return part.failed(now, delay_s)

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

    def _done(self, part: _Part, outcome: Accepted | Refused) -> bool:
        """Acknowledge and count pushes; return False if the queue has taken them back."""
        dropped = outcome.reason if isinstance(outcome, Refused) else None
        if not self._queue.acknowledge(len(part.pushes), dropped):
            return False
        if dropped is None:
            self._tally.exported()
        self._tally.rejected(outcome.rejected_points)
        for push in part.pushes:
            push.payload.release()
        return True
