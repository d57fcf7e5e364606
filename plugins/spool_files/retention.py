"""Which published files have to go, and their going: whole files, then folders that are empty.

Owns the choice and the deletion. What isn't ours by its name, or is a link, is never looked into or
touched.
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

__all__ = ["ExpiryClock", "folder_bytes", "remove_expired", "remove_surplus"]

#: A clock that is set forwards by more than the first is believed after the second: while it is
#: wrong, every file would be too old. Nanoseconds.
_LEAP_NS = 60_000_000_000
_BELIEVED_AFTER_NS = 3_600_000_000_000


#: Files of sites over their share may have this part of the bound where the others need the rest.
_HEAVY_PART = 4


class ExpiryClock:
    """The time by which files expire: the system's, but a leap forwards counts once it has lasted an hour.

    Args:
        wall: Nanoseconds since the epoch, as the system has it.
        steady: Nanoseconds of a clock that nobody sets.
    """

    def __init__(
        self, *, wall: Callable[[], int] = time.time_ns, steady: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._offset = wall() - steady()
        self._leapt_at: int | None = None

    def now(self) -> datetime:
        """The time (UTC), the system's or an earlier one."""
        steady = self._steady()
        offset = self._wall() - steady
        if offset - self._offset > _LEAP_NS:
            self._leapt_at = steady if self._leapt_at is None else self._leapt_at
            believed = steady - self._leapt_at >= _BELIEVED_AFTER_NS
        else:
            self._leapt_at, believed = None, True
        if believed:
            self._offset = offset
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=(steady + self._offset) // 1000)


def remove_expired(root: Path, before_ns: int) -> list[Removed]:
    """Delete the files of every hour that ended before a time, nanoseconds since the epoch.

    Raises:
        OSError: The disk refuses.
    """
    return [
        _remove(root, path, "age")
        for hour, folder in sorted(_hours(root))
        if hour.end_ns <= before_ns
        for path in _emptying(folder)
    ]


def folder_bytes(root: Path) -> int:
    """How much the published files have.

    Raises:
        OSError: The disk refuses.
    """
    return sum(_size(path) for _, folder in _hours(root) for path in _files(folder))


def remove_surplus(root: Path, max_bytes: int) -> list[Removed]:
    """Delete files until the rest has at most so many bytes.

    First the oldest of sites that pushed more than their share, as long as those files have more
    than a quarter of the bound; then the oldest of all. So these sites take no more than a quarter
    from others.

    Raises:
        OSError: The disk refuses.
    """
    files = [path for _, folder in sorted(_hours(root)) for path in _files(folder)]
    sizes = {path: _size(path) for path in files}
    surplus = sum(sizes.values()) - max_bytes
    if surplus <= 0:
        return []
    heavy = [path for path in files if is_heavy_name(path.name)]
    over_quarter = sum(sizes[path] for path in heavy) - max_bytes // _HEAVY_PART
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
    # There may be some ten thousand files: scandir asks the disk for none of them.
    with os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if is_published_name(e.name) and not e.is_symlink())
    return [folder / name for name in names]


def _emptying(folder: Path) -> Iterator[Path]:
    """The folder's files, and then the folder's end."""
    yield from _files(folder)
    _remove_empty(folder)


def _remove(root: Path, path: Path, reason: Literal["age", "max_bytes"]) -> Removed:
    size = _size(path)
    path.unlink(missing_ok=True)
    return Removed(file=path.relative_to(root).as_posix(), bytes=size, reason=reason)


def _remove_empty(hour_folder: Path) -> None:
    # Not empty: something is in it that isn't ours, or has just come.
    with contextlib.suppress(OSError):
        hour_folder.rmdir()
        hour_folder.parent.rmdir()


def _size(path: Path) -> int:
    """0 when another sidecar has just deleted it."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
