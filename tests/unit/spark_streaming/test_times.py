"""Times that people and programs write."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import typer

from spark_streaming.cli import _time
from spark_streaming.times import time_from_text


@pytest.mark.parametrize("text", ["2026-01-31T12:00Z", "2026-01-31T12:00", "2026-01-31T14:30+02:30"])
def test_a_time_is_returned_in_utc(text: str) -> None:
    time = time_from_text(text)
    assert time == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert time.tzinfo is UTC


@pytest.mark.parametrize("text", ["", "soon", "2026-02-30", "9999-12-31T23:59:59-23:59"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        time_from_text(text)
    with pytest.raises(typer.BadParameter, match="expected a time such as"):
        _time(text)
