"""Reads files of subscriptions: one, a list, or a folder of them.

A file is one subscription, named like the file unless it has a ``name``, or a list of
subscriptions. All mistakes of all files are reported at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer

from receiver.cli.output import fail
from receiver.settings.plain_yaml import PlainYamlError, parse
from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.subscription_document import read_document

__all__ = ["read_file", "read_subscriptions"]

_ENDINGS: Final = (".yaml", ".yml", ".json")


def read_file(file: Path) -> Any:
    """Return the document of a file in YAML or JSON; ``-`` is stdin. A mistake exits."""
    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="--file") from None
    try:
        return parse(content)
    except PlainYamlError as error:
        raise fail(f"{_shown(file)}: {error}", 2) from None


def read_subscriptions(place: Path) -> dict[str, dict[str, Any]]:
    """Return the documents of a file or folder by name. Mistakes exit, each on a line."""
    found: dict[str, dict[str, Any]] = {}
    mistakes = []
    for file in _files(place):
        content = read_file(file)
        several = isinstance(content, list)
        for index, document in enumerate(content if several else [content]):
            where = f"{_shown(file)}: [{index}]" if several else _shown(file)
            own = document.get("name") if isinstance(document, dict) else None
            name = own if own is not None or several else file.stem
            try:
                subscription = read_document(document, name=name)
            except SubscriptionError as error:
                mistakes += [f"{where}: {one}" if one.field else f"{where}{one}" for one in error.all]
                continue
            if subscription.name in found:
                mistakes.append(f"{where}: name: {subscription.name!r} is given twice; give another name")
            found[subscription.name] = {**document, "name": subscription.name}
    for mistake in mistakes:
        fail(mistake)
    if mistakes:
        raise typer.Exit(2)
    return found


def _files(place: Path) -> Iterator[Path]:
    if not place.is_dir():
        yield place
        return
    files = [
        one
        for one in sorted(place.iterdir())
        if one.suffix in _ENDINGS and not one.name.startswith(".") and one.is_file()
    ]
    if not files:
        # With --prune, a wrong folder would otherwise delete every subscription.
        raise typer.BadParameter(f"{place}: has no file {', '.join(_ENDINGS)}", param_hint="--file")
    yield from files


def _shown(file: Path) -> str:
    return "stdin" if str(file) == "-" else str(file)
