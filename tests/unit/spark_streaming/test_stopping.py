"""Signals end the start of a job at once, and a job that runs after its batch."""

from __future__ import annotations

import signal

import pytest

from spark_streaming import cli


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_before_and_after_the_start(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended, cli._stopping():
        signal.raise_signal(number)
    assert ended.value.code == 128 + number
    with cli._stopping() as stopping:
        stop = stopping.after_the_batch()
        assert not stop.is_set()
        signal.raise_signal(number)
        assert stop.is_set()
    assert signal.getsignal(number) is before
