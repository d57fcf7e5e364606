"""Starts real supervisors with small children, and watches them from outside."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import wait_until

TIMEOUT_S = 300.0
ROOT = Path(__file__).parents[3]


def settings(folder: Path, *, relays: int = 2, **more: Any) -> dict[str, Any]:
    """A configuration with one listener; ``more`` are further sections."""
    return {
        "broker": {"id": 1},
        "listeners": [listener("CLIENT")],
        "rest": {"bind": f"{LOOPBACK}:{free_port()}"},
        "gateway": {"relays": relays, "control": str(folder / "control"), "core_nice": 0},
        "drain": {"timeout_s": 30},
        "log": {"format": "json"},
        **more,
    }


def listener(name: str) -> dict[str, Any]:
    return {"name": name, "bind": f"{LOOPBACK}:{free_port()}", "upstream": f"{LOOPBACK}:9092"}


def port_of(bind: str) -> int:
    return int(bind.rpartition(":")[2])


def until(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, timeout_s=TIMEOUT_S, what=what, every_s=0.01)


class Client:
    """A connection to a listener."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((LOOPBACK, port), timeout=TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, question: bytes) -> Any:
        self.socket.sendall(question + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            part = self.socket.recv(1000)
            assert part, "the relay closed the connection"
            answer += part
        return json.loads(answer)

    def who(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.ask(b"who")
        return answer

    def core(self) -> dict[str, Any] | None:
        """The core that the relay is linked to; None while there is none."""
        answer: dict[str, Any] | None = self.ask(b"core")
        return answer

    def until_core(self, pid: int) -> None:
        """Wait until the relay is linked to this core."""
        until(lambda: (self.core() or {}).get("pid") == pid, f"a link to the core {pid}")

    def ended(self) -> bool:
        """Wait for the end of the connection."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


class Program:
    """A running supervisor."""

    def __init__(self, folder: Path, config: dict[str, Any], *arguments: str, **plan: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.config = config
        self.write(config)
        self.plan(**plan)
        self._log = (folder / "log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.supervisor.program", str(folder), *arguments],
            cwd=ROOT,
            stderr=self._log,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(TIMEOUT_S)
        self._log.close()

    def write(self, config: dict[str, Any]) -> None:
        self.config = config
        self._replace("settings.json", config)

    def plan(self, **plan: Any) -> None:
        self._replace("plan.json", plan)

    def _replace(self, name: str, value: Any) -> None:
        (self.folder / f"{name}.new").write_text(json.dumps(value))
        (self.folder / f"{name}.new").rename(self.folder / name)

    @property
    def port(self) -> int:
        return port_of(self.config["listeners"][0]["bind"])

    def rest(self) -> dict[str, Any]:
        with socket.create_connection((LOOPBACK, port_of(self.config["rest"]["bind"])), TIMEOUT_S) as one:
            text = b""
            while part := one.recv(1000):
                text += part
        answer: dict[str, Any] = json.loads(text)
        return answer

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(TIMEOUT_S)

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def started(self) -> Self:
        self.until_logged("started")
        return self

    def logged(self, event: str) -> list[dict[str, Any]]:
        lines = (self.folder / "log").read_text().splitlines()
        objects = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [object_ for object_ in objects if object_["event"] == event]

    def until_logged(self, event: str, count: int = 1) -> dict[str, Any]:
        """Wait until it has logged an event so often; return the last."""
        until(
            lambda: len(self.logged(event)) >= count or not self.runs,
            f"{event!r} in the log",
        )
        found = self.logged(event)
        assert len(found) >= count, (self.folder / "log").read_text()
        return found[-1]

    def journal(self, event: str, process: str | None = None) -> list[dict[str, Any]]:
        try:
            lines = (self.folder / "journal").read_text().splitlines()
        except FileNotFoundError:
            return []
        found = [line for line in map(json.loads, lines) if line["event"] == event]
        return [item for item in found if process is None or item["process"] == process]

    def until_journal(self, event: str, process: str | None = None, count: int = 1) -> dict[str, Any]:
        until(lambda: len(self.journal(event, process)) >= count, f"{event} of {process} in the journal")
        return self.journal(event, process)[count - 1]

    def children(self) -> dict[str, int]:
        """The running child processes by name."""
        found = {}
        for pid in self._child_pids():
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                name = Path(f"/proc/{pid}/comm").read_text().strip().removeprefix("kct-")
            except OSError:
                continue
            if state != "Z":
                found[name] = int(pid)
        return found

    def _child_pids(self) -> list[str]:
        """The process ids of all children, also of those that have ended and are not reaped.

        A child that is reaped meanwhile can hide another from the kernel's list (proc(5)), so this
        reads until two readings agree.
        """
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        found = path.read_text()
        while found != (again := path.read_text()):
            found = again
        return found.split()

    def until_another(self, name: str, pid: int) -> int:
        """Wait until another process has the place of one; return its id."""
        until(lambda: self.children().get(name) not in {None, pid}, f"another {name}")
        return self.children()[name]


def alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    os.kill(pid, number)
