"""``kafka-telemetry`` with a clock on each callback and each turn of its relays' event loops.

Owns the measurement. ``python -m tests.attacks.measured FOLDER serve ...`` runs ``kafka-telemetry
serve ...``. Each relay keeps its longest times in a file in FOLDER, and forgets them at SIGUSR2.
They are CPU time of the thread, so other work on the machine does not count.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from time import thread_time
from typing import Any, Final

from receiver.cli import main as kafka_telemetry
from receiver.event_loop import DirectEventLoop
from receiver.gateway import process
from receiver.turns import DirectCallback, Share

#: One poll, and the callbacks until the next.
_TURN: Final = "turn"

#: The first step of a relay, which is no work for a client.
_START: Final = "_Relay.run"

#: A longer time is written once it is so many times the one before.
_MORE: Final = 1.02

#: Seconds of the shortest time that is written.
_LEAST_S: Final = 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class Longest:
    """The longest CPU times in the relays of a receiver, in milliseconds."""

    callback_ms: float
    #: The name of that callback.
    callback: str
    turn_ms: float


def forget_longest(pids: Iterable[int]) -> None:
    """Let the processes of a receiver forget their longest times."""
    for pid in pids:
        os.kill(pid, signal.SIGUSR2)


def longest_in(folder: Path) -> Longest:
    """Return the longest times that the relays left in a folder."""
    seconds = {"": 0.0, _TURN: 0.0}
    for file in folder.glob("times-*.json"):
        for name, longest_s in json.loads(file.read_text()).items():
            seconds[name] = max(longest_s, seconds.get(name, 0.0))
    turn_s = seconds.pop(_TURN)
    callback = max(seconds, key=seconds.__getitem__)
    return Longest(callback_ms=seconds[callback] * 1e3, callback=callback, turn_ms=turn_s * 1e3)


class _Times:
    """The longest times of one relay, by name.

    Attributes:
        turn_started: The CPU time at which the current turn began.
    """

    def __init__(self, folder: Path) -> None:
        self.turn_started = thread_time()
        self._file = folder / f"times-{os.getpid()}.json"
        self._seconds: dict[str, float] = {}

    def forget(self) -> None:
        """Begin anew."""
        self._seconds.clear()

    def add(self, name: str, seconds: float) -> None:
        """Note the time of a callback or of a turn."""
        if name == _START:
            self.turn_started = thread_time()
            return
        if seconds > _MORE * self._seconds.get(name, _LEAST_S):
            self._seconds[name] = seconds
            new = self._file.with_suffix(".new")
            new.write_text(json.dumps(self._seconds))
            new.rename(self._file)


class _Epoll:
    """An epoll object that ends a turn at each poll."""

    def __init__(self, epoll: Any, times: _Times) -> None:
        self._epoll = epoll
        self._times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)

    def poll(self, *arguments: Any) -> Any:
        self._times.add(_TURN, thread_time() - self._times.turn_started)
        ready = self._epoll.poll(*arguments)
        self._times.turn_started = thread_time()
        return ready


class _MeasuredEventLoop(DirectEventLoop):
    """The relays' event loop, with a clock on each direct callback."""

    def __init__(self, times: _Times) -> None:
        super().__init__()
        self._times = times
        turns = self._direct.turns
        turns._epoll = _Epoll(turns._epoll, times)  # type: ignore[assignment]
        turns.serve = turns.serve_in_python  # type: ignore[method-assign]

    def set_direct_reader(self, fd: int, callback: DirectCallback | None, share: Share | None = None) -> None:
        super().set_direct_reader(fd, self._timed(callback), share)

    def set_direct_writer(self, fd: int, callback: DirectCallback | None, share: Share | None = None) -> None:
        super().set_direct_writer(fd, self._timed(callback), share)

    def _timed(self, callback: DirectCallback | None) -> DirectCallback | None:
        if callback is None:
            return None

        def timed() -> bool:
            started = thread_time()
            again = callback()
            self._times.add(_name(callback), thread_time() - started)
            return again

        return timed


def _name(callback: Callable[..., object]) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return str(getattr(owner.get_coro(), "__qualname__", owner))
    return str(getattr(callback, "__qualname__", callback))


def _time_handles(times: _Times) -> None:
    """Put a clock on the callbacks of asyncio itself: timers, tasks and accepted clients."""
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        started, callback = thread_time(), handle._callback  # type: ignore[attr-defined]
        run(handle)
        times.add(_name(callback), thread_time() - started)

    asyncio.Handle._run = timed  # type: ignore[assignment,method-assign]


def _main() -> None:
    folder = Path(sys.argv.pop(1))
    signal.signal(signal.SIGUSR2, lambda *_: None)  # for the processes that are no relay

    def run_event_loop(main: Coroutine[Any, Any, Any]) -> Any:
        times = _Times(folder)
        signal.signal(signal.SIGUSR2, lambda *_: times.forget())
        _time_handles(times)
        with asyncio.Runner(loop_factory=lambda: _MeasuredEventLoop(times)) as runner:
            return runner.run(main)

    process.run_event_loop = run_event_loop  # type: ignore[attr-defined]
    kafka_telemetry()


if __name__ == "__main__":
    _main()
