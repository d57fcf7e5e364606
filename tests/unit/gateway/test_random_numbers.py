"""Random numbers have 31 bits, and none of them repeats in order."""

from __future__ import annotations

from receiver.gateway.random_numbers import random_numbers


def test_numbers_have_31_bits() -> None:
    draw = random_numbers()
    numbers = [draw() for _ in range(5000)]
    assert all(0 <= number < 1 << 31 for number in numbers)
    assert max(numbers) >= 1 << 30
    assert len(set(numbers)) > 4990


def test_two_sources_differ() -> None:
    one, other = random_numbers(), random_numbers()
    assert [one() for _ in range(8)] != [other() for _ in range(8)]
