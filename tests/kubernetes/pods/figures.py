"""Keeps what tests measured, for the end of the run. No test decides by it."""

from __future__ import annotations

from typing import Final

LINES: Final[list[str]] = []


def note(line: str) -> None:
    """Have a line printed at the end of the run."""
    LINES.append(line)
