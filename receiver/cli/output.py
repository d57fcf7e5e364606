"""Output of commands: tables, JSON and one-line errors, safe for a terminal."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
import yaml

#: A table is as wide as the terminal, and at least so many columns.
_LEAST_WIDTH: Final = 80

#: The least columns of a cell that is cut.
_LEAST_CELL: Final = 4

_GAP: Final = "  "

#: A command in a sentence, which is pasted from one line.
_COMMAND: Final = re.compile(r"`[^`]+`")

#: Stands for a blank at which no line ends; :func:`plain` leaves none.
_NO_BREAK: Final = "\0"


class OutputFormat(StrEnum):
    """Output format of a command."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[
    OutputFormat,
    typer.Option(
        "--output",
        "-o",
        help="A table that fits the terminal, all columns in full, or JSON or YAML for programs.",
    ),
]


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


def print_document(value: Any, output: OutputFormat, cluster: str | None = None) -> None:
    """Write a value as JSON or YAML.

    With ``cluster``, it is one of several documents, each with the name of its sidecar.
    """
    if cluster is not None:
        value = {"cluster": cluster, **value}
    if output is OutputFormat.YAML:
        if cluster is not None:
            typer.echo("---")
        # Without allow_unicode, PyYAML escapes everything but printable ASCII.
        typer.echo(yaml.safe_dump(value, sort_keys=False, width=100).rstrip("\n"))
    else:
        print_json(value)


def print_list(
    items: Sequence[dict[str, Any]],
    output: OutputFormat,
    row: Callable[[dict[str, Any]], Mapping[str, str]],
    nothing: str,
    *,
    narrow: Sequence[str] = (),
    whole: Collection[str] = (),
) -> None:
    """Write items as a document or as a table, or ``nothing`` on stderr for no items.

    An item of one of several sidecars has its name as ``cluster``.

    Args:
        row: Returns the cells of an item by title.
        narrow: The titles of a table that fits the terminal; empty: all.
        whole: The titles whose cells are never cut.
    """
    if output not in {OutputFormat.TABLE, OutputFormat.WIDE}:
        print_document(items, output)
    elif items:
        rows = [{**_cluster(item), **row(item)} for item in items]
        titles = [*_cluster(items[0]), *narrow] if narrow else list(rows[0])
        print_table(rows, output, narrow=titles, whole=whole)
    else:
        typer.echo(nothing, err=True)


def _cluster(item: Mapping[str, Any]) -> dict[str, str]:
    return {"cluster": item["cluster"]} if "cluster" in item else {}


def print_table(
    rows: Sequence[Mapping[str, str]],
    output: OutputFormat,
    *,
    narrow: Sequence[str] = (),
    whole: Collection[str] = (),
) -> None:
    """Write rows, at least one, as a table with aligned columns.

    With ``wide``, the table has all columns in full. Otherwise it has those of ``narrow``, and
    cells are cut until it fits. Cells of the columns in ``whole`` are never cut.
    """
    wide = output is OutputFormat.WIDE
    titles = list(rows[0]) if wide or not narrow else list(narrow)
    lines = [
        [title.upper() for title in titles],
        *([plain(row[title]) for title in titles] for row in rows),
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if not wide:
        _shrink(widths, [title not in whole for title in titles])
    for line in lines:
        cells = [_cut(cell, width).ljust(width) for cell, width in zip(line, widths, strict=True)]
        typer.echo(_GAP.join(cells).rstrip())


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Write names and values; long values go on in further lines."""
    fields = [(plain(name), plain(value)) for name, value in fields]
    width = max((len(name) for name, _ in fields), default=0)
    for name, value in fields:
        print_wrapped(value, f"{name.ljust(width)}{_GAP}")


def print_wrapped(text: str, begin: str = "") -> None:
    """Write text behind ``begin``, wrapped and indented as it is.

    A command between backticks stays on a line if it fits.
    """
    width = max(20, _width() - len(begin))

    def whole(command: re.Match[str]) -> str:
        return command[0].replace(" ", _NO_BREAK) if len(command[0]) <= width else command[0]

    lines = textwrap.wrap(_COMMAND.sub(whole, plain(text)), width, break_on_hyphens=False)
    for number, line in enumerate(lines or [""]):
        typer.echo(f"{' ' * len(begin) if number else begin}{line}".replace(_NO_BREAK, " ").rstrip())


def _width() -> int:
    return max(_LEAST_WIDTH, shutil.get_terminal_size((_LEAST_WIDTH, 24)).columns)


def _shrink(widths: list[int], may_be_cut: Sequence[bool]) -> None:
    """Make the widest columns that may be cut narrower, until the table fits."""
    columns = [index for index, cut in enumerate(may_be_cut) if cut]
    for _ in range(sum(widths) + len(_GAP) * (len(widths) - 1) - _width()):
        widest = max(columns, key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= _LEAST_CELL:
            return
        widths[widest] -= 1


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else f"{cell[: width - 1]}\N{HORIZONTAL ELLIPSIS}"


def plain(text: str) -> str:
    """Return the text with a mark in place of each unprintable character."""
    # A Kafka client chooses its client id, which must not control the terminal.
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )
