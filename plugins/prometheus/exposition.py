"""The two text formats that Prometheus scrapes.

Owns their writing: Prometheus text 0.0.4 and OpenMetrics 1.0. The labels of each line were written when its
series began; prometheus_client, which writes them at each scrape, takes several times as long. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from plugins.prometheus.lines import Line
from plugins.prometheus.names import MetricName, MetricType
from plugins.prometheus.table import Family

__all__ = ["exposition"]


def exposition(families: Iterable[Family], *, openmetrics: bool) -> bytes:
    """Write every series with its last values.

    There are no times on the lines: then Prometheus itself sees when a series is there no more. Exponential
    histograms are left out, because neither format has them.

    A format has each name once, with one type. Metrics of which two need the same name are told without a
    type, by the names of their samples: so nobody's series are left out for a name that somebody else took.

    Args:
        families: From :meth:`plugins.prometheus.table.SeriesTable.families`.
        openmetrics: Which format; only OpenMetrics tells since when something counts.

    Source: Prometheus, "Text-based format"; OpenMetrics 1.0, "Text format".
    """
    out: list[str] = []
    families = list(families)
    names = [one.name.openmetrics if openmetrics else one.name.samples for one in families]
    needed = Counter(name for several in names for name in several)
    untyped: dict[str, list[str]] = {}
    for family, several in zip(families, names, strict=True):
        if any(needed[name] > 1 for name in several):
            _write_untyped(family, untyped)
            continue
        name = family.name
        shown = name.family if openmetrics else name.name
        kind = "gauge" if name.type is MetricType.INFO and not openmetrics else name.type.value
        head = len(out)
        out.append(f"# TYPE {shown} {kind}\n")
        if openmetrics and name.unit and shown.endswith(f"_{name.unit}"):
            out.append(f"# UNIT {shown} {name.unit}\n")
        if family.description:
            out.append(f"# HELP {shown} {_escaped(family.description, openmetrics=openmetrics)}\n")
        series = len(out)
        for exposed in list(family.members.values()):
            lines, values, start_ms = exposed.last
            shown_lines = lines[:-1] if openmetrics and _lacks_sum(name, lines) else lines
            for (line, labels, *_), value in zip(shown_lines, values, strict=False):
                out.append(f"{line}{labels.text} {_text(value)}\n")
            if openmetrics and start_ms and values:
                # The last line of several is the count, which has the series' own labels.
                out.append(f"{name.family}_created{lines[-1][1].text} {start_ms / 1000}\n")
        if len(out) == series:
            del out[head:]
    for sample, told in untyped.items():
        out.append(f"# TYPE {sample} {'unknown' if openmetrics else 'untyped'}\n")
        out += told
    if openmetrics:
        out.append("# EOF\n")
    return "".join(out).encode()


def _write_untyped(family: Family, untyped: dict[str, list[str]]) -> None:
    for exposed in list(family.members.values()):
        lines, values, _ = exposed.last
        for (line, labels, *_), value in zip(lines, values, strict=False):
            untyped.setdefault(line, []).append(f"{line}{labels.text} {_text(value)}\n")


def _lacks_sum(name: MetricName, lines: Sequence[Line]) -> bool:
    """Whether a histogram has no sum: then OpenMetrics has no count, the last of its lines, either."""
    return name.type is MetricType.HISTOGRAM and len(lines) > 1 and not lines[-2][0].endswith("_sum")


def _text(value: float) -> str:
    text = repr(value)
    # Python says inf and nan.
    return text if text[-1] not in "fn" else {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}[text]


def _escaped(description: str, *, openmetrics: bool) -> str:
    text = description.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if openmetrics else text
