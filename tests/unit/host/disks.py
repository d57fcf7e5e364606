"""Helpers for queues on real disks, and disks that fail or hang."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from receiver.host.delivery.disk_queue import DiskQueue
from receiver.host.delivery.fair_queue import FairQueue
from receiver.host.failure_log import FailureLog
from receiver.host.settings import SpoolSettings
from receiver.host.spool.disk import Disk
from tests.unit.host.support import numbers


class Clock:
    """Monotonic seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def disk_queue(
    folder: Path,
    clock: Callable[[], float],
    *,
    after_s: float | None = None,
    max_items: int = 100,
    max_bytes: int = 1_000_000,
    disk_bytes: int = 1 << 24,
    segment_bytes: int = 1 << 16,
) -> DiskQueue:
    """A queue that has looked at its disk; with no ``after_s`` it writes every push."""
    # Smaller than an operator may make it, so that little fills it.
    settings = SpoolSettings.model_construct(max_bytes=disk_bytes, segment_bytes=segment_bytes)
    disk = Disk(folder, settings, log=FailureLog("p", clock=clock), clock=clock)
    queue = DiskQueue(FairQueue(max_items=max_items, max_bytes=max_bytes), disk, after_s=after_s, clock=clock)
    queue.open()
    return queue


def read(queue: DiskQueue, max_items: int = 100) -> list[int]:
    """The numbers of what can be read at once; none when nothing can."""
    with queue._lock:
        if not queue._readable():
            return []
    return numbers(queue.read(max_items=max_items, max_bytes=10**9, linger_s=0.0))


def due(queue: DiskQueue, clock: Clock) -> bool:
    """Whether the spooler has something to write now."""
    with queue._lock:
        return queue._due_at() <= clock.now


def killed(queue: DiskQueue) -> None:
    """Release the folder's lock without a last write, like ``kill -9``."""
    spool = queue._disk.spool
    with spool._lock:
        spool._release()


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process may grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def refused_file(path: Path, error: Exception) -> Iterator[None]:
    """Nobody can open one file; all others can be opened."""
    really_open = Path.open

    def refuse(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self == path:
            raise error
        return really_open(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        yield


@contextmanager
def no_more_memory(error: Exception | None = None) -> Iterator[None]:
    """There is none to read files with, as the system says, or Python."""

    def refuse(descriptor: int, size: int, offset: int) -> bytes:
        raise error or OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pread", refuse)
        yield


class HangingDisk:
    """Every flush to disk waits until it is let go.

    Attributes:
        waits: Set once one does.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waits = threading.Event()
        self._goes_on = threading.Event()
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._hang)

    def go_on(self) -> None:
        self._goes_on.set()

    def _hang(self, descriptor: int) -> None:
        self.waits.set()
        assert self._goes_on.wait(120)
