"""A process without a processor is starved; one that is stopped, asleep or busy is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from receiver.supervisor.starvation import ProcessorTime, is_starved, processor_time
from tests.testbed.process import wait_until

_BUSY = "while True: pass"
_ASLEEP = "import time; time.sleep(3600)"


@contextmanager
def running(code: str, core: int, *, idle: bool = False) -> Iterator[int]:
    """Run Python code on one core; ``idle``: only while the core has nothing else to do."""

    def place() -> None:
        os.sched_setaffinity(0, {core})
        if idle:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    with subprocess.Popen([sys.executable, "-I", "-S", "-c", code], preexec_fn=place) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def read(pid: int) -> ProcessorTime:
    return processor_time(pid, time.monotonic())


@pytest.mark.full
def test_a_process_without_a_processor_is_starved() -> None:
    core = min(os.sched_getaffinity(0))
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(running(_BUSY, core))
        hungry = stack.enter_context(running(_BUSY, core, idle=True))
        before = read(hungry)
        wait_until(lambda: is_starved(before, read(hungry)), timeout_s=60, what="hunger")


@pytest.mark.parametrize("code", [_BUSY, _ASLEEP])
def test_a_stopped_process_is_not_starved(code: str) -> None:
    with running(code, min(os.sched_getaffinity(0))) as pid:
        os.kill(pid, signal.SIGSTOP)
        wait_until(
            lambda: os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT) is not None,
            timeout_s=60,
            what="its stop",
        )
        before = read(pid)
        assert not is_starved(before, read(pid))


def spent(at_s: float, ran_s: float, waited_s: float) -> ProcessorTime:
    return ProcessorTime(at_s=at_s, ran_s=ran_s, waited_s=waited_s)


@pytest.mark.parametrize(
    ("after", "starved"),
    [
        (spent(15, 20.05, 34.9), True),
        (spent(15, 20.05, 32), False),  # it slept
        (spent(15, 21.5, 33.4), False),  # it ran for long enough to answer
        (spent(15, 20, 30), False),  # the kernel tells nothing
    ],
)
def test_what_counts_as_starved(after: ProcessorTime, *, starved: bool) -> None:
    assert is_starved(spent(10, 20, 30), after) is starved


def test_a_process_that_has_ended_had_nothing() -> None:
    ended = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    ended.wait(60)
    assert read(ended.pid).ran_s == 0
