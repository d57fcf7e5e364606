from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.host.delivery.retry import RetryPolicy
from receiver.host.settings import RetrySettings
from receiver.plugin.breaker import MAX_RETRY_AFTER_S

POLICY = RetryPolicy(initial_s=1, max_s=30, max_elapsed_s=300)
unit = st.floats(0, 1, exclude_max=True)


def delay(
    failures: int = 1,
    *,
    elapsed_s: float = 0,
    retry_after_s: float | None = None,
    draw: float = 0.5,
    policy: RetryPolicy = POLICY,
) -> float | None:
    return policy.delay_s(failures=failures, elapsed_s=elapsed_s, retry_after_s=retry_after_s, random=draw)


def test_it_doubles_up_to_the_longest() -> None:
    assert [delay(n) for n in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]


def test_jitter_is_half_of_it_both_ways() -> None:
    assert delay(3, draw=0) == 2
    assert delay(3, draw=1 - 2**-53) == pytest.approx(6)


@given(st.integers(1, 10**6), unit)
def test_any_number_of_failures_has_a_bounded_delay(failures: int, draw: float) -> None:
    wait = delay(failures, draw=draw)
    assert wait is not None
    assert 0.5 <= wait <= 45


def test_the_destination_may_ask_for_longer_never_for_shorter() -> None:
    assert delay(1, retry_after_s=100) == 100
    assert delay(5, retry_after_s=0.001) == 16


@pytest.mark.parametrize("nonsense", [0.0, -1.0, math.nan, -math.inf])
def test_a_wish_that_is_no_delay_is_ignored(nonsense: float) -> None:
    assert delay(1, retry_after_s=nonsense) == 1


def test_no_destination_stops_us_for_ever() -> None:
    for_ever = RetryPolicy.from_settings(RetrySettings(max_elapsed_s=0), default_elapsed_s=300.0)
    assert for_ever.max_elapsed_s == math.inf
    assert delay(1, retry_after_s=math.inf, policy=for_ever) == MAX_RETRY_AFTER_S
    assert delay(9, elapsed_s=1e9, policy=for_ever) == 30


def test_the_last_attempt_falls_on_the_end_of_the_allowed_time() -> None:
    assert delay(9, elapsed_s=290) == 10
    assert delay(1, elapsed_s=10, retry_after_s=86_400) == 290
    assert delay(9, elapsed_s=300) is None


def test_the_settings_are_in_milliseconds_and_the_longest_is_no_shorter_than_the_first() -> None:
    policy = RetryPolicy.from_settings(RetrySettings(initial_ms=2000, max_ms=100), default_elapsed_s=300.0)
    assert (policy.initial_s, policy.max_s, policy.max_elapsed_s) == (2, 2, 300)


@given(st.integers(0, 2**32), st.floats(0.001, 100), st.floats(0.001, 100))
def test_the_attempts_of_one_export_end(seed: int, initial_s: float, max_elapsed_s: float) -> None:
    rng = random.Random(seed)
    policy = RetryPolicy(
        initial_s=initial_s, max_s=max(initial_s, max_elapsed_s), max_elapsed_s=max_elapsed_s
    )
    elapsed = 0.0
    for failures in range(1, 500):
        wait = delay(failures, elapsed_s=elapsed, draw=rng.random(), policy=policy)
        if wait is None:
            break
        elapsed += wait
    assert elapsed == pytest.approx(max_elapsed_s)
