"""The load generator's innocent client and attacker, which run at the same time.

Owns their processes and what their JSON holds.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.load_generator import LoadError, build


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackReport:
    """What one attack did, as the attacker saw it.

    Attributes:
        seconds: how long it took.
        opened: connections that the target's system took.
        ended: those of them that the target ended.
        held: those that were open at the end.
        failed: attempts to connect that failed.
        bytes_sent: what the target's system took of what was sent.
        gets: answers to GetTelemetrySubscriptions, by error code.
        pushes: answers to PushTelemetry, by error code.
        problems: how connections ended, with their number.
    """

    seconds: float
    opened: int
    ended: int
    held: int
    failed: int
    bytes_sent: int
    gets: Mapping[int, int]
    pushes: Mapping[int, int]
    problems: Mapping[str, int]


class Background:
    """The load generator in the background, while something else is done or measured.

    Args:
        mode: its mode.
        arguments: its flags, as ``load MODE -h`` lists them.
        niceness: how much it steps back for others on its core, 0 to 19; see nice(1).
    """

    def __init__(self, mode: str, arguments: Sequence[str], *, niceness: int = 0) -> None:
        self._what = f"load {mode} {' '.join(arguments)}"
        self._process = subprocess.Popen(
            ["nice", "-n", str(niceness), str(build()), mode, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def first_line(self) -> None:
        """Wait for the first line that it prints, or for its end."""
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def result(self, seconds: float) -> dict[str, Any]:
        """Return the last line that it printed, once it has ended.

        Args:
            seconds: how long to wait at most.

        Raises:
            LoadError: it failed or took too long.
        """
        try:
            output, problem = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise LoadError(f"{self._what}: no end within {seconds:g} s") from error
        if self._process.returncode != 0:
            raise LoadError(f"{self._what}: {problem.strip()}")
        result: dict[str, Any] = json.loads(output.splitlines()[-1])
        return result

    def stop(self) -> None:
        """End it, if it has not ended."""
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def in_background(mode: str, arguments: Sequence[str], *, niceness: int = 0) -> Iterator[Background]:
    """Run the load generator while the ``with`` block lasts, or until it ends by itself."""
    background = Background(mode, arguments, niceness=niceness)
    try:
        yield background
    finally:
        background.stop()


def attack_report(background: Background, seconds: float) -> AttackReport:
    """Wait for an attack's end, ``seconds`` at most, and return what it did.

    Raises:
        LoadError: it did not end, or could not even begin.
    """
    seen = background.result(seconds)
    return AttackReport(
        seconds=seen["seconds"],
        opened=seen["connections_opened"],
        ended=seen["connections_ended"],
        held=seen["connections_held"],
        failed=seen["connections_failed"],
        bytes_sent=seen["bytes_sent"],
        gets={int(code): count for code, count in seen["gets_by_error_code"].items()},
        pushes={int(code): count for code, count in seen["pushes_by_error_code"].items()},
        problems=seen["problems"],
    )
