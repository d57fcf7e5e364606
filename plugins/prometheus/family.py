"""A Prometheus metric with its exposed series, which scrapes read in blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from plugins._shared.cumulative import Kind
from plugins.prometheus.lines import LabelSet, Layout, Line
from plugins.prometheus.names import MetricName
from plugins.prometheus.targets import Labels

#: Bounds on the series, and the bytes of their texts, that a scrape reads at once.
_BLOCK_SERIES: Final = 128
_BLOCK_BYTES: Final = 65_536


@dataclass(slots=True, eq=False)
class Exposed:
    """A series in Prometheus, with one line or several."""

    kind: Kind
    family: Family | None
    """Its metric. None: it is hidden, because another series has its name and labels."""
    labels: LabelSet
    """Its labels, without those of single lines."""
    number: int = 0
    """Increases with each new series."""
    ended: bool = False
    """Whether the series ended and is only shown until the last scrape."""
    last: tuple[tuple[Line, ...], tuple[float, ...], int] = ((), (), 0)
    """Its lines, their values, and their start time (milliseconds since the epoch; 0: none).
    Replaced as one object, so that a reader on another thread sees one point."""
    layout: Layout = ()
    start_field: bytes = b""
    """The start time of ``last``, encoded."""
    start_ns: int = 0
    """The series' start when ``last`` got its start time."""
    time_ms: int = 0
    """Time of the last samples."""


@dataclass(slots=True)
class Cursor:
    """Position of a scrape within a metric."""

    number: int = -1
    """Number of the last series read."""
    end: int | None = None
    """Number of the last series to read; None before the first block."""
    read: int = 0
    """Number of members up to ``number``."""
    removed: int = 0
    """The metric's ``removed`` at that time."""


@dataclass(slots=True, eq=False)
class Family:
    """A Prometheus metric with its series."""

    name: MetricName
    description: str
    """That of its first series (:func:`~plugins.prometheus.trust.description`)."""
    members: dict[Labels, Exposed] = field(default_factory=dict)
    """Its series by labels, in the order of their numbers."""
    removed: int = 0
    """Number of members removed so far."""

    def read_block(self, cursor: Cursor) -> list[Exposed]:
        """Return the next series, and move the cursor behind them; none at the end.

        Each series that lives from the first block to the last is read once, although series are
        added and removed between blocks. Series that start after the first block are not read,
        because they may have the labels of one that was read and has ended.
        """
        if cursor.end is None:
            cursor.end = next((member.number for member in reversed(self.members.values())), -1)
        block: list[Exposed] = []
        size = 0
        # Members keep their order. Members removed since may have been before or after the cursor.
        position = skip = max(0, cursor.read - (self.removed - cursor.removed))
        for position, member in enumerate(islice(self.members.values(), skip, None), skip + 1):  # noqa: B007
            if member.number <= cursor.number:
                continue
            if member.number > cursor.end:
                break
            block.append(member)
            size += len(member.last[0]) * len(member.labels.text)
            if len(block) >= _BLOCK_SERIES or size >= _BLOCK_BYTES:
                break
        if block:
            cursor.number, cursor.read, cursor.removed = block[-1].number, position, self.removed
        return block
