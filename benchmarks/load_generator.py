"""Builds and runs the load generator of ``benchmarks/load`` (Go): a fake broker and timing clients.

Owns where the program lives and what its JSON holds. It must not measure anything itself: Python
beside a proxy on two cores would be part of the figure.
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

from tests.testbed.cache import cache_folder

SOURCE = Path(__file__).parent / "load"
BUILD_SECONDS = 300
_DONE_SECONDS = 10.0


class LoadError(RuntimeError):
    """The load generator could not be built, or a run of it failed; the text says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What one run of the timing client saw.

    Attributes:
        requests: timed requests, without the warm-up.
        wall_seconds: from the first timed request to the last answer.
        cpu_seconds: CPU time that the watched processes had meanwhile; 0.0 when none was watched.
        user_seconds: the part of it in user mode, in ticks of 10 ms.
        bytes_moved: request and response bytes of the timed requests.
        p50_us: median time from a request's writing to its answer's arrival, in microseconds.
        p99_us: the same, 99th percentile.
        p999_us: the same, 99.9th percentile.
        tls: TLS version and cipher that were agreed on; empty without TLS.
    """

    requests: int
    wall_seconds: float
    cpu_seconds: float
    user_seconds: float
    bytes_moved: int
    p50_us: float
    p99_us: float
    p999_us: float
    tls: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTiming:
    """The result of one run of clients that get a subscription and push.

    Attributes:
        pairs: timed pairs, without the warm-up; every push of them was accepted.
        wall_seconds: from the first timed pair to the last answer.
        cpu_seconds: CPU time that each watched process had meanwhile, by process id.
        p50_us: median time from the get's writing to the push's answer, in microseconds.
        p99_us: the same, 99th percentile.
    """

    pairs: int
    wall_seconds: float
    cpu_seconds: Mapping[int, float]
    p50_us: float
    p99_us: float


def build() -> Path:
    """Return the load generator's program, compiled if these sources have not been compiled before.

    Raises:
        LoadError: Go is missing, or the sources don't compile.
    """
    sources = sorted(path for path in SOURCE.iterdir() if path.suffix in {".go", ".mod"})
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    program = cache_folder() / f"load-{digest.hexdigest()[:16]}"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise LoadError(
            "the load generator needs Go 1.21 or later on the PATH to be compiled; none was found"
        )
    unfinished = program.with_suffix(f".{os.getpid()}")
    done = subprocess.run(
        [go, "build", "-trimpath", "-o", str(unfinished), "."],
        cwd=SOURCE,
        env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise LoadError(f"go build in benchmarks/load failed:\n{done.stderr.strip()}")
    unfinished.rename(program)
    return program


def run(mode: str, arguments: Sequence[str], *, seconds: float = 120.0) -> dict[str, Any]:
    """Run the load generator to its end and return the last line that it printed.

    Args:
        mode: ``client``, ``idle`` or ``push``.
        arguments: its flags, as ``load MODE -h`` lists them.
        seconds: how long it may take.

    Raises:
        LoadError: it failed or took too long.
    """
    command = [str(build()), mode, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise LoadError(f"load {mode} {' '.join(arguments)}: no end within {seconds:g} s") from error
    if done.returncode != 0:
        raise LoadError(f"load {mode} {' '.join(arguments)}: {done.stderr.strip()}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def time_requests(
    target: str,
    *,
    frame_bytes: int,
    response_bytes: int,
    in_flight: int,
    connections: int,
    requests: int,
    warmup: int,
    jitter: bool,
    cpu_of: Sequence[int],
    ca: Path | None = None,
) -> Timing:
    """Time requests against ``target`` (host:port); sizes are whole frames with their length.

    With ``ca``, a PEM file with who signed the target's certificate, over TLS 1.3; handshakes are
    not timed.

    Raises:
        LoadError: a connection failed, or an answer was missing, out of order or of another size.
    """
    arguments = [
        f"--target={target}",
        f"--frame-bytes={frame_bytes}",
        f"--response-bytes={response_bytes}",
        f"--in-flight={in_flight}",
        f"--connections={connections}",
        f"--requests={requests}",
        f"--warmup={warmup}",
        f"--jitter={'true' if jitter else 'false'}",
        f"--cpu-of={','.join(map(str, cpu_of))}",
        *([f"--ca={ca}"] if ca else []),
    ]
    seen = run("client", arguments)
    return Timing(
        requests=seen["requests"],
        wall_seconds=seen["wall_seconds"],
        cpu_seconds=seen["cpu_seconds"]["total"],
        user_seconds=seen["cpu_seconds"]["user"],
        bytes_moved=seen["bytes_sent"] + seen["bytes_received"],
        p50_us=seen["latency_us"]["p50"],
        p99_us=seen["latency_us"]["p99"],
        p999_us=seen["latency_us"]["p99.9"],
        tls=seen["tls"],
    )


def time_pushes(
    target: str,
    *,
    payload: Path,
    codec: str,
    connections: int,
    pairs: int,
    warmup: int,
    cpu_of: Sequence[int],
) -> PushTiming:
    """Time pairs of a get and a push against ``target`` (host:port), whose push interval is 100 ms.

    Args:
        target: a broker or the sidecar.
        payload: file with the Metrics field's bytes, compressed already.
        codec: what they are compressed with.
        connections: each is a client instance of its own, which pushes once in an interval.
        pairs: how many are timed, over all connections.
        warmup: pairs before those.
        cpu_of: process ids to watch.

    Raises:
        LoadError: a connection failed, or a push was not accepted.
    """
    arguments = [
        f"--target={target}",
        f"--payload={payload}",
        f"--codec={codec}",
        f"--connections={connections}",
        f"--count={pairs}",
        f"--warmup={warmup}",
        f"--cpu-of={','.join(map(str, cpu_of))}",
    ]
    seen = run("push", arguments)
    if seen["pushes_by_error_code"] != {"0": pairs}:
        raise LoadError(f"{target} did not accept every push: {seen['pushes_by_error_code']} (by error code)")
    return PushTiming(
        pairs=seen["pairs"],
        wall_seconds=seen["wall_seconds"],
        cpu_seconds={int(pid): times["total"] for pid, times in seen["cpu_seconds_by_pid"].items()},
        p50_us=seen["pair_latency_us"]["p50"],
        p99_us=seen["pair_latency_us"]["p99"],
    )


@contextlib.contextmanager
def idle_connections(target: str, *, connections: int, seconds: float) -> Iterator[None]:
    """Hold connections to ``target`` (host:port), each of which had one ApiVersions answered.

    Args:
        target: where to connect to.
        connections: how many.
        seconds: how long they are held, and so how long the ``with`` block may take.

    Raises:
        LoadError: a connection failed, or was closed before its time.
    """
    command = [
        str(build()),
        "idle",
        f"--target={target}",
        f"--connections={connections}",
        f"--seconds={seconds}",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        connected = process.stdout.readline()
        if connected:
            yield
        rest, problem = process.communicate(timeout=seconds + _DONE_SECONDS)
    finally:
        process.kill()
        process.wait()
    if process.returncode != 0:
        raise LoadError(f"load idle --target {target}: {problem.strip()}")
    if closed := json.loads(rest)["closed"]:
        raise LoadError(f"{target} closed {closed} of {connections} idle connections")


@contextlib.contextmanager
def pushed_instances(
    target: str, *, payload: Path, connections: int, instances: int, cpu_of: int
) -> Iterator[float]:
    """Let new client instances push once each over a few connections, which then stay idle.

    Args:
        target: The sidecar, host:port.
        payload: File with the Metrics field's bytes, compressed with zstd.
        connections: How many push one after the other.
        instances: How many push.
        cpu_of: The process id to watch.

    Yields:
        CPU seconds of that process over all gets and pushes.

    Raises:
        LoadError: A connection failed, or a push was not accepted.
    """
    arguments = [
        f"--target={target}",
        f"--payload={payload}",
        f"--connections={connections}",
        f"--count={instances}",
        f"--cpu-of={cpu_of}",
    ]
    command = [str(build()), "push", "--codec=zstd", "--fresh", "--warmup=0", "--hold=3600", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline()
            if not line:
                raise LoadError(f"load push --target {target}: {process.stderr.read().strip()}")
            seen = json.loads(line)
            if seen["pushes_by_error_code"] != {"0": instances}:
                raise LoadError(f"{target} did not accept every push: {seen['pushes_by_error_code']}")
            yield seen["cpu_seconds_by_pid"][str(cpu_of)]["total"]
        finally:
            process.kill()
