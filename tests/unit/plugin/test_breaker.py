"""The circuit breaker: closed, open and half open, by failures and time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.plugin.breaker import CircuitBreaker, CircuitState, requested_delay_s


def test_consecutive_failures_open_the_breaker_and_one_success_closes_it() -> None:
    circuit = CircuitBreaker(3, 10.0)
    circuit.failed(0.0)
    circuit.failed(1.0)
    circuit.succeeded()
    circuit.failed(2.0)
    circuit.failed(3.0)
    assert (circuit.state(3.0), circuit.allows(3.0), circuit.retry_in_s(3.0)) == (
        CircuitState.CLOSED,
        True,
        0.0,
    )
    circuit.failed(4.0)
    assert (circuit.state(4.0), circuit.allows(4.0), circuit.retry_in_s(4.0)) == (
        CircuitState.OPEN,
        False,
        10.0,
    )
    assert (circuit.state(13.9), circuit.allows(13.9)) == (CircuitState.OPEN, False)
    assert (circuit.state(14.0), circuit.allows(14.0)) == (CircuitState.HALF_OPEN, True)
    circuit.succeeded()
    assert circuit.state(14.0) is CircuitState.CLOSED


def test_a_failed_trial_opens_the_breaker_again() -> None:
    circuit = CircuitBreaker(2, 10.0)
    circuit.failed(0.0)
    circuit.failed(0.0)
    assert circuit.state(10.0) is CircuitState.HALF_OPEN
    circuit.failed(10.0)
    assert (circuit.state(10.0), circuit.retry_in_s(12.0)) == (CircuitState.OPEN, 8.0)


@pytest.mark.parametrize(
    ("failures", "asked_s", "retry_in_s"),
    [
        (1, 17.0, 17.0),
        (1, 0.0, 0.0),
        (1, -3.0, 0.0),
        (1, None, 0.0),
        (1, float("nan"), 0.0),
        (2, 3.0, 10.0),
        (2, 17.0, 17.0),
    ],
)
def test_the_destination_may_set_the_retry_time(
    failures: int, asked_s: float | None, retry_in_s: float
) -> None:
    circuit = CircuitBreaker(2, 10.0)
    for _ in range(failures):
        circuit.failed(0.0, asked_s)
    assert circuit.retry_in_s(0.0) == retry_in_s


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 5))
def test_the_breaker_is_closed_below_the_failure_limit(succeed: list[bool], failures: int) -> None:
    circuit = CircuitBreaker(failures, 10.0)
    in_a_row = 0
    for now, succeeded in enumerate(succeed):
        if succeeded:
            circuit.succeeded()
            in_a_row = 0
        else:
            circuit.failed(now)
            in_a_row += 1
        assert (circuit.state(now) is CircuitState.CLOSED) == (in_a_row < failures)
        assert circuit.allows(now) == (circuit.retry_in_s(now) == 0)


@pytest.mark.parametrize(
    ("asked_s", "delay_s"),
    [
        (None, None),
        (0.0, None),
        (-1.0, None),
        (math.nan, None),
        (math.inf, None),
        (31_536_000.0, None),
        (86_400.0, 3600.0),
        (3600.5, 3600.0),
        (17.0, 17.0),
    ],
)
def test_an_absurd_delay_is_none_and_a_long_one_is_bounded(
    asked_s: float | None, delay_s: float | None
) -> None:
    assert requested_delay_s(asked_s) == delay_s
    circuit = CircuitBreaker(5, 10.0)
    circuit.failed(0.0, asked_s)
    assert circuit.retry_in_s(0.0) == (delay_s or 0.0)
