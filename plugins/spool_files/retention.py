"""Deletes published files by age and by the folder's bound, and empty folders.

Links, and files with names that the plugin does not write, are never touched.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from plugins.spool_files.layout import Hour, is_heavy_name, is_published_name
from plugins.spool_files.manifest import Removed

#: A forward leap of the clock by more than the first counts only after the second, because a wrong
#: clock would expire all files. In nanoseconds.
_LEAP_NS = 60_000_000_000
_LEAP_ACCEPTED_AFTER_NS = 3_600_000_000_000

#: Files of blocks over their share may hold the bound divided by this, if the others need the rest.
_HEAVY_SHARE = 4


class ExpiryClock:
    """The system clock, except that a forward leap counts only after an hour.

    ``wall`` returns nanoseconds since the epoch, ``steady`` monotonic nanoseconds.
    """

    def __init__(
        self, *, wall: Callable[[], int] = time.time_ns, steady: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._offset = wall() - steady()
        self._leap_seen_ns: int | None = None

    def now(self) -> datetime:
        """Return the time (UTC): the system's or an earlier one."""
        steady = self._steady()
        offset = self._wall() - steady
        if offset - self._offset > _LEAP_NS:
            self._leap_seen_ns = steady if self._leap_seen_ns is None else self._leap_seen_ns
            accepted = steady - self._leap_seen_ns >= _LEAP_ACCEPTED_AFTER_NS
        else:
            self._leap_seen_ns, accepted = None, True
        if accepted:
            self._offset = offset
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=(steady + self._offset) // 1000)


def remove_expired(root: Path, before_ns: int) -> list[Removed]:
    """Delete the files of hours that ended before a time."""
    removed: list[Removed] = []
    for hour, folder in sorted(_hours(root)):
        if hour.end_ns <= before_ns:
            removed += [_remove(root, path, "age") for path in _files(folder)]
            _remove_empty(folder)
    return removed


def folder_bytes(root: Path) -> int:
    """Return the bytes of all published files."""
    return sum(_size(path) for _, folder in _hours(root) for path in _files(folder))


def remove_surplus(root: Path, max_bytes: int) -> list[Removed]:
    """Delete files until the rest has at most ``max_bytes``.

    The oldest files of blocks over their share are deleted first, while these files have more than
    a quarter of the bound. Then the oldest of all files. So these blocks take at most a quarter
    from others.
    """
    files = [path for _, folder in sorted(_hours(root)) for path in _files(folder)]
    sizes = {path: _size(path) for path in files}
    surplus = sum(sizes.values()) - max_bytes
    if surplus <= 0:
        return []
    heavy = [path for path in files if is_heavy_name(path.name)]
    over_quarter = sum(sizes[path] for path in heavy) - max_bytes // _HEAVY_SHARE
    removed: list[Removed] = []
    for candidates, limit in ((heavy, over_quarter), (files, surplus)):
        for path in candidates:
            if surplus <= 0 or limit <= 0:
                break
            if path not in sizes:
                continue
            size = sizes.pop(path)
            removed.append(_remove(root, path, "max_bytes"))
            _remove_empty(path.parent)
            surplus -= size
            limit -= size
    return removed


def _hours(root: Path) -> Iterator[tuple[Hour, Path]]:
    for day in _folders(root):
        for folder in _folders(day):
            hour = Hour.parse(day.name, folder.name)
            if hour is not None:
                yield hour, folder


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]


def _files(folder: Path) -> list[Path]:
    # scandir, because it needs no stat call for each of some ten thousand files.
    with os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if is_published_name(e.name) and not e.is_symlink())
    return [folder / name for name in names]


def _remove(root: Path, path: Path, reason: Literal["age", "max_bytes"]) -> Removed:
    size = _size(path)
    path.unlink(missing_ok=True)
    return Removed(file=path.relative_to(root).as_posix(), bytes=size, reason=reason)


def _remove_empty(hour_folder: Path) -> None:
    # Fails if the folder has other or new files.
    with contextlib.suppress(OSError):
        hour_folder.rmdir()
        hour_folder.parent.rmdir()


def _size(path: Path) -> int:
    """Return a file's size; 0 if another sidecar has just deleted it."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
