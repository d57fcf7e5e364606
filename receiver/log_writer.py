"""A stream for the log, to which writing neither waits nor fails.

A write to standard error may wait for ever, if nobody reads its pipe, and it may fail, if the
reader is gone or the disk is full. A relay that waited or failed there would stop its clients'
traffic. So lines go into a bounded buffer, and a thread writes them. A line that has no room is
dropped and counted, and the log says so when it can be written again.

:func:`install` puts it in the place of ``sys.stderr``, so that warnings, tracebacks and other
libraries' lines take the same way.
"""

from __future__ import annotations

import atexit
import io
import os
import select
import sys
import threading
import time
from collections import deque
from typing import Final

#: The most bytes that wait.
_MAX_BYTES: Final = 1_048_576

#: Lines are written together up to this size, which a pipe takes as a whole (POSIX, PIPE_BUF). So
#: those of several processes are not mixed.
_PIPE_BUF: Final = 4_096

#: Seconds between two tries after an error.
_RETRY_S: Final = 1.0

#: Seconds that a process waits at its end until its lines are written.
_FINISH_S: Final = 0.5


class LogWriter(io.TextIOBase):
    """Writes lines to a descriptor, in a thread of its own.

    Safe to use from any thread, and after a fork.
    """

    def __init__(self, descriptor: int, *, max_bytes: int = _MAX_BYTES) -> None:
        self._descriptor = descriptor
        self._max_bytes = max_bytes
        self.dropped = 0
        self._begin()
        # A child has no thread, and its parent writes what waits.
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._partial = ""
        self._unsaid = 0
        self._thread: threading.Thread | None = None

    def write(self, text: str) -> int:
        """Add text; complete lines are written as soon as possible. Never waits or fails."""
        with self._changed:
            self._partial += text
            lines = self._partial.splitlines(keepends=True)
            self._partial = lines.pop() if lines and not lines[-1].endswith("\n") else ""
            for line in lines:
                self._add(line.encode(errors="backslashreplace"))
            if self._waiting:
                self._start()
                self._changed.notify_all()
        return len(text)

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
                self._add(self._partial.encode(errors="backslashreplace") + b"\n")
                self._partial = ""
                self._start()
                self._changed.notify_all()
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
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="log", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the system has no thread left, or the interpreter ends
                self._thread = None

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                count, data = self._batch()
            written = self._put(data)
            with self._changed:
                if written:
                    for _ in range(count):
                        self._bytes -= len(self._waiting.popleft())
                    self._changed.notify_all()
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
