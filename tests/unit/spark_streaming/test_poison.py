"""Data errors are told from others, and the pushes that cause them are found."""

from __future__ import annotations

import math
import struct

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_streaming.contributions import CodecError
from spark_streaming.poison import first_failing, is_data_error
from spark_streaming.postgres import StoreDataError, StoreError, StoreUnavailableError


@settings(deadline=None)
@given(st.sets(st.integers(0, 199), min_size=1), st.integers(200, 5000))
def test_all_poison_is_found_in_few_trials(poison: set[int], size: int) -> None:
    left, known_good, found = set(poison), 0, []
    while left:
        trials: list[int] = []

        def fails(prefix: int, trials: list[int] = trials) -> bool:
            trials.append(prefix)
            return any(at < prefix for at in left)

        known_good = first_failing(size, fails, known_good=known_good)
        assert len(trials) <= math.log2(size) + 1
        found.append(known_good)
        left.discard(known_good)
    assert found == sorted(poison)


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1), st.integers(0, 200))
def test_pushes_that_fail_only_together_are_found_at_the_one_too_many(amounts: list[int], limit: int) -> None:
    amounts.append(limit + 1)
    at = first_failing(len(amounts), lambda size: sum(amounts[:size]) > limit)
    assert sum(amounts[:at]) <= limit < sum(amounts[: at + 1])


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (StoreDataError("bigint out of range"), True),
        (OverflowError(), True),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), True),
        (struct.error("int too large"), True),
        (StoreError("another version"), False),
        (StoreUnavailableError("away"), False),
        (CodecError("another version"), False),
        (psycopg.OperationalError("away"), False),
        (OSError("disk full"), False),
    ],
)
def test_only_data_errors_start_a_search(error: Exception, expected: bool) -> None:
    assert is_data_error(error) == expected
