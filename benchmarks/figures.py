"""The figures of a run with their goals, as a table and as JSON.

Owns the goals' form, not their values: each benchmark names the goals of what it measures.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

NOTES = "note"
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value.

    Attributes:
        name: what was measured.
        value: the value; ``None`` if it could not be measured, and ``note`` says why.
        unit: its unit; empty for a ratio.
        at_most: the goal, if it is an upper bound.
        at_least: the goal, if it is a lower bound.
        note: what a reader should know beside it.
    """

    name: str
    value: float | None
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def goal(self) -> str:
        """The goal as text; empty if there is none."""
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return f">= {self.at_least:g}" if self.at_least is not None else ""

    @property
    def verdict(self) -> str:
        """``met``, ``MISSED``, ``NOT MEASURED``, or empty where there is no goal."""
        if not self.goal:
            return ""
        if self.value is None:
            return "NOT MEASURED"
        low_enough = self.at_most is None or self.value <= self.at_most
        high_enough = self.at_least is None or self.value >= self.at_least
        return "met" if low_enough and high_enough else "MISSED"


@dataclass(slots=True, kw_only=True)
class Results:
    """All that one run of the benchmarks found; grows while it runs.

    Attributes:
        figures: in the order of the table.
        raw: every single measurement, by benchmark.
        load_before: the machine's load average over one minute before the run: what others do on
            it.
    """

    figures: list[Figure] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)
    load_before: float = field(default_factory=lambda: os.getloadavg()[0])

    def write(self, path: Path) -> None:
        """Write everything to ``path`` as JSON, with the machine and the time."""
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {
            "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": {
                "cores": os.cpu_count(),
                "kernel": platform.release(),
                "python": platform.python_version(),
                "load_average_before": self.load_before,
            },
            "figures": [
                {**asdict(figure), "goal": figure.goal, "verdict": figure.verdict} for figure in self.figures
            ],
            "raw": self.raw,
        }
        path.write_text(json.dumps(document, indent=1) + "\n")

    def table(self) -> str:
        """Return the figures that have a goal, one a line, with the goal and the verdict."""
        rows = [
            (figure.name, _number(figure.value, figure.unit), figure.goal, figure.verdict, figure.note)
            for figure in self.figures
            if figure.goal
        ]
        return table(("figure", "value", "goal", "verdict", NOTES), rows)


def _number(value: float | None, unit: str) -> str:
    return (
        "-"
        if value is None
        else f"{value:.3g} {unit}".strip()
        if value < 100
        else f"{value:,.0f} {unit}".strip()
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table under ``head``: numbers aligned right, the first column and notes left."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = []
    for row in [head, *rows]:
        cells = [row[0].ljust(widths[0])]
        for cell, width, title in zip(row[1:], widths[1:], head[1:], strict=True):
            cells.append(cell.rjust(width) if title != NOTES else cell)
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
