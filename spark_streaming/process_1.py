"""Process 1 of a container: runs a program, passes signals on, reaps orphans.

    python -I -m spark_streaming.process_1 PROGRAM [ARGUMENT ...]

The kernel drops a signal that process 1 has no handler for, and hands it every orphan. A program
that takes seconds to start, such as ``spark-submit``, would lose SIGTERM until then, and be killed
when the kubelet's patience ends. It is no process 1 here, so signals end it from its first moment.

The receiver's ``serve`` is kept the same way, and started again when it dies
(``receiver/process_1.py``). It imports little: it holds little memory, and the kernel kills another
process first when memory is short.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Final, NoReturn

from spark_streaming import cgroups, dumps
from spark_streaming.system_errors import reason_of

#: Deaths in a row after which process 1 ends too.
MAX_DEATHS: Final = 10

#: A child that ran for so many seconds starts again at once, without the delays of earlier deaths.
STABLE_S: Final = 10.0

#: The delay after the second death in a row, which doubles with each, and the longest one.
FIRST_DELAY_S: Final = 0.1
MAX_DELAY_S: Final = 2.0

#: The statuses that a shell gives a program that can't be run, and one that isn't there.
_CANNOT_RUN: Final = 126
_NOT_FOUND: Final = 127
_WRONG_USAGE: Final = 2

#: Seconds that the children of a process have to end after it, because they hold its sockets. The
#: kernel kills them at once.
_ORPHANS_END_WITHIN_S: Final = 2.0

#: Seconds that a line may take.
_SAY_WITHIN_S: Final = 0.2

_ENDING: Final = frozenset({signal.SIGTERM, signal.SIGINT})
_PASSED_ON: Final = _ENDING | {signal.SIGHUP}
_WAITED_FOR: Final = _PASSED_ON | {signal.SIGCHLD}

_STANDARD_ERROR: Final = 2

#: From <linux/prctl.h>.
_PR_SET_PDEATHSIG: Final = 1


class Deaths:
    """The deaths of children.

    Attributes:
        in_a_row: Those since one last ran for :data:`STABLE_S`.
    """

    def __init__(self) -> None:
        self.total = 0
        self.in_a_row = 0

    def add(self, ran_s: float) -> float | None:
        """Count a death after ``ran_s``; return the seconds until a restart, or None."""
        self.total += 1
        self.in_a_row = 1 if ran_s >= STABLE_S else self.in_a_row + 1
        if self.in_a_row == MAX_DEATHS:
            return None
        return 0.0 if self.in_a_row == 1 else min(FIRST_DELAY_S * 2 ** (self.in_a_row - 2), MAX_DELAY_S)


_deaths = Deaths()


def restarts() -> int:
    """How often children were started again; they inherit the count."""
    return _deaths.total


def run(program: str, *arguments: str) -> NoReturn:
    """Run a program in a child process, and end with its status."""
    core_bytes = dumps.forbid()  # the environment may hold secrets
    keep("the program", lambda _status: False)
    dumps.allow(core_bytes)
    try:
        os.execvp(program, [program, *arguments])  # noqa: S606
    except OSError as error:
        _say(f"{program}: {reason_of(error)}")
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_RUN)


def keep(name: str, again: Callable[[int], bool]) -> None:
    """Return in a child process, and in a new one whenever it dies.

    Call it when no thread runs. The parent never returns: it ends with the child when another start
    does not help, or after a signal that ends both.

    Args:
        name: What the child is called in the log.
        again: Whether another start may help, by the status of the one before.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    parent = os.getpid()
    while True:
        started = time.monotonic()
        kills = cgroups.memory_kills()
        try:
            child = os.fork()
        except OSError as error:
            status, how = 1, f"it can't be started: {reason_of(error)}"
        else:
            if child == 0:
                _begin(parent)
                return
            status, ends = _wait(child)
            how = cgroups.how_it_ended(status, kills)
            if ends:
                _end(status)
            if not again(status):
                if status < 0:
                    _say(f"{name} died: {how}; process 1 ends")
                _end(status)
        _go_on(name, status, how, time.monotonic() - started)


def _begin(parent: int) -> None:
    # Nothing could stop or replace it without its parent.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before
        os._exit(1)
    # Its own group, so that a terminal's SIGINT reaches it once: by its parent.
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED_FOR)


def _wait(child: int) -> tuple[int, bool]:
    """Pass signals on until the child ends.

    Return its status, and whether a signal told it to end.
    """
    ends = False
    while True:
        number = signal.sigwait(_WAITED_FOR)
        if number in _PASSED_ON:
            ends = ends or number in _ENDING
            os.kill(child, number)
            continue
        status = _reap(child)
        if status is not None:
            return status, ends


def _reap(child: int) -> int | None:
    """Reap what has ended; return the child's status if it is among it."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                found = os.waitstatus_to_exitcode(ended[1])
    return found


def _go_on(name: str, status: int, how: str, ran_s: float) -> None:
    """Wait until the child is to be started again, or end."""
    delay_s = _deaths.add(ran_s)
    if delay_s is None:
        _say(f"{name} died {MAX_DEATHS} times in a row, the last time by: {how}; process 1 ends")
        _end(status)
    _say(f"{name} died: {how}; it is started again in {delay_s:g} s")
    _await_orphans()
    number = signal.sigtimedwait(_ENDING, delay_s)
    if number is not None:
        _end(-number.si_signo)


def _await_orphans() -> None:
    deadline = time.monotonic() + _ORPHANS_END_WITHIN_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)


def _say(what: str) -> None:
    """Write a line to standard error, unless that has to wait."""
    with contextlib.suppress(OSError):
        if not select.select([], [_STANDARD_ERROR], [], 0)[1]:
            return
        # Another process may take the room that was just seen.
        before = signal.signal(signal.SIGALRM, _give_up)
        signal.setitimer(signal.ITIMER_REAL, _SAY_WITHIN_S)
        try:
            os.write(_STANDARD_ERROR, f"kafka-telemetry: {what}\n".encode())
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def _give_up(_number: int, _frame: object) -> None:
    raise TimeoutError


def _end(status: int) -> NoReturn:
    """End with the child's status, as a shell gives it."""
    os._exit(128 - status if status < 0 else status)


def main() -> NoReturn:
    """Run the program that the arguments name."""
    if len(sys.argv) < 2:
        _say("process 1 needs a program to start: name it, and its arguments")
        os._exit(_WRONG_USAGE)
    run(*sys.argv[1:])


if __name__ == "__main__":
    main()
