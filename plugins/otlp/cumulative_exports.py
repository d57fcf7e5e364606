"""Exports pushes as cumulative metrics, and sends a retry unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from plugins._shared.cumulative import Cumulative, ExportCache
from plugins.otlp.config import OtlpConfig
from receiver.plugin import ExportResult, Push


class CumulativeExports:
    """Converts pushes to cumulative metrics and exports them."""

    def __init__(self, config: OtlpConfig) -> None:
        self._state = Cumulative(max_series=config.max_series, max_bytes=config.max_bytes)
        self._cache: ExportCache[tuple[bytes, int]] = ExportCache()

    def export(
        self, pushes: Sequence[Push], send: Callable[[bytes], ExportResult | None]
    ) -> ExportResult | None:
        """Export pushes in one request; a retry sends the same bytes.

        Returns:
            None, or the points that the destination rejected or that cannot be made cumulative, or
            that nothing was sent.
        """
        results = self._cache.results(pushes, self._accumulate)
        body = b"".join([data for data, _ in results])
        # A repeated or empty push has no data.
        answer = send(body) if body else ExportResult(sent=False)
        self._cache.discard(pushes)
        if not (refused := sum(points for _, points in results)):
            return answer
        answer = answer or ExportResult()
        reason = f"{refused} points can't be made cumulative: nothing to add, too long, or no room"
        return replace(
            answer,
            rejected_points=answer.rejected_points + refused,
            message=f"{answer.message}; {reason}" if answer.message else reason,
        )

    def _accumulate(self, push: Push) -> tuple[bytes, int]:
        result = self._state.accumulate(push)
        return result.data, result.refused
