"""Loads the markers, the measures and the fixtures of all tests, which start nothing until used.

What costs every process of tests time, and tests nothing, is left out here.
"""

from __future__ import annotations

import functools
import gc
import sys
from importlib import metadata
from typing import Any

import structlog

pytest_plugins = ["tests.exploration", "tests.selection", "tests.timing", "tests.testbed.fixtures"]

# Where Rich is installed, structlog draws a traceback with all its variables: seconds for one line.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)

_read_entry_points = metadata.entry_points


@functools.cache
def _entry_points(_path: tuple[str, ...], **selected: str) -> Any:
    return _read_entry_points(**selected)


def _entry_points_of_the_path(**selected: str) -> Any:
    """Read the files of all installed distributions once, not for each plugin that a test loads."""
    return _entry_points(tuple(sys.path), **selected)


metadata.entry_points = _entry_points_of_the_path  # type: ignore[assignment]


def pytest_collection_finish() -> None:
    """Keep modules and collected tests out of every later garbage collection."""
    gc.freeze()
