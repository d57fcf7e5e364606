"""Reads files of subscriptions: one, a list, or a folder of them.

What a file is, see :mod:`receiver.store.entries`. All mistakes of all files are reported at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from receiver.cli.output import fail
from receiver.store.entries import SUFFIXES, Entry, name_taken, read_entries
from spark_streaming.files import MAX_CONFIGURATION_BYTES, FileError, read_bounded, read_stream
from spark_streaming.plain_yaml import PlainYamlError, parse


def read_file(file: Path) -> Any:
    """Return the document of a file in YAML or JSON; ``-`` is stdin. A mistake exits."""
    try:
        return parse(_content(file))
    except PlainYamlError as error:
        raise fail(f"{_shown(file)}: {error}", 2) from None


def read_subscriptions(place: Path) -> dict[str, dict[str, Any]]:
    """Return the documents of a file or folder by name. Mistakes exit, each on a line."""
    found: dict[str, Entry] = {}
    mistakes: list[str] = []
    for file in _files(place):
        stem = None if str(file) == "-" else file.stem
        entries, wrong = read_entries(_shown(file), _content(file), stem=stem)
        mistakes += wrong
        for entry in entries:
            name = entry.subscription.name
            if name in found:
                mistakes.append(name_taken(entry, found[name].place))
            found.setdefault(name, entry)
    for mistake in mistakes:
        fail(mistake)
    if mistakes:
        raise typer.Exit(2)
    return {name: {**entry.document, "name": name} for name, entry in found.items()}


def _content(file: Path) -> bytes:
    try:
        if str(file) == "-":
            return read_stream(sys.stdin.buffer, MAX_CONFIGURATION_BYTES)
        return read_bounded(file, MAX_CONFIGURATION_BYTES)
    except FileError as error:
        raise typer.BadParameter(f"{_shown(file)}: {error}", param_hint="--file") from None


def _files(place: Path) -> Iterator[Path]:
    if not place.is_dir():
        yield place
        return
    files = [
        file
        for file in sorted(place.iterdir())
        if file.suffix in SUFFIXES and not file.name.startswith(".") and file.is_file()
    ]
    if not files:
        # With --prune, a wrong folder would otherwise delete every subscription.
        raise typer.BadParameter(f"{place}: has no file {', '.join(SUFFIXES)}", param_hint="--file")
    yield from files


def _shown(file: Path) -> str:
    return "stdin" if str(file) == "-" else str(file)
