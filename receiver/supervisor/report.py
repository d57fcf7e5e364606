"""Tells the core what only the supervisor knows: reloads and restarts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from receiver.supervisor.channel import ControlChannel
from spark_streaming import process_1


class Report:
    """The report of one supervisor, which every core gets, and again when it changes.

    Args:
        core: Returns the channel to the core; None while there is none.
        wall: Seconds since the epoch.
    """

    def __init__(
        self, core: Callable[[], ControlChannel | None], *, wall: Callable[[], float] = time.time
    ) -> None:
        self._core = core
        self._wall = wall
        self._applied_at = wall()
        self._problem: str | None = None
        self._restarts = {"supervisor": process_1.restarts(), "core": 0, "relay": 0}

    def applied(self) -> None:
        """Note that a new configuration is in force."""
        self._applied_at = self._wall()
        self._problem = None
        self.tell()

    def refused(self, problem: str) -> None:
        """Note that a new configuration was refused, and why."""
        self._problem = problem
        self.tell()

    def restarted(self, kind: Literal["core", "relay"]) -> None:
        """Count a process that died and is started again."""
        self._restarts[kind] += 1
        self.tell()

    def tell(self) -> None:
        """Send the report to the core."""
        channel = self._core()
        if channel is not None:
            channel.send(
                "report", applied_at=self._applied_at, problem=self._problem, restarts=self._restarts
            )
