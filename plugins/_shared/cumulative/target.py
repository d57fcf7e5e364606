"""One Resource of one client instance, with its series."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from plugins._shared.cumulative.series import Kind, Series
from plugins._shared.cumulative.shape import Shape

__all__ = ["Target"]


@dataclass(slots=True, eq=False)
class Target:
    """One Resource of one client instance: a source of series for a destination.

    Attributes:
        key: The result of the caller's ``identify``, unique within the instance.
        resource: The Resource's bytes in the last push.
        series: Series by metric name, unit and kind, then by attributes.
        shapes: The encodings of the last push's metrics, in their order.
        size: Estimated bytes without the series.
        state: The caller's own state; None until the caller sets it.
    """

    key: Hashable
    resource: bytes = b""
    series: dict[tuple[str, str, Kind], dict[tuple[bytes, ...], Series]] = field(default_factory=dict)
    shapes: list[Shape | None] = field(default_factory=list)
    size: int = 0
    state: Any = None
