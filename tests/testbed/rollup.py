"""Owns the roll-up as its users meet it: the installed command, a configuration file, signals."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.testbed.process import ChildProcess, StopError
from tests.testbed.server import Server

_END_WITHIN_S = 900.0


class Rollup(Server):
    """``kafka-telemetry rollup run`` on a spool folder, with a checkpoint of its own.

    Args:
        spool: The folder that spool_files writes.
        postgres: The database's URL.
        settings: Further keys of rollup.yaml.
    """

    def __init__(self, *, spool: Path, postgres: str, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__("rollup")
        self._spool = spool
        self._postgres = postgres
        self._logged = 0  # characters of earlier runs
        self._settings = dict(settings or {})

    @property
    def checkpoint(self) -> Path:
        """Where its offsets and progress are."""
        return self._folder() / "checkpoint"

    def start(self) -> None:
        """Start it, also again after its end; Spark takes some seconds more until it works.

        Raises:
            StartError: It can't be run.
        """
        self._run()

    def run_once(self) -> None:
        """Let it take in everything there is, and wait for its end.

        Raises:
            StopError: It failed; shows the tail of its log.
            WaitTimeoutError: It did not end in time.
        """
        process = self._run("--once")
        if process.wait(_END_WITHIN_S):
            raise StopError(f"the roll-up ended with {process.returncode}:\n{process.log_tail()}")

    def stop(self) -> None:
        """Let it end by itself (SIGTERM), once it works: a start is broken off, with status 143.

        Raises:
            StartError: It has not come to work; shows the tail of its log.
            StopError: It did not end, or not cleanly; shows the tail of its log.
        """
        process = self._started()
        process.wait_until_ready(
            lambda: '"event": "reading"' in process.log_text()[self._logged :], timeout_s=_END_WITHIN_S
        )
        status = process.terminate(_END_WITHIN_S)
        if status:
            raise StopError(f"the roll-up ended with {status}:\n{self.log_tail()}")

    def _run(self, *options: str) -> ChildProcess:
        folder = self._folder()
        file = folder / "rollup.yaml"
        file.write_text(yaml.safe_dump(self._settings))
        command: list[str | Path] = [
            Path(sys.executable).with_name("kafka-telemetry"),
            *("rollup", "run", *options, "--source", "spool_files", "--postgres", self._postgres),
            *("--config", str(file), "--path", str(self._spool), "--checkpoint", str(self.checkpoint)),
        ]
        log = folder / "rollup.log"
        self._logged = len(log.read_text(errors="replace")) if log.exists() else 0
        self._process = ChildProcess("roll-up", command, log=log, cwd=folder)
        return self._process
