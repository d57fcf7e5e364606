"""One call of a plugin's export: timed, counted, and every outcome turned into a value.

Owns the containment: whatever a plugin raises, SystemExit included, ends here. Decides nothing about what
comes next (the sender does).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from receiver.host.delivery.cpu_account import CpuAccount
from receiver.host.delivery.failure_log import FailureLog, Redaction
from receiver.host.delivery.statistics import DropReason, Tally
from receiver.plugin import (
    BatchRefusedError,
    ClientTelemetryReceiver,
    ExportResult,
    PermanentError,
    Push,
    RetryableError,
)

__all__ = [
    "Again",
    "BatchRefused",
    "Crashed",
    "ObservedExport",
    "Outcome",
    "Refused",
    "Took",
    "call_export",
]


@dataclass(frozen=True, slots=True)
class Took:
    """The destination took the pushes, but for so many data points."""

    rejected_points: int


@dataclass(frozen=True, slots=True)
class Again:
    """The same export may succeed later; the destination asked for so many seconds, or for nothing."""

    retry_after_s: float | None


@dataclass(frozen=True, slots=True)
class BatchRefused:
    """These pushes, more than one, will never succeed together; a part of them may."""


@dataclass(frozen=True, slots=True)
class Crashed:
    """The plugin raised what the contract doesn't know: nobody can tell what state it is in."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The same export will never succeed."""

    reason: DropReason
    rejected_points: int


@runtime_checkable
class HasOwnCpu(Protocol):
    """A plugin whose work is done in another process."""

    @property
    def cpu_s(self) -> float:
        """CPU seconds that its exports took there."""


Outcome = Took | Again | BatchRefused | Crashed | Refused


#: More points are not counted in one export: the sum has to be a number that metrics can show.
_MOST_POINTS: Final = 1 << 53


def call_export(plugin: ClientTelemetryReceiver, pushes: Sequence[Push]) -> ExportResult | None:
    """Have a plugin export pushes by the method that it has for that; raises what the plugin raises.

    Args:
        plugin: The plugin.
        pushes: At least one, and no more than its ``max_batch_items``.
    """
    if plugin.max_batch_items > 1:
        return plugin.export_batch(pushes)
    (push,) = pushes
    return plugin.export(push.context, push.payload)


class ObservedExport:
    """Calls a plugin's ``export`` or ``export_batch`` and says how it went.

    Args:
        plugin: The plugin.
        tally: Where calls and failures are counted.
        log: Where they are told.
        redaction: Takes secrets out of what the plugin says.
        clock: Monotonic seconds.
        cpu: Where the CPU time of exports is charged; of one that the destination could not take now it is
            not, because clients are not the cause.
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

    def __call__(self, pushes: Sequence[Push]) -> Outcome:
        """Export pushes, at least one; never raises."""
        began = self._clock()
        self._tally.call_began(began)
        cpu_began = self._cpu_s()
        try:
            outcome = self._export(pushes)
        finally:
            self._tally.export_ended(self._clock() - began)
        if not isinstance(outcome, Again):
            self._cpu.add(pushes, self._cpu_s() - cpu_began)
        if isinstance(outcome, Took) and (failures := self._tally.succeeded()):
            self._log.info("plugin works again", failures=failures)
        return outcome

    def _cpu_s(self) -> float:
        """CPU seconds of this thread, and of the plugin's process where it has one of its own."""
        elsewhere = self._plugin.cpu_s if isinstance(self._plugin, HasOwnCpu) else 0.0
        return time.thread_time() + elsewhere

    def _export(self, pushes: Sequence[Push]) -> Outcome:
        # Reading what the plugin gave us is inside: a reason or a delay of a wrong type is a crash too.
        try:
            try:
                result = call_export(self._plugin, pushes)
                return self._took(result)
            except RetryableError as error:
                after = None if error.retry_after_s is None else float(error.retry_after_s)
                self._failed("export failed, will be tried again", str(error), pushes)
                return Again(after)
            except PermanentError as error:
                points = _points(error.rejected_points)
                if isinstance(error, BatchRefusedError) and len(pushes) > 1:
                    self._failed("export refused as a whole, will be tried in halves", str(error), pushes)
                    return BatchRefused()
                self._failed("export refused, pushes dropped", str(error), pushes)
                return Refused(DropReason.PERMANENT, points)
        except BaseException as error:  # the contract: any other exception, SystemExit too, is a crash
            self._failed("plugin crashed, will be started anew", self._redaction.exception(error), pushes)
            return Crashed()

    def _took(self, result: ExportResult | None) -> Took:
        if result is None:
            return Took(0)
        points = _points(result.rejected_points)
        if points or result.message:
            self._log.limited(
                "destination took an export in part or with a warning",
                rejected_points=points,
                message=self._redaction.text(str(result.message)),
            )
        return Took(points)

    def _failed(self, event: str, error: str, pushes: Sequence[Push]) -> None:
        error = self._redaction.text(error)
        self._tally.failed(error)
        self._log.limited(event, error=error, pushes=len(pushes))


def _points(said: int) -> int:
    """Read what a plugin says, which may be of any type and size."""
    return min(max(0, int(said)), _MOST_POINTS)
