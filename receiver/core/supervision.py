"""What the supervisor has reported, as warnings and metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from receiver.metrics.families import counter, gauge
from receiver.supervisor.times import PING_EVERY_S

#: Seconds without a ping after which the supervisor hangs: twelve pings.
_SILENT_S: Final = 12 * PING_EVERY_S


class Supervision(Collector):
    """The supervisor's newest report, and when it last asked for a sign of life.

    The report is :class:`receiver.supervisor.report.Report`'s.

    Attributes:
        restarts: Processes that died and were started again, by kind.
    """

    def __init__(self, now: float) -> None:
        self._pinged_at = now
        self._applied_at = 0.0
        self._problem: str | None = None
        self.restarts: Mapping[str, int] = {}

    def reported(self, fields: Mapping[str, Any]) -> None:
        """Take a report of the supervisor."""
        self._applied_at = float(fields["applied_at"])
        self._problem = fields["problem"]
        self.restarts = dict(fields["restarts"])

    def pinged(self, now: float) -> None:
        """Note that the supervisor has asked whether this process is alive."""
        self._pinged_at = now

    def hangs(self, now: float) -> bool:
        """Whether the supervisor, which asks every five seconds, was silent for a minute."""
        return now - self._pinged_at > _SILENT_S

    def warnings(self) -> Iterator[str]:
        """Yield what should be corrected, for ``/readyz``."""
        if self._problem is not None:
            yield f"the last reload was refused, the configuration before it stays in force: {self._problem}"

    def collect(self) -> Iterator[Metric]:
        """Return the metrics; nothing before the first report."""
        if not self.restarts:
            return
        yield gauge(
            "config_last_reload_successful",
            "1 unless the last reload of the configuration was refused.",
            int(self._problem is None),
        )
        yield gauge(
            "config_last_reload_success_timestamp_seconds",
            "When the configuration in force was applied, at the start or by a reload.",
            self._applied_at,
        )
        yield counter(
            "process_restarts", "Processes that died and were started again.", self.restarts, "process"
        )
