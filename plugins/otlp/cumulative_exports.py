"""Pushes as cumulative metrics, one export each, however often it is tried.

Owns which push was made cumulative for which attempt, and what is told of points that can't be. How deltas
add up is ``plugins.cumulative``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plugins.cumulative import Cumulative, Once
from receiver.plugin import ExportResult, Push

__all__ = ["CumulativeExports"]


class CumulativeExports:
    """Makes pushes cumulative and exports them.

    Args:
        max_series: Bound on the number of series.
        max_bytes: Bound on their estimated bytes.
    """

    def __init__(self, max_series: int, max_bytes: int) -> None:
        self._state: Cumulative[Any, Any] = Cumulative(max_series=max_series, max_bytes=max_bytes)
        self._made: Once[tuple[bytes, int]] = Once()

    def export(
        self, pushes: Sequence[Push], send: Callable[[bytes], ExportResult | None]
    ) -> ExportResult | None:
        """Export pushes in one request.

        Args:
            pushes: The pushes; those of an attempt that failed are sent again as they were.
            send: Sends the bytes of an ``ExportMetricsServiceRequest``; what it raises passes.

        Returns:
            None, or what was rejected: by the destination, and here.
        """
        made = self._made.of(pushes, self._make)
        body = b"".join([data for data, _ in made])
        # Nothing is left of a push that was seen before.
        result = send(body) if body else None
        self._made.delivered(pushes)
        if not (refused := sum(points for _, points in made)):
            return result
        said = result or ExportResult()
        ours = f"{refused} points can't be made cumulative: nothing to add, too long, or no room"
        return ExportResult(
            rejected_points=said.rejected_points + refused,
            message=f"{said.message}; {ours}" if said.message else ours,
        )

    def _make(self, push: Push) -> tuple[bytes, int]:
        taken = self._state.take(push)
        return taken.data, taken.refused
