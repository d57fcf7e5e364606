"""docs/protocol.md lists exactly the differences of the table."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conformance.differences import DIFFERENCES

_NOTES = Path(__file__).parents[2] / "docs" / "protocol.md"


def _section(title: str) -> str:
    return _NOTES.read_text().split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_the_notes_and_the_table_agree() -> None:
    documented = re.findall(
        r"^### (.+)\n\n- Kafka 4\.4: (.+)\n- The receiver: (.+)\n- Why: (.+)$",
        re.sub(r"\n +", " ", _section("Differences from Kafka")),
        re.MULTILINE,
    )
    assert documented == [
        (difference.name, difference.kafka, difference.receiver, difference.reason)
        for difference in DIFFERENCES
    ]


def test_every_difference_has_its_own_heading() -> None:
    headings = re.findall(r"^### (.+)$", _section("Differences from Kafka"), re.MULTILINE)
    assert headings == [difference.name for difference in DIFFERENCES]
