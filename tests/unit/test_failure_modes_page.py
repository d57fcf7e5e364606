"""docs/failure-modes.md quotes messages that the code has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
#: The cells of each row: name, behaviour, loss, signs, remedy.
ROWS: Final = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "docs" / "failure-modes.md").read_text().splitlines()
    if line.startswith("| **")
]
#: PostgreSQL's message.
NOT_OURS: Final = {"No space left on device"}
SOURCES: Final = "\n".join(
    file.read_text()
    for folder in ("receiver", "plugins", "spark_streaming")
    for file in sorted((ROOT / folder).rglob("*.py"))
)


def quoted_messages() -> list[str]:
    quoted = [text for row in ROWS for text in re.findall(r"`([^`]+)`", row[3])]
    return [text.removesuffix(" ...") for text in quoted if re.fullmatch(r"[A-Za-z' ,?.]+ [a-z' ,?.]+", text)]


def test_every_row_has_all_cells() -> None:
    assert len(ROWS) > 20
    assert {len(row) for row in ROWS} == {5}


def test_messages_are_found_on_the_page() -> None:
    assert {"batch failed, retrying", "a standby?", "damaged files skipped"} <= set(quoted_messages())


@pytest.mark.parametrize("message", sorted(set(quoted_messages()) - NOT_OURS))
def test_a_quoted_message_is_in_the_code(message: str) -> None:
    assert message in SOURCES
