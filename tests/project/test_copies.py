"""The roll-up ships alone, so its module is a copy of the receiver's, and equal to it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_roll_up_parses_yaml_as_the_receiver_does() -> None:
    original, copy = ROOT / "receiver" / "plain_yaml.py", ROOT / "spark_streaming" / "plain_yaml.py"
    assert copy.read_text() == original.read_text(), f"cp {original} {copy}"
