"""Acts as a finalizer does: in the middle of any line, in the thread that runs it."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any


def at_every_line(file: str, act: Callable[[], object]) -> Callable[..., Any]:
    """Return a trace function that acts in front of each line of a file.

    The interpreter collects garbage at any line, and runs finalizers in the thread that it stops.

    Args:
        file: The end of the file's path.
    """

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        if not frame.f_code.co_filename.endswith(file):
            return None
        if event == "line":
            act()
        return trace

    return trace
