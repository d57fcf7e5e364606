"""Reads values.yaml: each value's path, default, description and schema keywords."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

_DESCRIPTION: Final = "# -- "
_KEYWORDS: Final = "# @ "


class ValuesError(Exception):
    """A comment in values.yaml is missing or wrong; the message names line, key and fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value that a user may set."""

    #: Its keys, outermost first.
    path: tuple[str, ...]
    default: Any
    description: str
    #: Keywords of JSON schema, in addition to the default's type.
    keywords: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A mapping whose keys are all known; the whole file has an empty path."""

    path: tuple[str, ...]
    #: May be empty.
    description: str
    entries: tuple[Section | Value, ...]

    def values(self) -> Iterator[Value]:
        """Yield all values in it and below it, in the order of the file."""
        for entry in self.entries:
            if isinstance(entry, Section):
                yield from entry.values()
            else:
                yield entry


def parse(text: str) -> Section:
    """Read the text of values.yaml."""
    document = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(document, yaml.MappingNode), "values.yaml is a mapping"  # noqa: S101
    return Section(path=(), description="", entries=_entries(document, (), text.splitlines()))


def _entries(mapping: yaml.Node, path: tuple[str, ...], lines: list[str]) -> tuple[Section | Value, ...]:
    found: list[Section | Value] = []
    for key, node in mapping.value:
        here = (*path, key.value)
        comment = _comment(lines, key.start_mark.line)
        description = " ".join(line for line in comment if not line.startswith(_KEYWORDS))
        description = description.removeprefix(_DESCRIPTION).replace(" # ", " ")
        if _documents_keys(node, lines):
            found.append(Section(path=here, description=description, entries=_entries(node, here, lines)))
            continue
        if not description:
            raise ValuesError(
                f"values.yaml:{key.start_mark.line + 1}: {'.'.join(here)}: "
                f"has no comment; write `{_DESCRIPTION}...` above it"
            )
        found.append(
            Value(
                path=here,
                default=yaml.SafeLoader("").construct_document(node),
                description=description,
                keywords=_keywords(comment, here),
            )
        )
    return tuple(found)


def _documents_keys(node: yaml.Node, lines: list[str]) -> bool:
    """Whether a mapping's keys have comments; a mapping in braces has no room for them."""
    block = isinstance(node, yaml.MappingNode) and not node.flow_style
    return block and any(
        _comment(lines, key.start_mark.line) or _documents_keys(below, lines) for key, below in node.value
    )


def _comment(lines: list[str], line: int) -> list[str]:
    """Return the lines of the comment above a key, if it is a description."""
    begin = line
    while begin and lines[begin - 1].lstrip().startswith("#"):
        begin -= 1
    above = [text.strip() for text in lines[begin:line]]
    first = next((at for at, text in enumerate(above) if text.startswith(_DESCRIPTION)), None)
    return [] if first is None else above[first:]


def _keywords(comment: list[str], path: tuple[str, ...]) -> dict[str, Any]:
    keywords: dict[str, Any] = {}
    for line in comment:
        if not line.startswith(_KEYWORDS):
            continue
        read = yaml.safe_load(line.removeprefix(_KEYWORDS))
        if not isinstance(read, dict):
            raise ValuesError(f"values.yaml: {'.'.join(path)}: {line}: expected a mapping of schema keywords")
        keywords |= read
    return keywords
