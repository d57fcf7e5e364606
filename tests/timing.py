"""Writes how long each test took, and for what it waited, for the report of ``python -m tests``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

#: The environment variable with the file to write; without it nothing is written.
VARIABLE: Final = "TESTS_TIMING"
_FILE: Final = os.environ.get(VARIABLE)
#: Time that this thread was ready and no processor was free: the second number, in nanoseconds.
_SCHEDULE: Final = Path("/proc/thread-self/schedstat")

_waited_before = 0.0
_used_before = 0.0
_measures: list[dict[str, Any]] = []


def _waited_s() -> float:
    try:
        return int(_SCHEDULE.read_text().split()[1]) / 1e9
    except OSError:  # a kernel without these figures
        return 0.0


def _used_s() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def pytest_collection_finish() -> None:
    """Leave out what imports and collection waited for and used."""
    global _waited_before, _used_before
    _waited_before, _used_before = _waited_s(), _used_s()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Any:
    """Add to the report how long the phase waited for a processor, and how long it used one."""
    global _waited_before, _used_before  # pytest runs one phase at a time in a process
    report = yield
    waited, used = _waited_s(), _used_s()
    report.processor_s, report.cpu_s = waited - _waited_before, used - _used_before
    _waited_before, _used_before = waited, used
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Take the figures of one phase: in the process that runs the tests, or of its workers."""
    _measures.append(
        {
            "test": report.nodeid,
            "phase": report.when,
            "wall_s": report.duration,
            "processor_s": getattr(report, "processor_s", 0.0),
            "cpu_s": getattr(report, "cpu_s", 0.0),
        }
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the figures of all tests."""
    if _FILE and not hasattr(session.config, "workerinput"):
        Path(_FILE).write_text(json.dumps(_measures))
