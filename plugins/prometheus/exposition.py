"""The two text formats that Prometheus scrapes.

Owns their writing: Prometheus text 0.0.4 and OpenMetrics 1.0. The labels of each line were written when its
series began; prometheus_client, which writes them at each scrape, takes several times as long. No I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from plugins.prometheus.lines import Line
from plugins.prometheus.names import MetricName, MetricType
from plugins.prometheus.table import Cursor, Exposed, Family, SeriesTable

__all__ = ["exposition"]

#: A chunk is handed out when it has so many bytes; one series more may be in it.
_CHUNK_BYTES: Final = 65_536


def exposition(table: SeriesTable, *, openmetrics: bool) -> Iterator[bytes]:
    """Write every series with its last values, in chunks.

    A chunk is not much larger than 64 KiB. Between two chunks, a reader holds the names of metrics and a few
    series, so that a slow one takes no memory, and pushes go on.

    There are no times on the lines: then Prometheus itself sees when a series is there no more. Exponential
    histograms are left out, because neither format has them.

    A format has each name once, with one type. Metrics of which two need the same name are written without a
    type, by the names of their samples: so no series is left out for a name that another client took.

    Args:
        table: The series.
        openmetrics: Which format; only OpenMetrics has the time since when something counts.

    Source: Prometheus, "Text-based format"; OpenMetrics 1.0, "Text format".
    """
    families = table.families()
    names = [one.name.openmetrics if openmetrics else one.name.samples for one in families]
    needed = Counter(name for several in names for name in several)
    untyped: dict[str, list[MetricName]] = {}
    chunk = _Chunk()
    for family, several in zip(families, names, strict=True):
        if any(needed[name] > 1 for name in several):
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
                    yield chunk.take()
    if openmetrics:
        chunk.add(b"# EOF\n")
    yield chunk.take()


def _typed(table: SeriesTable, family: Family, chunk: _Chunk, *, openmetrics: bool) -> Iterator[bytes]:
    """Write a metric that has its names for itself."""
    name = family.name
    created = f"{name.family}_created".encode()
    # A metric without values has no head either.
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
            # The last line of several is the count, which has the series' own labels.
            chunk.add(b"%b%b %b\n" % (created, lines[-1][1].text, repr(start_ms / 1000).encode()))
        if chunk.full:
            yield chunk.take()


def _series(table: SeriesTable, name: MetricName) -> Iterator[Exposed]:
    cursor = Cursor()
    while block := table.read_block(name, cursor):
        yield from block


class _Chunk:
    """Lines that are not yet handed out."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._size = 0

    @property
    def full(self) -> bool:
        return self._size >= _CHUNK_BYTES

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)

    def take(self) -> bytes:
        taken = b"".join(self._lines)
        self._lines, self._size = [], 0
        return taken


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
    """Whether a histogram has no sum: then OpenMetrics has no count, the last of its lines, either."""
    return name.type is MetricType.HISTOGRAM and len(lines) > 1 and not lines[-2][0].endswith("_sum")


def _text(value: float) -> bytes:
    text = repr(value)
    # Python says inf and nan.
    return (text if text[-1] not in "fn" else {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}[text]).encode()


def _escaped(description: str, *, openmetrics: bool) -> str:
    text = description.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if openmetrics else text
