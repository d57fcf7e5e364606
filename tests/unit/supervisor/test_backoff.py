"""The delays between the deaths and the restarts of a child."""

from __future__ import annotations

import pytest

from receiver.supervisor.backoff import Backoff


def test_the_delay_doubles_up_to_a_bound() -> None:
    backoff = Backoff()
    delays = [backoff.died(0.5) for _ in range(12)]
    assert delays[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert delays[8] == pytest.approx(25.6)
    assert delays[9:] == [30.0, 30.0, 30.0]


def test_a_child_that_ran_long_starts_soon_again() -> None:
    backoff = Backoff()
    for _ in range(12):
        backoff.died(9.9)
    assert backoff.died(10.0) == pytest.approx(0.1)
    assert backoff.died(1.0) == pytest.approx(0.2)
