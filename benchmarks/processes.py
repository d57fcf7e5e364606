"""Starts a benchmark's processes, waits until they answer, reads their memory and ends them.

Owns processes that it started, by pid, and their descendants; it must not touch any other.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

READY_SECONDS = 30.0
STOP_SECONDS = 10.0
LOG_TAIL_BYTES = 2000


class ProcessError(RuntimeError):
    """A process did not start to listen, or ended too early; the text has the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A process under measurement.

    Attributes:
        name: what to call it in a message.
        pid: the process that was started.
        log: file with its standard output and error.
    """

    name: str
    pid: int
    log: Path

    def pids(self) -> list[int]:
        """Return its process id and those of its descendants."""
        return [self.pid, *descendants(self.pid)]

    def resident_bytes(self) -> int:
        """Return the private memory of the process and its descendants in bytes, swap included.

        Shared library pages don't grow with connections and are left out; see ``smaps_rollup`` in
        proc(5).
        """
        total = 0
        for pid in self.pids():
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith(("Private_Clean:", "Private_Dirty:", "Swap:")):
                    total += int(line.split()[1]) * 1024
        return total

    def forget_peak(self) -> None:
        """Reset :meth:`peak_bytes` to the present memory; see ``clear_refs`` in proc(5)."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def peak_bytes(self) -> int:
        """Return the peak memory of the process in bytes, shared pages included."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024


@contextlib.contextmanager
def on_cores(cores: AbstractSet[int], processes: Sequence[Running]) -> Iterator[None]:
    """Pin this process, ``processes`` and their descendants to ``cores`` in the ``with`` block.

    What is started meanwhile inherits it. Afterwards all may run where this process could before.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    pin(processes, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        pin(processes, before)


def pin(processes: Sequence[Running], cores: AbstractSet[int]) -> None:
    """Let ``processes`` and their descendants run on ``cores`` only, from now on."""
    for process in processes:
        for pid in process.pids():
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(ProcessLookupError):  # a thread that has just ended
                    os.sched_setaffinity(int(task.name), cores)


def descendants(pid: int) -> list[int]:
    """Return the process ids of all descendants of ``pid`` that live now."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def allow_files(count: int) -> None:
    """Raise this process's (and so its children's) limit of open files to ``count``.

    Raises:
        ProcessError: the hard limit is lower and may not be raised.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, max(count, hard)))
    except (ValueError, OSError) as error:
        raise ProcessError(
            f"{count} open files are needed, the hard limit is {hard}: raise it (ulimit -Hn)"
        ) from error


@contextlib.contextmanager
def running(
    name: str,
    command: Sequence[str],
    *,
    folder: Path,
    ready: str,
    environment: Mapping[str, str] | None = None,
    seconds: float = READY_SECONDS,
) -> Iterator[Running]:
    """Run ``command`` in the ``with`` block, once ``ready`` (host:port) accepts connections.

    Args:
        name: what to call it; its log is ``folder/NAME.log``.
        command: program and arguments, no shell.
        folder: its working folder.
        ready: host:port that must take a connection first.
        environment: its whole environment; ``None`` for this process's own.
        seconds: how long it may take to be ready.

    Raises:
        ProcessError: it ended, or took no connection in time.
    """
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        await_listener(name, process, log, ready, seconds)
        yield Running(name=name, pid=process.pid, log=log)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        # A wrapper may leave behind the program that it started; both are in the session made for
        # them.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def await_listener(
    name: str, process: subprocess.Popen[bytes], log: Path, ready: str, seconds: float = READY_SECONDS
) -> None:
    """Wait until ``ready`` (host:port) takes a connection.

    Raises:
        ProcessError: ``process`` ended, or the time is over.
    """
    host, _, port = ready.rpartition(":")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if process.poll() is not None:
            raise ProcessError(f"{name} ended with status {process.returncode}:\n{_tail(log)}")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.05)
    raise ProcessError(f"{name} takes no connection on {ready} after {seconds:g} s:\n{_tail(log)}")


def _tail(log: Path) -> str:
    return log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
