"""Owns the namespaces of a node, and the programs in them."""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.testbed.commands import CommandError, output
from tests.testbed.network import Host, Network, NetworkError
from tests.testbed.process import ChildProcess, StartError

_HERE: Final = Path(__file__).parent
_NAMESPACES: Final = ("--mount", "--pid", "--uts", "--ipc", "--net")
_READY_WITHIN_S: Final = 300.0
_GONE_WITHIN_S: Final = 120.0
_COMMAND_TIMEOUT_S: Final = 600.0
#: The tests, which judge by conditions, go first.
_NICE: Final = "5"
_numbers = itertools.count(1)


class MachineError(CommandError):
    """A command on the node failed; the message is what it said."""


class Machine:
    """A machine of its own, as far as namespaces make one; its programs end with it.

    Attributes:
        folder: Of this run.
        address: Its address, for this machine and for itself.
        cgroup: The control group that it may use.
    """

    folder: Path
    address: str

    def __init__(self) -> None:
        self.cgroup = f"kafka-client-telemetry-{os.getpid()}-{next(_numbers)}"
        self._network = Network()
        self._holder: ChildProcess | None = None
        self._broom: subprocess.Popen[bytes] | None = None
        self._programs: dict[str, ChildProcess] = {}

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="kafka-client-telemetry-node-"))
        broom: list[str | Path] = ["sh", _HERE / "broom.sh", self.folder, self.cgroup]
        # Not a ChildProcess, because it outlives the testbed.
        self._broom = subprocess.Popen(broom, stdin=subprocess.PIPE, start_new_session=True)
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make(self) -> None:
        unshare = ["unshare", "--fork", "--kill-child", "--propagation", "private", *_NAMESPACES]
        holder = ChildProcess(
            "the node",
            [*unshare, "sh", _HERE / "process_1.sh", self.folder, self.cgroup],
            log=self.folder / "node.log",
        )
        self._holder = holder
        holder.wait_until_ready((self.folder / "ready").exists, timeout_s=_READY_WITHIN_S)
        here, there = self._network.link(None, Host("node", holder))
        self.address = there.ipv4
        self.run("ip", "route", "add", "default", "via", here.ipv4)

    def command(self, *words: str | Path) -> list[str | Path]:
        """The command that runs a program on the node."""
        if self._holder is None:
            raise RuntimeError("the node was never started: use it as a context manager")
        process_1 = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().split()[0]
        return ["nsenter", "--target", process_1, *_NAMESPACES, "--wd=/", "--", *words]

    def run(self, *words: str | Path, stdin: str = "") -> str:
        """What a program prints that runs on the node to its end.

        Raises:
            MachineError: It failed, or took too long.
        """
        return output(
            self.command(*words),
            env=dict(os.environ),
            stdin=stdin,
            timeout_s=_COMMAND_TIMEOUT_S,
            error=MachineError,
        )

    def start(self, name: str, *words: str | Path, path: Path) -> ChildProcess:
        """Start a program that runs until the node ends.

        Args:
            name: Its name, which its log has too.
            words: The program and its arguments.
            path: Its own folder of programs, before the machine's.

        Raises:
            StartError: It can't be started.
        """
        programs = f"PATH={path}:/usr/sbin:/usr/bin:/sbin:/bin"
        process = ChildProcess(
            name,
            self.command("nice", "-n", _NICE, "env", programs, *words),
            log=self.folder / f"{name}.log",
        )
        self._programs[name] = process
        return process

    def ended(self) -> list[str]:
        """The programs that have ended, with the end of what they logged."""
        return [
            f"{name} has ended:\n{process.log_tail()}"
            for name, process in self._programs.items()
            if not process.running
        ]

    def close(self) -> None:
        """End everything, and wait until nothing is left of it."""
        # The link first: the kernel takes it away with the machine.
        self._network.__exit__(None, None, None)
        for process in self._programs.values():
            process.kill()
        if self._holder is not None:
            self._holder.kill()
        if self._broom is not None and self._broom.stdin is not None:
            self._broom.stdin.close()
            self._broom.wait(_GONE_WITHIN_S)


def problem() -> str | None:
    """Why this machine can't have a :class:`Machine`, None when it can."""
    if os.geteuid() != 0:
        return "a node needs root, for namespaces, mounts and control groups"
    if not any(Path("/sys/fs/cgroup", name).exists() for name in ("cgroup.controllers", "memory/tasks")):
        return "a node needs control groups with the controllers cpu, memory and pids in /sys/fs/cgroup"
    try:
        with Machine() as machine:
            machine.run("true")
    except (StartError, MachineError, NetworkError) as error:
        return f"namespaces, mounts and control groups can't be made: {error}"
    return None
