"""Checks Kafka resources by the classes of Strimzi's operator."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.testbed import parts
from tests.testbed.commands import CommandError, output, run

_PROGRAM: Final = Path(__file__).with_name("UnknownFields.java")
_TIMEOUT_S: Final = 120.0


def compile_program(folder: Path) -> None:
    """Compile the program of a part whose jars are there.

    Raises:
        BuildError: It does not compile.
    """
    run(["javac", "-proc:none", "-cp", f"{folder / 'jars'}/*", "-d", folder / "classes", _PROGRAM])


def unknown_fields(resource: str) -> Sequence[str]:
    """Return the paths of fields of a Kafka resource, in YAML, that Strimzi does not know.

    Raises:
        CommandError: A value has a type that Strimzi does not take.
    """
    folder = parts.STRIMZI.require()
    command: list[str | Path] = ["java", "-cp", f"{folder / 'classes'}:{folder / 'jars'}/*", "UnknownFields"]
    said = output(command, env=os.environ, stdin=resource, timeout_s=_TIMEOUT_S, error=CommandError)
    return said.splitlines()
