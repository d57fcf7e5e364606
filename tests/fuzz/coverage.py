"""Measures coverage: pairs of project lines that ran one after the other.

Tracing makes an input several times slower, so only some inputs are traced; one that reached
something new is kept, and others are made from it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_ROOTS = tuple(str(Path(__file__).parents[2] / folder) for folder in ("receiver", "plugins"))


class Coverage:
    """The coverage of all traced inputs so far.

    Attributes:
        reached: Pairs of lines, with the code that the second is in.
    """

    def __init__(self) -> None:
        self.reached: set[tuple[int, int, int]] = set()
        self._ours: dict[CodeType, bool] = {}
        self._last = 0

    def grows_by(self, run: Callable[[bytes], None], data: bytes) -> bool:
        """Trace ``run`` on an input; return whether it reached new code. Errors propagate."""
        before = len(self.reached)
        self._last = 0
        sys.settrace(self._on_call)
        try:
            run(data)
        finally:
            sys.settrace(None)
        return len(self.reached) > before

    def _on_call(self, frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        ours = self._ours.get(code)
        if ours is None:
            ours = self._ours[code] = code.co_filename.startswith(_ROOTS)
        return self._on_line if ours else None

    def _on_line(self, frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any]:
        line = frame.f_lineno
        self.reached.add((self._last, line, id(frame.f_code)))
        self._last = line
        return self._on_line
