"""Amounts for people."""

from __future__ import annotations

import pytest

from receiver.amounts import bytes_text, count_text, duration_text, share_text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (-1, "0 B"),
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (3_100_000, "3.1 MB"),
        (99_600_000, "100 MB"),
        (999_600_000, "1.0 GB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_bytes(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_counts_have_the_right_noun() -> None:
    assert [count_text(count, "client") for count in (0, 1, 2)] == ["0 clients", "1 client", "2 clients"]
    assert share_text(1, 1, "push", "pushes") == "1 of 1 push"
    assert share_text(1, 2, "push", "pushes") == "1 of 2 pushes"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (125, "2 min 5 s"),
        (12_000, "3 h 20 min"),
        (86_400, "1 d"),
        (90_000, "1 d 1 h"),
        (30 * 86_400, "30 d"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
