"""How long the job waits after a batch."""

from __future__ import annotations

import pytest

from spark_streaming.load import load
from spark_streaming.pace import FEW_PUSHES, rest_s


@pytest.mark.parametrize(
    ("pushes", "spent_s", "behind_s", "expected"),
    [
        (1, 2.0, 5.0, 28.0),
        (FEW_PUSHES - 1, 0.0, 120.0, 30.0),
        (FEW_PUSHES, 2.0, 5.0, 0.0),
        # It is behind, so there is more to read.
        (1, 2.0, 120.1, 0.0),
        # The receiver's clock is ahead.
        (1, 2.0, -60.0, 28.0),
        (1, 31.0, 5.0, 0.0),
    ],
)
def test_a_job_rests_after_few_pushes(pushes: int, spent_s: float, behind_s: float, expected: float) -> None:
    assert rest_s(pushes, spent_s=spent_s, behind_s=behind_s, longest_s=30.0, grace_s=120.0) == expected


def test_the_longest_trigger_follows_the_shortest_unless_it_is_set() -> None:
    assert load(None, {}).longest_trigger_s == 30
    assert load(None, {"trigger_seconds": 2}).longest_trigger_s == 6
    assert load(None, {"trigger_seconds": 2, "max_trigger_seconds": "1m"}).longest_trigger_s == 60
    assert load(None, {"trigger_seconds": 2, "max_trigger_seconds": 2}).longest_trigger_s == 2
