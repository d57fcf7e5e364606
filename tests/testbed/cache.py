"""Owns the cache folder: where built parts live, and how one gets there exactly once.

A part's folder is named by the content hash of its recipe, so a folder that exists is complete and
up to date, and two checkouts with different recipes share nothing by accident. Knows nothing of
what a part is made of.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

#: Folders of older recipes that nobody used for so long are deleted after a build.
UNUSED_AFTER_S = 14 * 24 * 3600.0

_IGNORED_NAMES = frozenset({"__pycache__"})


def cache_folder() -> Path:
    """Return the project's folder in the user's cache (XDG), creating it if needed."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "kafka-client-telemetry"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def recipe_hash(sources: Iterable[Path], *values: str) -> str:
    """The first 16 hex digits of the SHA-256 over files' names and contents and over ``values``.

    A folder among ``sources`` stands for every file below it.

    Raises:
        FileNotFoundError: A source does not exist.
    """
    digest = hashlib.sha256()
    for source in sources:
        files = sorted(f for f in source.rglob("*") if f.is_file()) if source.is_dir() else [source]
        for file in files:
            if _IGNORED_NAMES.isdisjoint(file.parts):
                content = file.read_bytes()
                digest.update(f"{source.name}/{file.relative_to(source)}\0{len(content)}\0".encode())
                digest.update(content)
    for value in values:
        digest.update(f"{len(value)}\0{value}".encode())
    return digest.hexdigest()[:16]


@contextmanager
def exclusive(name: str, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock ``name`` of the cache folder; calls ``on_wait`` before waiting.

    The kernel frees the lock when its holder dies.
    """
    with (cache_folder() / f".{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build_atomically(folder: Path, build: Callable[[Path], None]) -> None:
    """Build in a temporary folder and rename it, so that ``folder`` is never partial.

    Call it under :func:`exclusive`. Folders that an interrupted build left behind are removed.
    """
    name = folder.name.rsplit("-", 1)[0]
    for left_over in folder.parent.glob(f".building-{name}-*"):
        shutil.rmtree(left_over)
    work = Path(tempfile.mkdtemp(prefix=f".building-{name}-", dir=folder.parent))
    try:
        build(work)
        work.chmod(0o755)
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def forget_unused(folder: Path) -> None:
    """Mark ``folder`` as used, and delete other folders of its part that are unused."""
    os.utime(folder)
    name = folder.name.rsplit("-", 1)[0]
    oldest = time.time() - UNUSED_AFTER_S
    for other in folder.parent.glob(f"{name}-*"):
        if other.name.rsplit("-", 1)[0] == name and other.stat().st_mtime < oldest:
            shutil.rmtree(other)
