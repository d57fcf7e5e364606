"""Owns every child process of the testbed: the one place that starts and stops one.

A child is the leader of a process group of its own and writes its output into files. It never
outlives the testbed: it is killed when its owner says so, when the interpreter exits, and by the
kernel when the thread that started it dies (so start children from a thread that lives as long as
they shall).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

#: No wait gives up earlier, because a busy machine may take a minute for what usually takes a
#: second. A wait that succeeds ends at once, so this costs time only where a test fails anyway.
PATIENCE_S = 120.0

_TAIL_LINES = 40
_alive: weakref.WeakSet[ChildProcess] = weakref.WeakSet()


class StartError(Exception):
    """A part did not come up; the message ends with the tail of its log."""


class StopError(Exception):
    """A part did not stop cleanly; the message ends with the tail of its log."""


class WaitTimeoutError(Exception):
    """Something that was waited for did not happen in time; the message says what."""


def wait_until(condition: Callable[[], bool], *, timeout_s: float, what: str, every_s: float = 0.05) -> None:
    """Return as soon as ``condition()`` is true.

    Raises:
        WaitTimeoutError: It was not within ``timeout_s`` seconds or :data:`PATIENCE_S`, whichever
            is longer; names ``what``.
    """
    patience_s = max(timeout_s, PATIENCE_S)
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() >= deadline:
            raise WaitTimeoutError(f"waited {patience_s:g} s in vain for {what}")
        time.sleep(every_s)


def in_group(group: int) -> list[str]:
    """The names of a group's processes that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text().rpartition(")")
            except OSError:
                continue
            state, _, pgrp = rest.split()[:3]
            if int(pgrp) == group and state not in {"X", "Z"}:
                found.append(name)
    return found


class ChildProcess:
    """A started process.

    Args:
        name: What messages call it.
        command: The program and its arguments.
        log: File that gets standard error, and standard output unless ``output`` is given; appended
            to.
        output: File that gets standard output alone.
        env: Variables added to this process's environment.
        cwd: Its working folder.

    Raises:
        StartError: The program can't be run.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        output: Path | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        program = shutil.which(str(command[0]))
        if program is None:
            raise StartError(f"{name}: {command[0]} is not there or can't be run")
        # setpriv becomes the program itself. Asking for the signal in Python between fork and exec
        # would run the fork handlers of gRPC and others, which is not safe in a process with
        # threads.
        full = ["setpriv", "--pdeathsig", "KILL", "--", program, *map(str, command[1:])]
        with log.open("ab") as errors, (output or log).open("ab") as out:
            self._popen = subprocess.Popen(
                full,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                process_group=0,
            )
        _alive.add(self)

    @property
    def pid(self) -> int:
        """The process's id, which is its group's id too."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal, None while it runs."""
        return self._popen.poll()

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._popen.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone; one that has ended is left alone."""
        self._popen.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        """Wait for its end.

        Returns:
            The exit status, negative for a signal.

        Raises:
            WaitTimeoutError: It still runs after ``timeout_s`` seconds or :data:`PATIENCE_S`,
                whichever is longer.
        """
        patience_s = max(timeout_s, PATIENCE_S)
        try:
            return self._popen.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise WaitTimeoutError(f"{self.name} still runs after {patience_s:g} s") from None

    def wait_until_ready(self, ready: Callable[[], bool], *, timeout_s: float) -> None:
        """Wait until ``ready()``; kill the process when it does not get there.

        Raises:
            StartError: It ended, or was not ready within ``timeout_s`` seconds.
        """
        try:
            wait_until(
                lambda: not self.running or ready(), timeout_s=timeout_s, what=f"{self.name} to be ready"
            )
        except BaseException as error:
            self.kill()
            if isinstance(error, WaitTimeoutError):
                raise StartError(f"{error}; its log ends with:\n{self.log_tail()}") from None
            raise
        if not self.running:
            raise StartError(
                f"{self.name} ended with status {self.returncode} at its start; its log ends with:\n"
                f"{self.log_tail()}"
            )

    def terminate(self, timeout_s: float = 120.0) -> int:
        """Ask it to end (SIGTERM) and wait for it.

        Returns:
            The exit status, negative for a signal.

        Raises:
            StopError: It had to be killed, because it still ran when :meth:`wait` gave up.
        """
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a stopped process does not see the first signal otherwise
        try:
            return self.wait(timeout_s)
        except WaitTimeoutError as error:
            self.kill()
            raise StopError(
                f"{error} after SIGTERM and was killed; its log ends with:\n{self.log_tail()}"
            ) from None
        finally:
            self._kill_group()

    def kill(self) -> None:
        """End the process and its group at once (SIGKILL)."""
        if self.running:
            self._kill_group()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
            self._popen.wait()
            # Its children hold its ports until they have ended too.
            wait_until(
                lambda: not in_group(self.pid),
                timeout_s=PATIENCE_S,
                what=f"the end of the children of {self.name}",
                every_s=0.005,
            )
        _alive.discard(self)

    def log_text(self) -> str:
        """Everything in the log so far."""
        return self.log.read_text(errors="replace")

    def log_tail(self, lines: int = _TAIL_LINES) -> str:
        """The last lines of the log."""
        return "\n".join(self.log_text().splitlines()[-lines:])


class ScratchFolder:
    """A temporary folder for one part's files; removed at close unless ``TESTBED_KEEP`` is set."""

    def __init__(self, name: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"kafka-client-telemetry-{name}-"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder."""
        if not os.environ.get("TESTBED_KEEP"):
            shutil.rmtree(self.path, ignore_errors=True)


@atexit.register
def _kill_all() -> None:
    for child in list(_alive):
        child.kill()
