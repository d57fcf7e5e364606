"""Calls a plugin's export, measures it, and turns its result into a value.

Handles every exception of a plugin, including SystemExit. The sender decides what comes next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from receiver.host.delivery.cpu_account import CpuAccount
from receiver.host.delivery.statistics import DropReason, Tally
from receiver.host.isolation.proxy import PluginProxy
from receiver.host.redaction import Redaction
from receiver.plugin import (
    BatchRefusedError,
    ClientTelemetryReceiver,
    ExportResult,
    PermanentError,
    Push,
    RetryableError,
    UnclearError,
)

if TYPE_CHECKING:  # the child process calls plugins too, and does not log
    from receiver.host.failure_log import FailureLog


@dataclass(frozen=True, slots=True)
class Accepted:
    """The destination accepted the pushes, except for some data points."""

    rejected_points: int
    sent: bool = True
    """False: it was not asked, because nothing was to be sent."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The same export may succeed later, perhaps after a requested delay."""

    retry_after_s: float | None


@dataclass(frozen=True, slots=True)
class BatchRefused:
    """These pushes, more than one, will never succeed together; a part of them may."""


@dataclass(frozen=True, slots=True)
class Unclear:
    """It is not known whether the destination or a push is at fault."""

    is_crash: bool
    """The plugin raised an exception outside the contract, so its state is unknown."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The same export will never succeed."""

    reason: DropReason
    rejected_points: int


Outcome = Accepted | Retry | BatchRefused | Unclear | Refused


#: The most rejected points counted for one export, so that the sum fits a metric's float.
_MAX_POINTS: Final = 1 << 53


def call_export(plugin: ClientTelemetryReceiver, pushes: Sequence[Push]) -> ExportResult | None:
    """Call a plugin's ``export`` or ``export_batch``; raises what the plugin raises.

    There must be at least one push, and no more than the plugin's ``max_batch_items``.
    """
    if plugin.max_batch_items > 1:
        return plugin.export_batch(pushes)
    (push,) = pushes
    return plugin.export(push.context, push.payload)


class ObservedExport:
    """Calls a plugin's export and returns its outcome.

    Args:
        cpu: Charged with the CPU time of exports, except retryable failures, which clients do not
            cause, and the first one, in which plugins import and connect.
    """

    def __init__(
        self,
        plugin: ClientTelemetryReceiver,
        *,
        tally: Tally,
        log: FailureLog,
        redaction: Redaction,
        clock: Callable[[], float] = time.monotonic,
        cpu: CpuAccount | None = None,
    ) -> None:
        self._cpu = CpuAccount() if cpu is None else cpu
        self._plugin = plugin
        self._tally = tally
        self._log = log
        self._redaction = redaction
        self._clock = clock
        self._is_warm = False
        # The error of the last line about retries: while it stays the same, the watch's lines with
        # amounts are enough.
        self._retried_error: str | None = None

    def __call__(self, pushes: Sequence[Push]) -> Outcome:
        """Export at least one push; never raises."""
        began = self._clock()
        self._tally.call_began(began)
        cpu_began = self._cpu_s()
        try:
            outcome = self._export(pushes)
        finally:
            self._tally.export_ended(self._clock() - began)
        if not isinstance(outcome, Retry | Unclear):
            if self._is_warm:
                self._cpu.add(pushes, self._cpu_s() - cpu_began)
            self._is_warm = True
        if isinstance(outcome, Accepted) and outcome.sent and (failures := self._tally.succeeded()):
            self._retried_error = None
            self._log.info("plugin works again", failures=failures)
        return outcome

    def _cpu_s(self) -> float:
        """Return the CPU seconds of this thread and of the plugin's process, if any."""
        child_s = self._plugin.cpu_s if isinstance(self._plugin, PluginProxy) else 0.0
        return time.thread_time() + child_s

    def _export(self, pushes: Sequence[Push]) -> Outcome:
        # The conversions are inside, because a text or delay of the wrong type counts as a crash
        # too.
        try:
            try:
                return self._accepted(call_export(self._plugin, pushes))
            except RetryableError as error:
                retry_after_s = None if error.retry_after_s is None else float(error.retry_after_s)
                self._failed_for_now(str(error), pushes)
                return Retry(retry_after_s)
            except UnclearError as error:
                self._failed("export failed for an unclear reason", str(error), pushes)
                return Unclear(is_crash=False)
            except PermanentError as error:
                points = _points(error.rejected_points)
                if isinstance(error, BatchRefusedError) and len(pushes) > 1:
                    self._failed("export refused as a whole, halves will be tried", str(error), pushes)
                    return BatchRefused()
                self._failed("export refused, pushes dropped", str(error), pushes)
                return Refused(DropReason.PERMANENT, points)
        except BaseException as error:  # the contract: any other exception, SystemExit too, is a crash
            self._failed("plugin crashed, will be restarted", self._redaction.exception(error), pushes)
            return Unclear(is_crash=True)

    def _accepted(self, result: ExportResult | None) -> Accepted:
        if result is None:
            return Accepted(0)
        points = _points(result.rejected_points)
        if points or result.message:
            self._log.limited(
                "destination accepted an export in part or with a warning",
                rejected_points=points,
                message=self._redaction.text(str(result.message)),
            )
        return Accepted(points, sent=bool(result.sent))

    def _failed_for_now(self, error: str, pushes: Sequence[Push]) -> None:
        if error == self._retried_error:
            self._tally.failed(self._redaction.text(error))
            return
        self._retried_error = error
        self._failed("export failed, will be retried", error, pushes)

    def _failed(self, event: str, error: str, pushes: Sequence[Push]) -> None:
        error = self._redaction.text(error)
        self._tally.failed(error)
        self._log.limited(event, error=error, pushes=len(pushes))


def _points(value: int) -> int:
    """Convert a plugin's count of points, which may have any type and size."""
    return min(max(0, int(value)), _MAX_POINTS)
