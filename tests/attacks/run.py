"""Runs an attack beside an innocent client, and measures the client's waits and the target's costs.

The innocent client comes from 127.0.0.1, the attack from 127.0.0.2, because limits are by source
address. The client starts first and ends last. Its requests count from when they were due, so a
stall shows in all requests that it delays. Meanwhile a control client goes through a HAProxy that
nobody attacks: its longest wait is what the machine alone costs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks.captured import LIBRDKAFKA_PRODUCER
from benchmarks.load_generator import load
from benchmarks.processes import Running
from tests.attacks.attacks import ATTACKER, Attack, Port
from tests.attacks.innocent_bridge import InnocentBridge, pushing
from tests.attacks.measured import Longest, forget_longest, longest_in
from tests.attacks.targets import Target
from tests.testbed.cpu import cpu_seconds

INNOCENT: Final = "127.0.0.1"

#: The name of the series that replaces series over a budget (docs/meaning.md).
_OVERFLOW: Final = b"kafka.client.telemetry.overflow"

_RATE: Final = 200
_BEFORE_SECONDS: Final = 0.5
_AFTER_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 150.0
_RUNNING_SECONDS: Final = 0.005
_STOPPED_SECONDS: Final = 0.02
_QUEUES_EVERY_SECONDS: Final = 0.5
#: Measured processes run ahead of other work on the machine where that is allowed.
_PRIORITY: Final = -10


@dataclass(frozen=True, slots=True, kw_only=True)
class Innocent:
    """Measurements of the innocent client, as the load generator reports them."""

    #: Its small requests.
    requests: int
    #: The longest time from when a small request was due to its answer.
    longest_ms: float
    p99_ms: float
    #: The longest time of a telemetry request; None without one.
    telemetry_longest_ms: float | None
    #: Its requests by error code.
    gets: Mapping[int, int]
    pushes: Mapping[int, int]
    cpu_seconds: float
    #: Why one of its connections ended early; empty if none did.
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackReport:
    """Measurements of the attacker, as the load generator reports them."""

    seconds: float
    #: Connections that the target's system accepted.
    opened: int
    #: Attempts to connect that failed.
    failed: int
    #: Bytes that the target's system accepted.
    bytes_sent: int
    #: Its requests by error code.
    gets: Mapping[int, int]
    pushes: Mapping[int, int]
    #: Connections that the target ended, by reason.
    problems: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Pushes of one source address in the files of the spool_files plugin."""

    pushes: int
    #: The pushes that lost series to a budget.
    overflowed: int
    #: All pushes as OTLP, not compressed.
    otlp_bytes: int
    #: The metrics of all pushes but the overflow series.
    series: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Measurements of one attack on one target."""

    seconds: float
    innocent: Innocent
    #: Memory of the target before.
    before_bytes: int
    #: Peak memory of the target (VmHWM).
    peak_bytes: int
    #: The most bytes in its TCP sockets at once; None if they were not measured.
    buffered_bytes: int | None
    #: The target's CPU time.
    cpu_seconds: float
    #: None without traffic.
    attacker: AttackReport | None
    #: The control client's longest wait; None without one.
    control_ms: float | None
    #: The longest CPU times in the target's event loops; None for HAProxy.
    longest: Longest | None
    #: A bridge with the token; None where its port is not attacked.
    bridge: InnocentBridge | None = None


def run(
    attack: Attack,
    target: Target,
    control: Target | None,
    folder: Path,
    *,
    seconds: float,
    megabits: float,
    source: str = ATTACKER,
) -> Outcome:
    """Attack a target from an address, at a rate in Mbit/s, and return the measurements.

    ``control`` is a HAProxy that is not attacked. The folder gets payloads.
    """
    process = target.process
    process.forget_peak()
    if target.times is not None:
        forget_longest(process.pids())
    before = process.peak_bytes()
    queued: list[int] = []
    for item in (process, *([control.process] if control else [])):
        prefer(item)
    used = sum(map(cpu_seconds, process.pids()))
    with contextlib.ExitStack() as stack:
        flags = _innocent_flags(attack, target, folder, seconds)
        innocent = stack.enter_context(load("innocent", flags, niceness=_PRIORITY))
        innocent.line()
        control_client = None
        if control is not None:
            flags = {**_asking(control, seconds), "clients": 0}
            control_client = stack.enter_context(load("innocent", flags, niceness=_PRIORITY))
            control_client.line()
        time.sleep(_BEFORE_SECONDS)
        bridge = None
        if attack.port == "bridge" and target.times is not None:
            bridge = stack.enter_context(pushing(target.ports["bridge"]))
        report = None
        if attack.paused:
            _pause(process, seconds)
        if attack.kind:
            flags = {**_attack_flags(attack, target, folder, seconds, megabits), "from": source}
            attacker = stack.enter_context(load("attack", flags))
            if attack.buffered:
                queued += _queues(process, seconds)
            report = AttackReport(**_by_code(attacker.result(_PATIENCE_SECONDS)))
        served = Innocent(**_by_code(innocent.result(_PATIENCE_SECONDS)))
        quiet = control_client and control_client.result(_PATIENCE_SECONDS)
    return Outcome(
        seconds=seconds,
        innocent=served,
        before_bytes=before,
        peak_bytes=process.peak_bytes(),
        buffered_bytes=max(queued) if queued else None,
        cpu_seconds=sum(map(cpu_seconds, process.pids())) - used,
        attacker=report,
        control_ms=quiet["longest_ms"] if quiet else None,
        longest=None if target.times is None else longest_in(target.times),
        bridge=bridge,
    )


def _by_code(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report with numbers for the error codes, which JSON has as text."""
    counts = {name: {int(code): count for code, count in report[name].items()} for name in ("gets", "pushes")}
    return {**report, **counts}


