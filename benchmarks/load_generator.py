"""Builds and runs the load generator of ``benchmarks/load``: a fake broker, clients, attackers.

It is written in Go, because Python beside a proxy on two cores would be part of the figure.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import BenchmarkError, Running, running
from tests.testbed.cache import cache_folder
from tests.testbed.ports import LOOPBACK, free_port

_SOURCE = Path(__file__).parent / "load"
_BUILD_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Timed requests, or pairs of a get and an accepted push, without the warm-up."""

    requests: int
    wall_seconds: float
    #: CPU time of each watched process meanwhile, by process id.
    cpu_seconds: Mapping[str, float]
    #: Bytes of requests and responses; 0 for pairs.
    bytes_moved: int
    #: From writing a request to its response, or from the get to the response of the push.
    p50_us: float
    p99_us: float
    max_us: float
    #: TLS version and cipher; empty without TLS.
    tls: str


def build() -> Path:
    """Return the program; compile it if these sources have not been compiled before."""
    digest = hashlib.sha256()
    for path in sorted(path for path in _SOURCE.iterdir() if path.suffix in {".go", ".mod"}):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    program = cache_folder() / f"load-{digest.hexdigest()[:16]}"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise BenchmarkError("the load generator needs Go 1.21 or later on the PATH; none was found")
    unfinished = program.with_suffix(f".{os.getpid()}")
    done = subprocess.run(
        [go, "build", "-trimpath", "-o", str(unfinished), "."],
        cwd=_SOURCE,
        env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise BenchmarkError(f"go build in benchmarks/load failed:\n{done.stderr.strip()}")
    unfinished.rename(program)
    return program


@contextlib.contextmanager
def fake_broker(folder: Path, *, response_bytes: int = 100) -> Iterator[tuple[str, Running]]:
    """Run the fake broker; the values are its host:port and its process."""
    listen = f"{LOOPBACK}:{free_port()}"
    command = [str(build()), "server", f"--listen={listen}", f"--response-bytes={response_bytes}"]
    with running("broker", command, folder=folder, ready=listen) as process:
        yield listen, process


class Load:
    """A run of the load generator; it prints lines of JSON."""

    def __init__(self, mode: str, flags: Mapping[str, object], *, niceness: int = 0) -> None:
        arguments = [f"--{name}={value}" for name, value in flags.items()]
        self._what = " ".join(["load", mode, *arguments])
        self._process = subprocess.Popen(
            ["nice", "-n", str(niceness), str(build()), mode, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> dict[str, Any]:
        """Wait for the next line."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        if line := self._process.stdout.readline():
            document: dict[str, Any] = json.loads(line)
            return document
        raise BenchmarkError(f"{self._what}: {self._process.stderr.read().strip()}")

    def result(self, seconds: float = 120.0) -> dict[str, Any]:
        """Wait for the end and return the last line."""
        try:
            output, problem = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise BenchmarkError(f"{self._what}: no end within {seconds:g} s") from error
        if self._process.returncode != 0:
            raise BenchmarkError(f"{self._what}: {problem.strip()}")
        result: dict[str, Any] = json.loads(output.splitlines()[-1])
        return result

    def stop(self) -> None:
        """End it now, if it has not ended."""
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def load(mode: str, flags: Mapping[str, object], *, niceness: int = 0) -> Iterator[Load]:
    """Run the load generator during the block, or until it ends by itself.

    ``load MODE -h`` lists the flags of a mode. ``niceness`` is 0 to 19, or negative; see nice(1).
    """
    started = Load(mode, flags, niceness=niceness)
    try:
        yield started
    finally:
        started.stop()


def time_requests(target: str, *, cpu_of: Sequence[int], **flags: object) -> Timing:
    """Time requests against ``target`` (host:port), and the CPU of some processes."""
    watched = ",".join(map(str, cpu_of))
    with load("client", {"target": target, "cpu-of": watched, **flags}) as run:
        return Timing(**run.result())


def push_flags(target: str, payload: Path, cpu_of: Sequence[int], **flags: object) -> dict[str, object]:
    """Return the flags of pushes of a file, compressed with zstd, to ``target`` (host:port)."""
    watched = ",".join(map(str, cpu_of))
    return {"target": target, "payload": payload, "codec": "zstd", "cpu-of": watched, **flags}


def time_pushes(target: str, payload: Path, cpu_of: Sequence[int], **flags: object) -> Timing:
    """Time pairs of a get and a push; each connection pushes once in its interval of 100 ms."""
    with load("push", push_flags(target, payload, cpu_of, **flags)) as run:
        return Timing(**run.result())
