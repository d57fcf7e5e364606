"""Spread buckets, compared with exact arithmetic."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_streaming.contributions.spread import spread_buckets
from tests.unit.spark_streaming.contributions.support import bucket


def of(value: float) -> int:
    return int(spread_buckets(np.array([value]))[0])


def test_a_doubling_has_eight_buckets() -> None:
    assert [of(2.0**i) for i in range(-3, 40)] == [8 * i for i in range(-3, 40)]
    assert of(math.nextafter(8.0, 0)) == 23
    assert of(0.0) == of(-0.0) == -32768
    assert (of(-1.0), of(-8.0)) == (-20000, -20024)
    assert (of(5e-324), of(1.7e308), of(-1.7e308), of(-5e-324)) == (-8000, 8000, -28000, -12000)


@given(st.integers(-(10**12), 10**12), st.integers(1, 10**6))
def test_buckets_are_those_of_exact_arithmetic(numerator: int, denominator: int) -> None:
    assert of(numerator / denominator) == bucket(numerator / denominator)


@given(st.floats(1e-200, 1e200))
def test_the_middle_of_a_bucket_is_in_it(value: float) -> None:
    middle = 2 ** ((of(value) + 0.5) / 8)
    assert of(middle) == of(value)
    assert math.isclose(middle, value, rel_tol=0.05)
