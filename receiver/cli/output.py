"""What the commands write: tables, JSON and the one line of an error.

Owns the forms only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import typer

__all__ = ["OutputFormat", "fail", "print_json", "print_table"]


class OutputFormat(StrEnum):
    """How a command shows what it found."""

    TABLE = "table"
    JSON = "json"


def fail(message: str, code: int = 1) -> typer.Exit:
    """Write one line on stderr.

    Args:
        message: What is wrong and what helps; line ends become spaces, because an answer of the server may
            repeat what a client chose.
        code: The exit status.

    Returns:
        The exception to raise.
    """
    sys.stderr.write(f"kafka-telemetry: {_plain(' '.join(message.split()))}\n")
    return typer.Exit(code)


def print_json(value: Any) -> None:
    """Write a value as JSON, with escapes for all that could steer a terminal.

    JSON itself lets DEL, the C1 controls (U+0080 to U+009F) and marks of the writing direction stand.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    typer.echo(
        "".join(
            character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1]
            for character in text
        )
    )


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], nothing: str) -> None:
    """Write a table with aligned columns.

    Args:
        columns: Their titles.
        rows: A text for each column.
        nothing: What to write on stderr where there are no rows.
    """
    if not rows:
        typer.echo(nothing, err=True)
        return
    shown = [[_plain(cell) for cell in row] for row in rows]
    widths = [max(len(title), *(len(row[n]) for row in shown)) for n, title in enumerate(columns)]
    for row in ([title.upper() for title in columns], *shown):
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _plain(text: str) -> str:
    # A client chooses its own id: what it puts there must not steer the terminal.
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )
