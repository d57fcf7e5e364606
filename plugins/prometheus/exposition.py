"""Writes the two scrape formats: Prometheus text 0.0.4 and OpenMetrics 1.0.

Each series' labels are formatted once, when it starts. prometheus_client formats them at each
scrape and takes several times as long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from plugins.prometheus.family import Cursor, Exposed, Family
from plugins.prometheus.lines import Line
from plugins.prometheus.names import MetricName, MetricType
from plugins.prometheus.table import SeriesTable

#: Minimum bytes of a chunk, except the last. A chunk exceeds it by one line at most.
_CHUNK_BYTES: Final = 65_536


def exposition(table: SeriesTable, *, openmetrics: bool) -> Iterator[bytes]:
    """Write every series with its last values in one of the two formats, in chunks.

    A chunk has about 64 KiB. Between two chunks a scrape holds only metric names and a few series,
    so a slow scraper costs no memory and blocks no push.

    Lines have no timestamps, so that Prometheus marks missing series as stale. Only OpenMetrics has
    start times. Exponential histograms are left out, because neither format has them.

    A format allows each name once, with one type. If two metrics need the same name, their samples
    are written untyped. So no series is lost because another client uses its name.

    Source: Prometheus, "Text-based format"; OpenMetrics 1.0, "Text format".
    """
    chunk: list[bytes] = []
    size = 0
    for text in _texts(table, openmetrics=openmetrics):
        chunk.append(text)
        size += len(text)
        if size >= _CHUNK_BYTES:
            content = b"".join(chunk)
            chunk.clear()
            size = 0
            yield content
    yield b"".join(chunk)


def _texts(table: SeriesTable, *, openmetrics: bool) -> Iterator[bytes]:
    """Write the lines one by one, each metric's first one with the metric's head."""
    families = table.families()
    names = [family.name.openmetrics if openmetrics else family.name.samples for family in families]
    uses = Counter(name for family_names in names for name in family_names)
    untyped: dict[str, list[MetricName]] = {}
    for family, family_names in zip(families, names, strict=True):
        if any(uses[name] > 1 for name in family_names):
            for sample in family.name.samples:
                untyped.setdefault(sample, []).append(family.name)
        else:
            yield from _typed(table, family, openmetrics=openmetrics)
    for sample, metrics in untyped.items():
        head = f"# TYPE {sample} {'unknown' if openmetrics else 'untyped'}\n".encode()
        for name in metrics:
            for exposed in _series(table, name):
                lines, values, _ = exposed.last
                pairs = zip(lines, values, strict=False)
                for line, value in pairs:
                    if line[0] == sample:
                        yield head + _line(line, value)
                        head = b""
    if openmetrics:
        yield b"# EOF\n"


def _typed(table: SeriesTable, family: Family, *, openmetrics: bool) -> Iterator[bytes]:
    """Write a metric whose names no other metric uses."""
    name = family.name
    created = f"{name.family}_created".encode()
    # A metric without values gets no head.
    head = _head(family, openmetrics=openmetrics)
    for exposed in _series(table, name):
        lines, values, start_ms = exposed.last
        if not values:
            continue
        shown_lines = lines[:-1] if openmetrics and _lacks_sum(name, lines) else lines
        for line, value in zip(shown_lines, values, strict=False):
            yield head + _line(line, value)
            head = b""
        if openmetrics and start_ms:
            # The last line is the count, or the only line; it has the series' own labels.
            yield b"%b%b %b\n" % (created, lines[-1][1].text, repr(start_ms / 1000).encode())


def _series(table: SeriesTable, name: MetricName) -> Iterator[Exposed]:
    cursor = Cursor()
    while block := table.read_block(name, cursor):
        yield from block


def _line(line: Line, value: float) -> bytes:
    return b"%b%b %b\n" % (line[0].encode(), line[1].text, _text(value))


def _head(family: Family, *, openmetrics: bool) -> bytes:
    name = family.name
    shown = name.family if openmetrics else name.name
    kind = "gauge" if name.type is MetricType.INFO and not openmetrics else name.type.value
    head = f"# TYPE {shown} {kind}\n"
    if openmetrics and name.unit and shown.endswith(f"_{name.unit}"):
        head += f"# UNIT {shown} {name.unit}\n"
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
