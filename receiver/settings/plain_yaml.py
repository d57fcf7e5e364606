"""Plain YAML: mappings with text keys, lists, texts, numbers, true, false and null, and nothing else.

Owns the reading of the text. A key given twice is an error instead of the last one winning, a date is only
text, and anchors cannot make a small text stand for a huge or endless value.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import yaml

__all__ = ["PlainYamlError", "parse"]

_MAX_VALUES = 100_000
_MAX_DEPTH = 32


@dataclass(eq=False)
class PlainYamlError(ValueError):
    """The text is not plain YAML.

    Attributes:
        where: Line and column, or empty.
        problem: What is wrong; holds keys, but no values.
    """

    where: str
    problem: str

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}" if self.where else self.problem


def parse(content: str | bytes) -> Any:
    """Read one document.

    Args:
        content: The text, or its bytes in UTF-8 or UTF-16.

    Returns:
        Dicts with text keys, lists, str, int, float (finite), bool and None; None for an empty text.

    Raises:
        PlainYamlError: The text is not YAML, or more than plain YAML.
    """
    try:
        document = yaml.load(content, Loader=_Loader)  # noqa: S506 -- _Loader is a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise PlainYamlError(where, error.problem or "not YAML") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise PlainYamlError("", "not YAML text") from None
    _check(document)
    return document


class _Loader(yaml.SafeLoader):
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


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _check(document: Any) -> None:
    count = 0
    pending: list[tuple[int, Any]] = [(0, document)]
    while pending:
        depth, value = pending.pop()
        count += 1
        if count > _MAX_VALUES or depth > _MAX_DEPTH:
            raise PlainYamlError("", "too many or too deeply nested values")
        if isinstance(value, dict):
            pending.extend((depth + 1, item) for item in value.values())
        elif isinstance(value, list):
            pending.extend((depth + 1, item) for item in value)
        elif isinstance(value, float) and not math.isfinite(value):
            raise PlainYamlError("", "a number must be finite")
        elif not isinstance(value, str | int | float | None):
            raise PlainYamlError("", f"a value of type {type(value).__name__} is no plain YAML")
