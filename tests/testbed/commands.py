"""Runs commands with a time limit, and reports their output when they fail."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_COMMAND_TIMEOUT_S = 1800.0


class BuildError(Exception):
    """A part could not be built; the message has the command and the end of what it printed."""


class CommandError(Exception):
    """A command failed; the message is what it said."""


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


def fetch_jars(source: Path, folder: Path, **properties: str) -> None:
    """Fetch the jars of a folder's ``pom.xml``, with these properties, into ``folder/jars``.

    Raises:
        BuildError: Maven failed.
    """
    pom = folder / "pom.xml"
    shutil.copy(source / "pom.xml", pom)
    run(
        [
            "mvn",
            "--batch-mode",
            "--quiet",
            "--file",
            pom,
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={folder / 'jars'}",
            *(f"-D{name}={value}" for name, value in properties.items()),
        ]
    )


def output(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    timeout_s: float,
    error: type[CommandError],
    stdin: str = "",
    highest_status: int = 0,
) -> str:
    """Return what a command prints on standard output, for one that a test asks.

    Raises:
        CommandError: An ``error``: its status is above ``highest_status``, or it took too long.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, env=env, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        what = " ".join([Path(words[0]).name, *words[1:2]])
        raise error(f"`{what}` still ran after {timeout_s:g} s") from None
    if done.returncode > highest_status or done.returncode < 0:
        raise error(f"{done.stderr}{done.stdout}".strip())
    return done.stdout
