"""Starts and watches one child process of the supervisor.

A child is forked, so that it shares the memory of everything that is imported. It keeps no
descriptor but those that it is given. The kernel kills it when the supervisor dies, so that a new
start finds no process of the old one.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Collection
from typing import Final

import structlog

from receiver import log_once
from receiver.log import name_process
from receiver.supervisor.channel import ControlChannel
from receiver.supervisor.starvation import ProcessorTime, is_starved, processor_time
from receiver.supervisor.states import ChildState
from spark_streaming import cgroups, log_writer

#: From <linux/prctl.h>.
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_log = structlog.get_logger("receiver.supervisor")


class Child:
    """A running child process.

    Attributes:
        name: For the log: ``core`` or ``relay-1``.
        pidfd: Its descriptor, readable once it has ended.
        channel: The supervisor's end of the control channel.
        started: When it was started, in monotonic seconds.
        state: What it has said or was told.
        unanswered: How often it was asked whether it is alive since its last answer, and had a
            processor to answer.
        starved: How often it had none.
        processor_time: What it had of the processors when it was last asked.
        problem: Why it could not start.
        status: The exit status of the receiver if it could not start.
        slot: The number of a relay; 0 of the core.
    """

    def __init__(self, name: str, pid: int, channel: ControlChannel) -> None:
        self.name = name
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.channel = channel
        self.started = time.monotonic()
        self.state = ChildState.STARTING
        self.unanswered = 0
        self.starved = 0
        self.processor_time: ProcessorTime | None = None
        self.problem: str | None = None
        self.status = 0
        self.slot = 0
        self._memory_kills = cgroups.memory_kills()

    @property
    def runs(self) -> bool:
        """Whether it has not been reaped."""
        return self.pidfd >= 0

    def reach(self, state: ChildState) -> None:
        """Go to a later state; an earlier one is past."""
        self.state = max(self.state, state)

    def asked(self) -> None:
        """Count a question: as starved if there was no processor since the last."""
        now = processor_time(self.pid, time.monotonic())
        before, self.processor_time = self.processor_time, now
        if before is not None and is_starved(before, now):
            self.starved += 1
        else:
            self.unanswered += 1

    def answered(self) -> None:
        """Forget the questions so far."""
        self.unanswered = self.starved = 0

    def kill(self) -> None:
        """Kill the process, if it still runs."""
        if self.runs:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def reap(self) -> str:
        """Return how the process ended, and close its descriptors.

        Call it when it has ended.
        """
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pidfd)
        self.pidfd = -1  # the number may soon belong to another process
        self.channel.close()
        return cgroups.how_it_ended(os.waitstatus_to_exitcode(status), self._memory_kills)


def fork(
    name: str,
    run: Callable[[ControlChannel], int],
    *,
    keep: Collection[int],
    nice: int = 0,
) -> Child:
    """Start a child process.

    Args:
        run: Runs in the child, with the child's end of the control channel, and returns the exit
            status.
        nice: By how much to lower the child's priority.

    Raises:
        OSError: The system has no process or no descriptor left.
    """
    ours, theirs = ControlChannel.pair()
    sys.stdout.flush()
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        ours.close()
        theirs.close()
        raise
    if pid == 0:
        status = 1
        try:
            _begin(name, parent, {*keep, theirs.fileno(), *log_once.descriptors()}, nice)
            status = run(theirs)
        except Exception:
            _log.exception("the process ended with an error")
        finally:
            log_writer.finish()
            os._exit(status)
    theirs.close()
    try:
        return Child(name, pid, ours)
    except OSError:  # no descriptor is left
        ours.close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _begin(name: str, parent: int, keep: Collection[int], nice: int) -> None:
    signal.set_wakeup_fd(-1)
    for number in _SIGNALS:  # a terminal or systemd sends them to the children too
        signal.signal(number, signal.SIG_IGN)
    for text in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the names are numbers
        fd = int(text)
        if fd > 2 and fd not in keep:
            _close(fd)
    library = ctypes.CDLL(None)
    # Nothing could stop or replace a child without its supervisor.
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before
        os._exit(1)
    library.prctl(_PR_SET_NAME, f"kct-{name}"[:15].encode())
    if nice:
        os.nice(nice)
    random.seed()
    name_process(name)


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:  # the descriptor of the listing itself
        return
