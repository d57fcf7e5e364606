"""Files that are read again when they change.

Owns the noticing. It reads nothing, and looks only when asked: a timer would cost every client's request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

__all__ = ["Watch"]

_EVERY_S: Final = 1.0

_Stamp = tuple[int, ...] | None


class Watch:
    """Notices when files were changed, replaced, or are gone.

    Args:
        paths: The files.
        clock: Monotonic seconds.
    """

    def __init__(self, paths: Iterable[Path], clock: Callable[[], float]) -> None:
        self._paths = tuple(paths)
        self._clock = clock
        self._next = clock() + _EVERY_S
        # Before anybody has read them, so that a change meanwhile is noticed as one.
        self._stamps = self._look()

    def changed(self) -> bool:
        """Whether one of them has changed since the last time; looks once in a second at most."""
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + _EVERY_S
        before, self._stamps = self._stamps, self._look()
        return before != self._stamps

    def remind(self) -> None:
        """Say so again the next time, as what they hold can't be used yet."""
        self._stamps = []

    def _look(self) -> list[_Stamp]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: Path) -> _Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
