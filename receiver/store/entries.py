"""Reads the subscriptions of a file, with their places and every mistake.

A file is a mapping of one subscription, whose default name is the file's without its suffix, or a
list of subscriptions with names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from receiver.store.document import Mistake, from_document
from receiver.telemetry.subscription import Subscription
from spark_streaming.plain_yaml import Loc, PlainYamlError, parse, positions

_Read = TypeVar("_Read")

SUFFIXES: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Entry:
    """A subscription of a file."""

    subscription: Subscription
    document: dict[str, Any]
    """What the file says of it."""
    place: str
    """Where its name is, ``FILE:LINE:COLUMN``."""


def read_entries(file: str, content: bytes, *, stem: str | None = None) -> tuple[list[Entry], list[str]]:
    """Read the content of a file.

    Args:
        file: The file's name in places and mistakes.
        stem: The default name of its one subscription.

    Returns:
        The valid subscriptions, and a line for each mistake: ``FILE:LINE:COLUMN: FIELD: PROBLEM``.
    """
    found, mistakes = read_documents(file, content, stem, _from_document, "name")
    return [Entry(subscription, document, place) for subscription, document, place in found], mistakes


def _from_document(document: Any, name: str | None) -> Subscription | list[Mistake]:
    return from_document(document, name=name)


def read_documents(
    file: str,
    content: bytes,
    stem: str | None,
    read: Callable[[Any, str | None], _Read | list[Mistake]],
    name_key: str,
) -> tuple[list[tuple[_Read, Any, str]], list[str]]:
    """Read a file of one document, or of a list of them.

    Returns what was read, each with its document and the place of its name; and a line for each
    mistake.

    Args:
        file: The file's name in places and mistakes.
        stem: The default name of its one document.
        read: Reads a document with its default name, or returns its mistakes.
    """
    try:
        document = parse(content)
        known = positions(content)
    except PlainYamlError as error:
        at = ":{}:{}".format(*error.position) if error.position else ""
        where = f"{error.where}: " if error.where and not error.position else ""
        return [], [f"{file}{at}: {where}{error.problem}"]

    def place(loc: Loc) -> str:
        while loc and loc not in known:
            loc = loc[:-1]
        line, column = known.get(loc, (1, 1))
        return f"{file}:{line}:{column}"

    found: list[tuple[Loc, Any, str | None]]
    if document is None:
        return [], []
    if isinstance(document, list):
        found = [((index,), entry, None) for index, entry in enumerate(document)]
    else:
        found = [((), document, stem)]
    entries: list[tuple[_Read, Any, str]] = []
    mistakes: list[str] = []
    for loc, value, name in found:
        result = read(value, name)
        if isinstance(result, list):
            mistakes += [f"{place((*loc, *it.loc))}: {Mistake((*loc, *it.loc), it.text)}" for it in result]
        else:
            entries.append((result, value, place((*loc, name_key))))
    return entries, mistakes


def name_taken(entry: Entry, other: str) -> str:
    """Return the mistake of a name that a subscription at another place has too."""
    name = entry.subscription.name
    return f"{entry.place}: name: {name!r} is the name of a subscription at {other} too; give another name"
