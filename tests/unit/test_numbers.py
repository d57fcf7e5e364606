"""Whole numbers from outside, and the rule that nothing reads them in another way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.numbers import whole_number
from tests.unit.hostile_values import NUMBERS, TEXTS

TREE = Path(__file__).parents[2]

#: Methods that accept characters which ``int()`` refuses or reads as another number.
BANNED = {"isdigit", "isdecimal", "isnumeric"}

#: Calls that raise OverflowError or ValueError for texts, and the modules that translate it.
READS_TIMES = {
    "receiver/telemetry/subscription_document.py",
    "plugins/spool_files/layout.py",
    "receiver/api/routes/usage.py",
    "spark_streaming/times.py",
}


def modules() -> Iterator[tuple[str, ast.AST]]:
    for folder in ("receiver", "plugins", "spark_streaming"):
        for path in sorted((TREE / folder).rglob("*.py")):
            yield str(path.relative_to(TREE)), ast.parse(path.read_text())


@pytest.mark.parametrize(
    ("text", "at_most", "number"),
    [("0", 9, 0), ("65535", 65_535, 65_535), ("65536", 65_535, None), ("007", 999, 7), ("0007", 999, None)],
)
def test_a_number_up_to_its_bound(text: str, at_most: int, number: int | None) -> None:
    assert whole_number(text, at_most) == number


@pytest.mark.parametrize("text", [*NUMBERS, *TEXTS], ids=lambda text: repr(text[:20]))
def test_anything_else_is_none(text: str) -> None:
    assert whole_number(text, 2**63) is None


def test_nothing_reads_numbers_or_times_from_outside_in_another_way() -> None:
    found = [
        f"{module}:{node.lineno}: {node.attr}"
        for module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and (node.attr in BANNED or (node.attr == "fromisoformat" and module not in READS_TIMES))
    ]
    assert found == []
