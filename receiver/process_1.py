"""Process 1 of a container: starts ``serve`` again at once when it dies.

A container ends with its process 1. The kubelet starts it again, after delays that grow to five
minutes. Meanwhile the broker leads its partitions, and no client reaches it. So process 1 is no
part of the receiver, and imports little: it holds little memory, and the kernel kills another
process first when memory is short. It starts the keeper again whenever that is killed.

The keeper imports the receiver once, which takes two seconds of CPU, and starts the supervisor as
its child. It starts the supervisor again without imports, so clients wait a second. Its memory is
what the supervisor's processes share with it.

Both pass signals on and reap orphans. The keeper ends with the supervisor's status when another
start does not help: after a drain, when the configuration is wrong, and after :data:`MAX_DEATHS`
starts in a row that each ended within :data:`STABLE_S`. Process 1 ends with it, and the kubelet
sees that the container has failed.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Final, NoReturn

from spark_streaming import dumps
from spark_streaming.system_errors import reason_of

#: Deaths in a row after which process 1 ends too.
MAX_DEATHS: Final = 10

#: A supervisor that ran for so many seconds starts at once, without the delays of earlier deaths.
STABLE_S: Final = 10.0

#: The delay after the second death in a row, which doubles with each, and the longest one.
FIRST_DELAY_S: Final = 0.1
MAX_DELAY_S: Final = 2.0

#: The status of ``serve`` for a wrong configuration, as it is at each start.
_WRONG_CONFIGURATION: Final = 2

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
_PR_SET_CHILD_SUBREAPER: Final = 36


class Deaths:
    """The deaths of the keeper and of the supervisor.

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
_in_keeper = False


def restarts() -> int:
    """How often both were started again; the supervisor inherits the count."""
    return _deaths.total


def start_keeper() -> None:
    """Return in the keeper, and in a new one whenever it is killed.

    Process 1 never returns. Call it as process 1, before anything else is imported.
    """
    global _in_keeper
    core_bytes = dumps.forbid()  # the environment may hold secrets
    _keep("keeper", lambda status: status < 0)
    dumps.allow(core_bytes)  # serve decides for itself
    _in_keeper = True


def in_keeper() -> bool:
    """Whether this process is the keeper."""
    return _in_keeper


def start_supervisor() -> None:
    """Return in the supervisor, and in a new one whenever it dies.

    The keeper never returns. Call it in the keeper, when all is imported and no thread runs.
    """
    global _in_keeper
    # What is there is no garbage, and a search would copy the memory that the processes share.
    gc.freeze()
    # The kernel gives it the supervisor's orphans, which hold the sockets.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _keep("supervisor", lambda status: status not in {0, _WRONG_CONFIGURATION})
    _in_keeper = False


def _keep(name: str, again: Callable[[int], bool]) -> None:
    """Return in a child process, and in a new one whenever it dies.

    Args:
        again: Whether another start may help, by the status of the one before.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    parent = os.getpid()
    while True:
        started = time.monotonic()
        try:
            child = os.fork()
        except OSError as error:
            status, how = 1, f"it can't be started: {reason_of(error)}"
        else:
            if child == 0:
                _begin(parent)
                return
            status = _wait(child, again)
            how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        _go_on(name, status, how, time.monotonic() - started)


def _begin(parent: int) -> None:
    # Nothing could stop or replace it without its parent.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before
        os._exit(1)
    # Its own group, so that a terminal's SIGINT reaches it once: by its parent.
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED_FOR)


def _wait(child: int, again: Callable[[int], bool]) -> int:
    """Pass signals on until the child ends; return its status, or end too."""
    ends = False
    while True:
        number = signal.sigwait(_WAITED_FOR)
        if number in _PASSED_ON:
            ends = ends or number in _ENDING
            os.kill(child, number)
            continue
        status = _reap(child)
        if status is None:
            continue
        if ends or not again(status):
            _end(status)
        return status


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
        _say(f"the {name} died {MAX_DEATHS} times in a row, the last time by: {how}; process 1 ends")
        _end(status)
    _say(f"the {name} died: {how}; it is started again in {delay_s:g} s")
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
