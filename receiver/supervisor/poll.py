"""Waits for descriptors, timers and signals, and calls what handles them."""

from __future__ import annotations

import heapq
import itertools
import selectors
import signal
import socket
import time
from collections.abc import Callable, Collection
from typing import Protocol

import structlog

from receiver.supervisor import times

_log = structlog.get_logger("receiver.supervisor")


class _HasDescriptor(Protocol):
    def fileno(self) -> int: ...


class Poll:
    """The descriptors and timers; ``survives``: an event that fails ends nothing."""

    def __init__(self, survives: Callable[[], bool]) -> None:
        self._survives = survives
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def watch(self, file: int | _HasDescriptor, callback: Callable[[], None]) -> None:
        """Call a function whenever a descriptor is readable."""
        self._selector.register(file, selectors.EVENT_READ, callback)

    def forget(self, file: int | _HasDescriptor) -> None:
        """Watch a descriptor no longer."""
        self._selector.unregister(file)

    def watches(self, file: _HasDescriptor) -> bool:
        """Return whether a descriptor is watched; one that is closed is not."""
        return file.fileno() in self._selector.get_map()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call a function once after a time."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), callback))

    def wait(self) -> None:
        """Wait for the next event, and handle what has come."""
        timeout = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        for key, _ in self._selector.select(timeout):
            self._call(key.data)
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            self._call(heapq.heappop(self._timers)[2])

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            if not self._survives():
                raise
            # All connections would end with this process.
            _log.exception("the supervisor failed at an event and goes on")
            time.sleep(times.REST_S)

    def close(self) -> None:
        """Watch nothing any more."""
        self._selector.close()


class Signals:
    """Has the poll return for signals, which arrive as bytes in a socket.

    Args:
        handle: Called for each of them that has come, in their order.
    """

    def __init__(
        self, poll: Poll, numbers: Collection[signal.Signals], handle: Callable[[signal.Signals], None]
    ) -> None:
        self._numbers = numbers
        self._handle = handle
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)  # noqa: FBT003 - the socket's own signature
        signal.set_wakeup_fd(self._writer.fileno())
        for number in numbers:
            signal.signal(number, _leave_to_the_poll)
        poll.watch(self._reader, self._read)

    def _read(self) -> None:
        for number in self._reader.recv(4096):
            if number in self._numbers:
                self._handle(signal.Signals(number))

    def close(self) -> None:
        """Handle no signal any more."""
        signal.set_wakeup_fd(-1)
        self._reader.close()
        self._writer.close()


def _leave_to_the_poll(number: int, frame: object) -> None:
    """Do nothing: the signal's number is read from the wakeup descriptor."""
