"""Modules that the roll-up shares with the receiver, and ships as its own, stay equal."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("original", "copy"),
    [("receiver/negotiation.py", "spark_streaming/metrics/negotiation.py")],
)
def test_a_copy_equals_its_original(original: str, copy: str) -> None:
    assert (ROOT / copy).read_text() == (ROOT / original).read_text(), f"cp {original} {copy}"
