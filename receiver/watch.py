"""Detects changes of files by their status.

It reads no file, and checks only when it is asked, because a timer would cost every client's
request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from spark_streaming.files import Stamp, stamp

_EVERY_S: Final = 1.0


class Watch:
    """Detects that files were changed, replaced or deleted."""

    def __init__(self, paths: Iterable[Path], clock: Callable[[], float]) -> None:
        self._paths = tuple(paths)
        self._clock = clock
        self._next = clock() + _EVERY_S
        # Taken before the caller reads the files, so that a change in between is detected.
        self._stamps = self._stat()

    def changed(self) -> bool:
        """Return whether a file has changed; checks at most once a second."""
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + _EVERY_S
        before, self._stamps = self._stamps, self._stat()
        return before != self._stamps

    def remind(self) -> None:
        """Report a change again at the next check, because the files could not be used."""
        self._stamps = []

    def _stat(self) -> list[Stamp]:
        return [stamp(path) for path in self._paths]
