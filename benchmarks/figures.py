"""The figures of a run with their goals, as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_NOTES = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value; the goal is an upper or a lower bound."""

    name: str
    value: float
    #: Empty for a ratio.
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
        """``met``, ``MISSED``, or empty without a goal."""
        if not self.goal:
            return ""
        low_enough = self.at_most is None or self.value <= self.at_most
        high_enough = self.at_least is None or self.value >= self.at_least
        return "met" if low_enough and high_enough else "MISSED"

    @property
    def text(self) -> str:
        """The value with its unit."""
        return f"{self.value:{'.3g' if self.value < 100 else ',.0f'}} {self.unit}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a part of the benchmarks measured: a text for people, and every single measurement."""

    title: str
    text: str
    raw: Any
    figures: list[Figure]


@dataclass(slots=True, kw_only=True)
class Results:
    """Everything that one run of the benchmarks measured."""

    figures: list[Figure] = field(default_factory=list)
    #: Every single measurement by part.
    raw: dict[str, Any] = field(default_factory=dict)
    #: The machine's load average over the minute before the run.
    load_before: float = field(default_factory=lambda: os.getloadavg()[0])

    def write(self, path: Path) -> None:
        """Write everything as JSON, with the machine and the time."""
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
            (figure.name, figure.text, figure.goal, figure.verdict, figure.note)
            for figure in self.figures
            if figure.goal
        ]
        return table(("figure", "value", "goal", "verdict", _NOTES), rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table: numbers aligned right, the first column and notes left."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = []
    for row in [head, *rows]:
        cells = [row[0].ljust(widths[0])]
        for cell, width, title in zip(row[1:], widths[1:], head[1:], strict=True):
            cells.append(cell.rjust(width) if title != _NOTES else cell)
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
