"""Forked children: what they inherit, how they end, how they are killed."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from receiver.log import _process
from receiver.supervisor.channel import ControlChannel
from receiver.supervisor.child import Child, fork


def ended(child: Child) -> str:
    """Wait for the end of a child; return how it ended."""
    assert select.select([child.pidfd], [], [], 60)[0]
    return child.reap()


def told(run: Callable[[], Any], *, keep: tuple[int, ...] = (), nice: int = 0) -> Any:
    """What a child found."""

    def tell(channel: ControlChannel) -> int:
        channel.send("found", value=run())
        return 0

    child = fork("relay-7", tell, keep=keep, nice=nice)
    assert select.select([child.channel], [], [], 60)[0]
    message = child.channel.receive()
    assert message is not None
    assert ended(child) == "exit status 0"
    return message.fields["value"]


def test_a_child_keeps_only_the_given_descriptors() -> None:
    with socket.socket() as kept, socket.socket() as other:
        fds = told(
            lambda: [fd for fd in (0, 1, 2, kept.fileno(), other.fileno()) if is_open(fd)],
            keep=(kept.fileno(),),
        )
        assert kept.fileno() in fds
        assert other.fileno() not in fds
        assert is_open(other.fileno())


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_a_child_has_a_name_a_priority_and_its_own_randomness() -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert told(lambda: Path("/proc/self/comm").read_text()) == "kct-relay-7\n"
    assert told(lambda: os.getpriority(os.PRIO_PROCESS, 0), nice=3) == min(19, own + 3)
    assert told(lambda: dict(_process)) == {"process": "relay-7"}
    assert _process == {}
    assert told(random.random) != told(random.random)


def test_a_child_ignores_the_supervisors_signals() -> None:
    def handlers() -> list[bool]:
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        return [signal.getsignal(number) is signal.SIG_IGN for number in numbers]

    assert told(handlers) == [True, True, True]
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN


@pytest.mark.parametrize("status", [0, 1, 7])
def test_the_exit_status(status: int) -> None:
    assert ended(fork("core", lambda _: status, keep=())) == f"exit status {status}"


def test_an_error_ends_the_child() -> None:
    def fail(_: ControlChannel) -> int:
        raise LookupError("planned")

    assert ended(fork("core", fail, keep=())) == "exit status 1"


def test_a_killed_child_is_reaped_and_a_second_kill_hits_nobody() -> None:
    def wait(_: ControlChannel) -> int:
        signal.pause()
        return 0

    child = fork("core", wait, keep=())
    assert [child.runs, child.pidfd >= 0] == [True, True]
    child.kill()
    assert ended(child) == "killed by SIGKILL"
    child.kill()
    assert [child.runs, child.pidfd] == [False, -1]


def test_the_end_of_a_child_closes_its_channel() -> None:
    child = fork("core", lambda _: 0, keep=())
    assert select.select([child.channel], [], [], 60)[0]
    with pytest.raises(EOFError):
        child.channel.receive()
    ended(child)


@pytest.mark.parametrize("call", ["fork", "pidfd_open"])
def test_a_system_without_processes_or_descriptors(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def fail(*_: object) -> int:
        raise OSError(24, "planned")

    before = json.dumps(sorted(os.listdir("/proc/self/fd")))  # noqa: PTH208 - the names are numbers
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="planned"):
        fork("core", lambda _: 0, keep=())
    assert json.dumps(sorted(os.listdir("/proc/self/fd"))) == before  # noqa: PTH208 - as above
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
