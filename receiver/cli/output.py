"""Output of commands: tables, JSON and one-line errors, safe for a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import typer
import yaml


class OutputFormat(StrEnum):
    """Output format of a command."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def fail(message: str, code: int = 1) -> typer.Exit:
    """Write an error on one line of stderr and return the exception to raise."""
    # Line ends become spaces, because the message may contain text that a Kafka client chose.
    sys.stderr.write(f"kafka-telemetry: {plain(' '.join(message.split()))}\n")
    return typer.Exit(code)


def print_json(value: Any) -> None:
    """Write a value as JSON and escape every unprintable character.

    JSON does not escape DEL, C1 controls (U+0080 to U+009F) and marks of the writing direction.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    typer.echo(
        "".join(
            character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1]
            for character in text
        )
    )


def print_document(value: Any, output: OutputFormat) -> None:
    """Write a value as JSON or YAML."""
    if output is OutputFormat.YAML:
        # Without allow_unicode, PyYAML escapes everything but printable ASCII.
        typer.echo(yaml.safe_dump(value, sort_keys=False, width=100).rstrip("\n"))
    else:
        print_json(value)


def print_list(
    items: Sequence[dict[str, Any]],
    output: OutputFormat,
    row: Callable[[dict[str, Any]], Mapping[str, str]],
    nothing: str,
) -> None:
    """Write items as a document or as a table, or ``nothing`` on stderr for no items."""
    if output is not OutputFormat.TABLE:
        print_document(items, output)
    elif items:
        print_table([row(item) for item in items])
    else:
        typer.echo(nothing, err=True)


def print_table(rows: Sequence[Mapping[str, str]]) -> None:
    """Write rows, at least one, as a table with aligned columns."""
    lines = [[title.upper() for title in rows[0]], *([plain(cell) for cell in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def plain(text: str) -> str:
    """Return the text with a mark in place of each unprintable character."""
    # A Kafka client chooses its client id, which must not control the terminal.
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )
