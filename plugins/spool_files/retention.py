"""Which published files have to go, and their going: whole files, then folders that are empty.

Owns the choice and the deletion. What isn't ours by its name, or is a link, is never looked into or touched.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from plugins.spool_files.layout import Hour, is_published_name
from plugins.spool_files.manifest import Removed

__all__ = ["remove_expired", "remove_surplus"]


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


def remove_surplus(root: Path, max_bytes: int) -> list[Removed]:
    """Delete the oldest files until the rest has at most so many bytes.

    Raises:
        OSError: The disk refuses.
    """
    files = [path for _, folder in sorted(_hours(root)) for path in _files(folder)]
    sizes = [_size(path) for path in files]
    surplus = sum(sizes) - max_bytes
    removed = []
    for path, size in zip(files, sizes, strict=True):
        if surplus <= 0:
            break
        removed.append(_remove(root, path, "max_bytes"))
        _remove_empty(path.parent)
        surplus -= size
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
    return sorted(path for path in folder.iterdir() if is_published_name(path.name) and not path.is_symlink())


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
