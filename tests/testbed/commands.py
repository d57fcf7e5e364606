"""Owns how a command that builds a part is run: with a bound on its time, and its words when it fails."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_COMMAND_TIMEOUT_S = 1800.0


class BuildError(Exception):
    """A part could not be built; the message has the command and the end of what it printed."""


def run(
    command: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> None:
    """Run a command to its end.

    Raises:
        BuildError: It failed or took too long.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"`{words[0]}` still ran after {_COMMAND_TIMEOUT_S:g} s and was ended") from None
    if done.returncode:
        raise BuildError(f"`{' '.join(words)[:300]}` ended with {done.returncode}:\n{done.stdout[-3000:]}")
