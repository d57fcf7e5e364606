"""What is reported before the supervisor starts."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from receiver.app import LEAST_MEMORY_BYTES, warn_of_little_memory


@pytest.mark.parametrize(
    ("limit", "is_warned"), [(None, False), (LEAST_MEMORY_BYTES, False), (96 << 20, True)]
)
def test_a_memory_limit_below_an_idle_receiver_is_warned_of(limit: int | None, is_warned: bool) -> None:
    with capture_logs() as lines:
        warn_of_little_memory(limit)
    assert [line["limit_bytes"] for line in lines] == [limit] * is_warned