def _innocent_flags(attack: Attack, target: Target, folder: Path, seconds: float) -> dict[str, object]:
    payload = folder / "innocent"
    if attack.innocent_payload is not None:
        payload.write_bytes(attack.innocent_payload.compressed)
    elif attack.innocent_codec == "zstd":
        payload.write_bytes(LIBRDKAFKA_PRODUCER.zstd())
    else:
        payload.write_bytes(LIBRDKAFKA_PRODUCER.inflated())
    return {
        **_asking(target, seconds, attack.innocent_port),
        "payload": payload,
        "codec": attack.innocent_codec,
        "clients": attack.innocent_clients,
        "late": _BEFORE_SECONDS + seconds / 2 if attack.innocent_late else 0,
    }


def prefer(process: Running, priority: int = _PRIORITY) -> None:
    """Renice all threads of a process and its descendants where the kernel allows it.

    A descendant that has a lower priority than the process keeps the difference.
    """
    own = os.getpriority(os.PRIO_PROCESS, process.pid)
    lower = {pid: os.getpriority(os.PRIO_PROCESS, pid) - own for pid in process.pids()}
    for pid, difference in lower.items():
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.setpriority(os.PRIO_PROCESS, int(task.name), priority + difference)
        _prefer_session(pid, priority)


@contextlib.contextmanager
def preferred_session() -> Iterator[None]:
    """Run this process's session, clients and attackers included, at ``_PRIORITY``."""
    _prefer_session(os.getpid(), _PRIORITY)
    try:
        yield
    finally:
        _prefer_session(os.getpid(), 0)


def _prefer_session(pid: int, priority: int) -> None:
    # With autogroups, a process's priority counts within its session only; see sched(7).
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(priority))


def stored(spool: Path) -> dict[str, Stored]:
    """Return the pushes that a stopped receiver left in ``spool``, by source address."""
    columns: dict[str, list[bytes]] = {}
    for file in spool.glob("date=*/hour=*/*.parquet"):
        rows = pq.read_table(file, columns=["client_source_address", "otlp"], partitioning=None)
        for address, otlp in zip(rows[0].to_pylist(), rows[1].to_pylist(), strict=True):
            columns.setdefault(address, []).append(otlp)
    return {
        address: Stored(
            pushes=len(pushes),
            overflowed=sum(_OVERFLOW in push for push in pushes),
            otlp_bytes=sum(map(len, pushes)),
            series=sum(map(_metrics, pushes)),
        )
        for address, pushes in columns.items()
    }


def _metrics(otlp: bytes) -> int:
    """Count the metrics of a push but the overflow series."""
    scopes = (
        scope
        for resource in MetricsData.FromString(otlp).resource_metrics
        for scope in resource.scope_metrics
    )
    return sum(metric.name != _OVERFLOW.decode() for scope in scopes for metric in scope.metrics)


def _asking(target: Target, seconds: float, port: Port = "plain") -> dict[str, object]:
    duration = _BEFORE_SECONDS + seconds + _AFTER_SECONDS
    return {"target": target.ports[port], "rate": _RATE, "seconds": duration}


def _attack_flags(
    attack: Attack, target: Target, folder: Path, seconds: float, megabits: float
) -> dict[str, object]:
    flags = {
        "kind": attack.kind,
        "target": target.ports[attack.port],
        "connections": attack.connections,
        "seconds": seconds,
        "megabits": megabits,
        **attack.flags,
    }
    if attack.payload is not None:
        file = folder / "hostile"
        file.write_bytes(attack.payload.compressed)
        flags |= {"payload": file, "codec": attack.payload.codec}
    return flags


def _queues(process: Running, seconds: float) -> Iterator[int]:
    """Yield the bytes in a process's TCP sockets for some seconds; see tcp(7)."""
    until = time.monotonic() + seconds - _QUEUES_EVERY_SECONDS
    while time.monotonic() < until:
        time.sleep(_QUEUES_EVERY_SECONDS)
        sockets = set()
        for pid in process.pids():
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):
                    sockets.add(str(descriptor.readlink()))
        total = 0
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if f"socket:[{fields[9]}]" in sockets:
                sent, _, received = fields[4].partition(":")
                total += int(sent, 16) + int(received, 16)
        yield total


def _pause(process: Running, seconds: float) -> None:
    """Let a process run in short slices only for some seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for number, slice_seconds in ((signal.SIGSTOP, _STOPPED_SECONDS), (signal.SIGCONT, _RUNNING_SECONDS)):
            for pid in process.pids():
                os.kill(pid, number)
            time.sleep(slice_seconds)


def _innocent(seen: Mapping[str, Any]) -> Innocent:
    requests = seen["requests"]["latency_us"]
    telemetry = seen["telemetry"]["latency_us"]
    return Innocent(
        requests=seen["requests"]["requests"],
        longest_ms=requests["max"] / 1e3,
        p99_ms=requests["p99"] / 1e3,
        telemetry_longest_ms=telemetry["max"] / 1e3 if telemetry else None,
        gets={int(code): count for code, count in seen["gets_by_error_code"].items()},
        pushes={int(code): count for code, count in seen["pushes_by_error_code"].items()},
        cpu_seconds=seen["cpu_seconds"]["total"],
        problem=seen["problem"],
    )
