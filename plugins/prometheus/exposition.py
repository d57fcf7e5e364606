"""Writes the two scrape formats: Prometheus text 0.0.4 and OpenMetrics 1.0.

Each series' labels are formatted once, when it starts. prometheus_client formats them at each
scrape and takes several times as long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from plugins.prometheus.lines import Line
from plugins.prometheus.names import MetricName, MetricType
from plugins.prometheus.table import Cursor, Exposed, Family, SeriesTable

__all__ = ["exposition"]

#: Minimum bytes of a chunk, except the last. A chunk exceeds it by one series at most.
_CHUNK_BYTES: Final = 65_536


def exposition(table: SeriesTable, *, openmetrics: bool) -> Iterator[bytes]:
    """Write every series with its last values, in chunks.

    A chunk has about 64 KiB. Between two chunks a scrape holds only metric names and a few series,
    so a slow scraper costs no memory and blocks no push.

    Lines have no timestamps, so that Prometheus marks missing series as stale. Exponential
    histograms are left out, because neither format has them.

    A format allows each name once, with one type. If two metrics need the same name, their samples
    are written untyped. So no series is lost because another client uses its name.

    Args:
        table: The series.
        openmetrics: Whether to write OpenMetrics. Only this format has start times.

    Source: Prometheus, "Text-based format"; OpenMetrics 1.0, "Text format".
    """
    families = table.families()
    names = [family.name.openmetrics if openmetrics else family.name.samples for family in families]
    uses = Counter(name for family_names in names for name in family_names)
    untyped: dict[str, list[MetricName]] = {}
    chunk = _Chunk()
    for family, family_names in zip(families, names, strict=True):
        if any(uses[name] > 1 for name in family_names):
            for sample in family.name.samples:
                untyped.setdefault(sample, []).append(family.name)
            continue
        yield from _typed(table, family, chunk, openmetrics=openmetrics)
    for sample, metrics in untyped.items():
        head: bytes | None = f"# TYPE {sample} {'unknown' if openmetrics else 'untyped'}\n".encode()
        for name in metrics:
            for exposed in _series(table, name):
                lines, values, _ = exposed.last
                for (line, labels, *_), value in zip(lines, values, strict=False):
                    if line == sample:
                        if head is not None:
                            chunk.add(head)
                            head = None
                        chunk.add(b"%b%b %b\n" % (line.encode(), labels.text, _text(value)))
                if chunk.full:
                    yield chunk.pop()
    if openmetrics:
        chunk.add(b"# EOF\n")
    yield chunk.pop()


def _typed(table: SeriesTable, family: Family, chunk: _Chunk, *, openmetrics: bool) -> Iterator[bytes]:
    """Write a metric whose names no other metric uses."""
    name = family.name
    created = f"{name.family}_created".encode()
    # A metric without values gets no head.
    head: bytes | None = _head(family, openmetrics=openmetrics)
    for exposed in _series(table, name):
        lines, values, start_ms = exposed.last
        if not values:
            continue
        if head is not None:
            chunk.add(head)
            head = None
        shown_lines = lines[:-1] if openmetrics and _lacks_sum(name, lines) else lines
        for (line, labels, *_), value in zip(shown_lines, values, strict=False):
            chunk.add(b"%b%b %b\n" % (line.encode(), labels.text, _text(value)))
        if openmetrics and start_ms:
            # The last line is the count, or the only line; it has the series' own labels.
            chunk.add(b"%b%b %b\n" % (created, lines[-1][1].text, repr(start_ms / 1000).encode()))
        if chunk.full:
            yield chunk.pop()


def _series(table: SeriesTable, name: MetricName) -> Iterator[Exposed]:
    cursor = Cursor()
    while block := table.read_block(name, cursor):
        yield from block


class _Chunk:
    """Lines that are not yet yielded."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._size = 0

    @property
    def full(self) -> bool:
        return self._size >= _CHUNK_BYTES

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)

    def pop(self) -> bytes:
        content = b"".join(self._lines)
        self._lines, self._size = [], 0
        return content


def _head(family: Family, *, openmetrics: bool) -> bytes:
    name = family.name
    shown = name.family if openmetrics else name.name
    kind = "gauge" if name.type is MetricType.INFO and not openmetrics else name.type.value
    head = f"# TYPE {shown} {kind}\n"
    if openmetrics and name.unit and shown.endswith(f"_{name.unit}"):
        head += f"# UNIT {shown} {name.unit}\n"
    if family.description:
        head += f"# HELP {shown} {_escaped(family.description, openmetrics=openmetrics)}\n"
    return head.encode()


def _lacks_sum(name: MetricName, lines: Sequence[Line]) -> bool:
    """Return whether a histogram has no sum. Then OpenMetrics allows no count either."""
    return name.type is MetricType.HISTOGRAM and len(lines) > 1 and not lines[-2][0].endswith("_sum")


def _text(value: float) -> bytes:
    text = repr(value)
    # Python writes inf and nan.
    return (text if text[-1] not in "fn" else {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}[text]).encode()


def _escaped(description: str, *, openmetrics: bool) -> str:
    text = description.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if openmetrics else text
