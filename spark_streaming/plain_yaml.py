"""Parses plain YAML: mappings, lists, texts, numbers, booleans and null.

A key that is given twice is an error (PyYAML takes the last one), a date stays text, and anchors
cannot expand a small text to a huge or endless value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from spark_streaming.files import MAX_CONFIGURATION_BYTES, read_bounded

#: The path of a value: keys and indexes.
Loc: TypeAlias = tuple[str | int, ...]

_MAX_VALUES = 100_000
_MAX_DEPTH = 32
_MAX_BITS = 64
_SHOWN_DEPTH = 3
_MAX_SHOWN = 100

_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


@dataclass(eq=False)
class PlainYamlError(ValueError):
    """The text is not plain YAML."""

    #: Line and column, or the key; may be empty.
    where: str
    #: It shows keys, but no values.
    problem: str
    #: Line and column, from 1, if they are known.
    position: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}" if self.where else self.problem


def key_text(loc: Loc) -> str:
    """Format a path such as ``("listeners", 0, "bind")`` as ``listeners[0].bind``."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = part if part.isprintable() and len(part) <= _MAX_SHOWN else repr(part[:_MAX_SHOWN])
            text += f".{plain}" if text else plain
    return text


def parse(content: str | bytes) -> Any:
    """Parse a document: text, or bytes in UTF-8 or UTF-16. None if it is empty."""
    try:
        document = yaml.load(content, Loader=_Loader)  # noqa: S506 -- _Loader is a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        position = (mark.line + 1, mark.column + 1) if mark else None
        where = f"line {position[0]}, column {position[1]}" if position else ""
        raise PlainYamlError(where, _without_values(error.problem or "not YAML"), position) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise PlainYamlError("", "not YAML text") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError):
        # PyYAML's constructors raise these: `!!int ""`, `!!bool x`, a float of 200 sexagesimals.
        raise PlainYamlError("", "a number or a value with a tag can't be read: quote texts") from None
    _check(document)
    return document


def read(file: Path) -> Any:
    """Read and parse a configuration file. None if it is empty.

    Raises:
        FileError: It can't be read, or is too large.
        PlainYamlError: It is not plain YAML.
    """
    return parse(read_bounded(file, MAX_CONFIGURATION_BYTES))


class _Loader(yaml.SafeLoader):
    # Pairs of mappings so far, with those that ``<<`` merged into them.
    pairs = 0

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge mappings, and bound their pairs.

        Each merge may repeat those of all before it.
        """
        super().flatten_mapping(node)
        self.pairs += len(node.value)
        if self.pairs > _MAX_VALUES:
            raise yaml.MarkedYAMLError(
                problem=f"the merged mappings have more than {_MAX_VALUES} keys in the whole document",
                problem_mark=node.start_mark,
            )

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        """Join the two escapes of one character in JSON (RFC 8259, section 7)."""
        node = super().compose_scalar_node(anchor)
        node.value = _SURROGATE_PAIR.sub(_joined, node.value)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 -- PyYAML's own signature
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.tag != "tag:yaml.org,2002:str":
                raise yaml.MarkedYAMLError(problem="a key must be text", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"{key.value}: the key is given twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _joined(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16", "surrogatepass").decode("utf-16")


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def positions(content: str | bytes) -> dict[Loc, tuple[int, int]]:
    """Return line and column, from 1, of each value of a parsed document.

    A key's value is at its key. An alias is at its anchor's first use.
    """
    root = yaml.compose(content, Loader=_Loader)
    found: dict[Loc, tuple[int, int]] = {}
    pending: list[tuple[Loc, yaml.Node, yaml.Mark]] = [] if root is None else [((), root, root.start_mark)]
    while pending and len(found) < _MAX_VALUES:
        loc, node, mark = pending.pop()
        found[loc] = (mark.line + 1, mark.column + 1)
        if isinstance(node, yaml.MappingNode):
            pending.extend(((*loc, key.value), value, key.start_mark) for key, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            pending.extend(((*loc, at), value, value.start_mark) for at, value in enumerate(node.value))
    return found


def _without_values(problem: str) -> str:
    # PyYAML's message would show an unquoted password that begins with * or !.
    if problem.startswith("found undefined alias"):
        return "an alias without its anchor; quote text that begins with *"
    if problem.startswith(("could not determine a constructor for the tag", "found undefined tag handle")):
        return "a tag is not plain YAML; quote text that begins with !"
    return problem


def walk(document: Any) -> Iterator[tuple[Loc, Any]]:
    """Yield every value of a document with its path."""
    pending: list[tuple[Loc, Any]] = [((), document)]
    while pending:
        loc, value = pending.pop()
        yield loc, value
        if isinstance(value, dict):
            pending.extend(((*loc, key), item) for key, item in value.items())
        elif isinstance(value, list):
            pending.extend(((*loc, index), item) for index, item in enumerate(value))


def _check(document: Any) -> None:
    for count, (loc, value) in enumerate(walk(document), 1):
        if count > _MAX_VALUES:
            raise PlainYamlError(key_text(loc[:1]), f"more than {_MAX_VALUES} values in the whole document")
        if len(loc) > _MAX_DEPTH:
            raise PlainYamlError(key_text(loc[:_SHOWN_DEPTH]), f"nested more than {_MAX_DEPTH} deep")
        if isinstance(value, float) and not math.isfinite(value):
            raise PlainYamlError(key_text(loc), "a number must be finite")
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise PlainYamlError(key_text(loc), f"a number must fit into {_MAX_BITS} bits")
        if not isinstance(value, dict | list | str | int | float | None):
            raise PlainYamlError(key_text(loc), f"a value of type {type(value).__name__} is not plain YAML")
