"""Generates README.md's table of values, between its two marks."""

from __future__ import annotations

import json
from typing import Any, Final

from deploy.chart.values import Section

_BEGIN: Final = "<!-- values: made by `python -m deploy.chart` from values.yaml -->\n"
_END: Final = "<!-- end of values -->\n"


def with_table(page: str, values: Section) -> str:
    """Return the page with the table in place of the one that it has."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"README.md: lacks the line {(_BEGIN if not begin else _END).strip()}")
    rows = "".join(
        f"| `{'.'.join(value.path)}` | {_cell(_code(value.default))} | {_cell(value.description)} |\n"
        for value in values.values()
    )
    return f"{before}{begin}\n| value | default | what it does |\n|---|---|---|\n{rows}\n{end}{after}"


def _code(default: Any) -> str:
    return f"`{json.dumps(default, ensure_ascii=False)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
