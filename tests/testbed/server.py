"""The bases of the testbed's servers: a folder, a process in it, and their lifetime."""

from __future__ import annotations

import contextlib
import json
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

import httpx

from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import ChildProcess, ScratchFolder, StopError

#: Set by coverage.py for child processes. One that is killed writes none of what it measured.
_MEASURES_COVERAGE = "COVERAGE_PROCESS_CONFIG" in os.environ

#: A busy machine may take minutes for what takes a second.
_READY_WITHIN_S = 300.0
_REQUEST_TIMEOUT_S = 120.0


class Server(ABC):
    """A server, started on entering the context and ended on leaving it, its folder with it.

    Args:
        name: What its folder is called by.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._scratch: ScratchFolder | None = None
        self._process: ChildProcess | None = None

    def __enter__(self) -> Self:
        self._scratch = ScratchFolder(self._name)
        try:
            self._lay_out(self._scratch.path)
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def start(self) -> None:
        """Start it, also again after its end; what is in its folder stays.

        Raises:
            StartError: It did not come up; shows the tail of its log.
        """

    @property
    def pid(self) -> int:
        """Its process's id."""
        return self._started().pid

    @property
    def running(self) -> bool:
        """Whether the process is there (also while it is paused)."""
        return self._process is not None and self._process.running

    def kill(self) -> None:
        """End it at once (SIGKILL); what is in its folder stays for :meth:`start`."""
        self._started().kill()

    def close(self) -> None:
        """End it if it runs, and forget its folder."""
        if self._process is not None:
            if self.running and _MEASURES_COVERAGE:
                with contextlib.suppress(StopError):
                    self._process.terminate()
            self._process.kill()
        if self._scratch is not None:
            self._scratch.close()

    def log_text(self) -> str:
        """Everything it logged so far."""
        return self._started().log_text()

    def logged_objects(self, beginning: str = "{") -> list[dict[str, Any]]:
        """Parse the complete log lines that start with ``beginning`` as JSON."""
        text = self.log_text()
        whole = text[: text.rfind("\n") + 1]
        return [json.loads(line) for line in whole.splitlines() if line.startswith(beginning)]

    def log_tail(self) -> str:
        """The last lines of its log."""
        return self._started().log_tail()

    def _lay_out(self, folder: Path) -> None:  # noqa: B027 # most have nothing there before their start
        """Put into the folder what it needs before its first start."""

    def _started(self) -> ChildProcess:
        if self._process is None:
            raise RuntimeError(f"the {self._name} was never started: use it as a context manager")
        return self._process

    def _folder(self) -> Path:
        if self._scratch is None:
            raise RuntimeError(f"the {self._name} has no folder: use it as a context manager")
        return self._scratch.path


class HttpServer(Server):
    """A server that is asked over HTTP, on a port of its own.

    Args:
        name: What its folder is called by.
        ready_path: What answers 200 once it is up.

    Attributes:
        port: Where it is.
        address: The same as ``host:port``.
        url: The same as a URL.
    """

    def __init__(self, name: str, *, ready_path: str) -> None:
        super().__init__(name)
        self._ready_path = ready_path
        self.port = free_port()
        self.address = f"{LOOPBACK}:{self.port}"
        self.url = f"http://{self.address}"
        self._http = httpx.Client(base_url=self.url, timeout=_REQUEST_TIMEOUT_S, trust_env=False)

    def close(self) -> None:
        """End it if it runs and forget what it has."""
        self._http.close()
        super().close()

    def _run(self, process: ChildProcess) -> None:
        """Take a process that was started, and wait until it is up."""
        self._process = process
        process.wait_until_ready(self._is_ready, timeout_s=_READY_WITHIN_S)

    def _is_ready(self) -> bool:
        try:
            return self._http.get(self._ready_path).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False
