"""The roll-up ships alone, so two of its modules are copies of the receiver's, and equal."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["plain_yaml.py", "units.py"])
def test_the_roll_up_reads_configurations_as_the_receiver_does(name: str) -> None:
    original, copy = ROOT / "receiver" / name, ROOT / "spark_streaming" / name
    assert copy.read_text() == original.read_text(), f"cp {original} {copy}"
