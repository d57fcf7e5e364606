"""Reads the files of this process's control groups, for the receiver too.

It imports little, because process 1 of a container imports it (:mod:`spark_streaming.process_1`).
Sources: the kernel's "Control Group v2" and "Memory Resource Controller". Container engines use
both versions.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from typing import Final

#: More than the kernel writes into any file that is read.
_MAX_BYTES: Final = 65_536
_MEMORY_KILLS: Final = re.compile("oom_kill ([0-9]{1,19})")


def files(root: str, controller: str, *names: str) -> Iterator[tuple[str, ...]]:
    """Yield files of each group that this process is in, up to the root.

    Args:
        root: The folder that holds ``proc`` and ``sys``.
        controller: The controller's name in version 1; empty for version 2.
        names: The files; a group without one of them is left out.
    """
    mount = f"{root}/sys/fs/cgroup/{controller}"
    for line in (_read(f"{root}/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            for group in _up(path):
                found = tuple(
                    text for name in names if (text := _read(f"{mount}/{group}/{name}")) is not None
                )
                if len(found) == len(names):
                    yield found


def _up(path: str) -> Iterator[str]:
    # In a container the path may be the host's, while the mount begins at the container's own
    # group. So folders that do not exist are passed over.
    group = path.strip("/")
    while group:
        yield group
        group = group.rpartition("/")[0]
    yield ""


def _read(file: str) -> str | None:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _MAX_BYTES).decode(errors="replace")
        finally:
            os.close(descriptor)
    except OSError:
        return None


def memory_kills(root: str = "/") -> int:
    """Return how many processes of this group want of memory has killed.

    It is 0 if no group counts them.
    """
    for version in (("", "memory.events"), ("memory", "memory.oom_control")):
        for (counters,) in files(root, *version):
            for line in counters.splitlines():
                if counted := _MEMORY_KILLS.fullmatch(line):
                    return int(counted[1])
    return 0


def how_it_ended(status: int, kills: int, root: str = "/") -> str:
    """Say how a child process ended, and whether memory was short.

    Args:
        status: As ``os.waitstatus_to_exitcode`` returns it.
        kills: What :func:`memory_kills` returned when the process was started.
        root: The folder that holds ``proc`` and ``sys``.
    """
    if status >= 0:
        return f"exit status {status}"
    try:
        killed = f"killed by {signal.Signals(-status).name}"
    except ValueError:  # most real-time signals have no name
        killed = f"killed by signal {-status}"
    more = memory_kills(root) - kills if -status == signal.SIGKILL else 0
    if more <= 0:
        return killed
    return f"{killed}; meanwhile the kernel killed {more} of the container's processes, for want of memory"
