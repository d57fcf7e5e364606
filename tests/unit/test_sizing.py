"""docs/sizing.md shows what the measured figures come to, and nothing that was typed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.sizing import QUOTED, Measured, Quoted, tables

_DOCS = Path(__file__).parents[2] / "docs"


def test_the_tables_are_those_of_the_kept_figures() -> None:
    _, computed = tables(Measured.kept()).split("\n\n", 1)
    assert f"```text\n{computed}\n```" in (_DOCS / "sizing.md").read_text()


@pytest.mark.parametrize("quoted", QUOTED, ids=lambda quoted: quoted.text)
def test_what_is_quoted_stands_in_the_benchmarks(quoted: Quoted) -> None:
    results = (_DOCS.parent / "benchmarks/measured-2026-11.txt").read_text()
    lines = [" ".join(line.split()) for line in results.splitlines()]
    assert quoted.line in lines
    assert quoted.text in quoted.line.split()
