"""Reasons of the operating system for people."""

from __future__ import annotations

import pytest

from spark_streaming.system_errors import reason_of


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FileNotFoundError(2, "No such file or directory", "/etc/x"), "No such file or directory"),
        (OSError("the name is too long"), "the name is too long"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_a_reason_is_never_none(error: OSError, reason: str) -> None:
    assert reason_of(error) == reason
