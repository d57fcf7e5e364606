"""Runs the Java programs of ``benchmarks/bridge``, which call the bridge as a broker does."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.processes import BenchmarkError
from tests.integration.bridge.peer import TOKEN
from tests.testbed import jvm, parts

_SOURCES: Final = Path(__file__).parent / "bridge"
_PAYLOADS: Final = Path(__file__).parents[1] / "tests" / "data" / "payloads"
_COMPILE_SECONDS: Final = 600.0


class Programs:
    """The compiled programs, and the files that all of them read.

    Args:
        folder: Where they are compiled to.
        more: Sources of further programs.
        flags: Flags of the JVM that runs them.

    Attributes:
        token: The file of the token.
    """

    def __init__(self, folder: Path, *more: Path, flags: tuple[str, ...] = jvm.WARM) -> None:
        self._flags = flags
        self.token = folder / "token"
        self.token.write_bytes(TOKEN)
        self._classes = folder / "classes"
        self._plugins = [parts.BRIDGE.require() / "kafka-telemetry-bridge.jar", self._classes]
        path = ":".join(map(str, [*jvm.class_path(), *self._plugins]))
        command: list[str | Path] = [
            "javac",
            "-cp",
            path,
            "-d",
            self._classes,
            *sorted(_SOURCES.glob("*.java")),
            *more,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMPILE_SECONDS)
        if done.returncode:
            raise BenchmarkError(f"the bridge's benchmarks don't compile:\n{done.stderr[-2000:]}")

    def metrics(self, file: Path, size: int) -> Path:
        """Write that many bytes of captured metrics into a file, and return it."""
        payload = max(_PAYLOADS.glob("*.bin"), key=lambda found: found.stat().st_size).read_bytes()
        file.write_bytes((payload * (size // len(payload) + 1))[:size])
        return file

    def command(self, name: str, *arguments: object) -> list[str]:
        """Return the command that runs a program."""
        return jvm.command(name, *map(str, arguments), flags=self._flags, plugins=self._plugins)

    def lines(self, name: str, *arguments: object, seconds: float) -> list[dict[str, Any]]:
        """Run a program to its end, and return the JSON lines that it printed."""
        done = subprocess.run(
            self.command(name, *arguments), capture_output=True, text=True, check=False, timeout=seconds
        )
        if done.returncode:
            raise BenchmarkError(f"{name} failed:\n{done.stderr[-2000:]}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    @contextlib.contextmanager
    def started(self, name: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        """Run a program during the block; the caller reads its standard output."""
        process = subprocess.Popen(
            self.command(name, *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with process:
            try:
                yield process
            finally:
                process.kill()
