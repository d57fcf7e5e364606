"""A stream for the log, to which writing neither waits nor fails.

A write to standard error may wait for ever, if nobody reads its pipe, and it may fail, if the
reader is gone or the disk is full. A relay that waited or failed there would stop its clients'
traffic, and a batch of the roll-up would fail. So lines go into a bounded buffer, and a thread
writes them. A line that has no room is dropped and counted, and the log says so when it can be
written again.

:func:`install` puts it in the place of ``sys.stderr``, so that warnings, tracebacks and other
libraries' lines take the same way.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Final

#: The most bytes that wait.
_MAX_BYTES: Final = 1_048_576

#: Lines are written together up to this size, which a pipe takes as a whole (POSIX, PIPE_BUF). So
#: those of several processes are not mixed.
_PIPE_BUF: Final = 4_096

#: Seconds between two tries after an error.
_RETRY_S: Final = 1.0

#: Seconds after which the thread looks for lines, though nobody has woken it.
_LOOK_S: Final = 60.0

#: Seconds that a process waits at its end until its lines are written.
_FINISH_S: Final = 0.5


class LogWriter(io.TextIOBase):
    """Writes lines to a descriptor, in a thread of its own.

    Safe to use from any thread, and after a fork. A finalizer may log too, and it runs in the
    middle of any line of Python. So a call in the middle of another one of its thread only leaves
    its text, and the other one takes it.
    """

    def __init__(self, descriptor: int, *, max_bytes: int = _MAX_BYTES) -> None:
        self._descriptor = descriptor
        self._max_bytes = max_bytes
        self.dropped = 0
        self._begin()
        # A child has no thread, and its parent writes what waits.
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._texts: deque[str] = deque()  # not taken yet
        self._is_busy = False  # whether the thread that has the lock changes what follows
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._partial = ""
        self._unsaid = 0
        self._thread: threading.Thread | None = None

    def write(self, text: str) -> int:
        """Add text; complete lines are written as soon as possible. Never waits or fails."""
        with self._changed:
            self._texts.append(text)
            self._take()
        return len(text)

    def _take(self) -> None:
        """Take the texts that were left, unless this thread is about to."""
        while self._texts and not self._is_busy:
            with self._busy():
                while self._texts:
                    self._split(self._texts.popleft())
                if self._waiting:
                    self._start()
                    self._changed.notify_all()

    def _split(self, text: str) -> None:
        lines = (self._partial + text).splitlines(keepends=True)
        self._partial = lines.pop() if lines and not lines[-1].endswith("\n") else ""
        if len(self._partial) > self._max_bytes:
            lines.append(self._partial + "\n")
            self._partial = ""
        for line in lines:
            self._add(line.encode(errors="backslashreplace"))

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False

    def _add(self, line: bytes) -> None:
        if self._bytes + len(line) > self._max_bytes:
            self.dropped += 1
            self._unsaid += 1
            return
        if self._unsaid:
            said = b"log lines dropped because the log could not be written: %d\n" % self._unsaid
            self._unsaid = 0
            self._waiting.append(said)
            self._bytes += len(said)
        self._waiting.append(line)
        self._bytes += len(line)

    def flush(self) -> None:
        """Do nothing, because nobody waits for the log; see :meth:`finish`."""

    def finish(self, seconds: float = _FINISH_S) -> None:
        """Wait until all lines are written, at most so many seconds."""
        deadline = time.monotonic() + seconds
        with self._changed:
            if self._partial:
                self.write("\n")
            while self._waiting and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)

    def isatty(self) -> bool:
        """Return whether the descriptor is a terminal."""
        return os.isatty(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor, for a dump of a process that can do nothing else."""
        return self._descriptor

    def writable(self) -> bool:
        """Return that it can be written to."""
        return True

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="log", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the system has no thread left, or the interpreter ends
                self._thread = None

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    # Not for ever, because a finalizer may log while the wait begins.
                    self._changed.wait(_LOOK_S)
                with self._busy():
                    count, data = self._batch()
                self._take()
            written = self._put(data)
            with self._changed:
                if written:
                    with self._busy():
                        for _ in range(count):
                            self._bytes -= len(self._waiting.popleft())
                        self._changed.notify_all()
                self._take()
            if not written:
                time.sleep(_RETRY_S)

    def _batch(self) -> tuple[int, bytes]:
        """Return the oldest lines that are written together."""
        size = count = 0
        for line in self._waiting:
            if count and size + len(line) > _PIPE_BUF:
                break
            size += len(line)
            count += 1
        return count, b"".join(self._waiting[at] for at in range(count))

    def _put(self, data: bytes) -> bool:
        """Write all of it, however long that takes; return False after an error."""
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                try:
                    select.select([], [self._descriptor], [])
                except (OSError, ValueError):
                    return False
            except OSError:
                return False
        return True


_installed: LogWriter | None = None


def install() -> LogWriter:
    """Put a writer in the place of ``sys.stderr``, once in a process and its children."""
    global _installed
    if _installed is None:
        _installed = LogWriter(2)
        sys.stderr = _installed
        atexit.register(finish)
    return _installed


def dropped_lines() -> int:
    """Return how many lines this process has dropped."""
    return 0 if _installed is None else _installed.dropped


def finish() -> None:
    """Give the log a moment to be written, before the process ends."""
    if _installed is not None:
        _installed.finish()
