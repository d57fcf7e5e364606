from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.plugin.breaker import CircuitBreaker, CircuitState


def states(breaker: CircuitBreaker, *times: float) -> list[str]:
    return [str(breaker.state(now)) for now in times]


def test_so_many_failures_in_a_row_open_it_and_the_pause_half_opens_it() -> None:
    breaker = CircuitBreaker(3, 30.0)
    for now in (0.0, 1.0):
        breaker.failed(now)
        assert breaker.state(now) is CircuitState.CLOSED
    breaker.failed(2.0)
    assert states(breaker, 2.0, 31.9, 32.0, 1e9) == ["open", "open", "half_open", "half_open"]
    assert [breaker.allows(now) for now in (2.0, 32.0)] == [False, True]
    assert [breaker.retry_in_s(now) for now in (2.0, 31.5, 40.0)] == [30.0, 0.5, 0.0]


def test_a_success_closes_it_and_starts_the_count_anew() -> None:
    breaker = CircuitBreaker(2, 30.0)
    breaker.failed(0.0)
    breaker.succeeded()
    breaker.failed(1.0)
    assert breaker.state(1.0) is CircuitState.CLOSED
    breaker.failed(2.0)
    breaker.succeeded()
    assert breaker.state(2.0) is CircuitState.CLOSED
    assert breaker.retry_in_s(2.0) == 0.0


def test_a_failure_while_half_open_opens_it_at_once() -> None:
    breaker = CircuitBreaker(2, 10.0)
    breaker.failed(0.0)
    breaker.failed(0.0)
    assert breaker.state(10.0) is CircuitState.HALF_OPEN
    breaker.failed(10.0)
    assert states(breaker, 10.0, 19.9, 20.0) == ["open", "open", "half_open"]


def test_the_destination_may_ask_for_longer_never_for_shorter() -> None:
    breaker = CircuitBreaker(1, 10.0)
    breaker.failed(0.0, 60.0)
    assert breaker.retry_in_s(0.0) == 60.0
    breaker.failed(0.0, 1.0)
    assert breaker.retry_in_s(0.0) == 10.0


@pytest.mark.parametrize("nonsense", [math.nan, -5.0, -math.inf])
def test_a_wish_that_is_no_pause_is_ignored(nonsense: float) -> None:
    breaker = CircuitBreaker(1, 10.0)
    breaker.failed(0.0, nonsense)
    assert breaker.retry_in_s(0.0) == 10.0


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 5))
def test_it_is_closed_exactly_while_the_last_failures_are_too_few(
    outcomes: list[bool], failures: int
) -> None:
    breaker = CircuitBreaker(failures, 10.0)
    in_a_row = 0
    for now, succeeded in enumerate(outcomes):
        if succeeded:
            breaker.succeeded()
            in_a_row = 0
        else:
            breaker.failed(now)
            in_a_row += 1
        assert (breaker.state(now) is CircuitState.CLOSED) == (in_a_row < failures)
        assert breaker.allows(now) == (breaker.retry_in_s(now) == 0)
