"""Runs an attack beside an innocent client and measures what the client and the target go through.

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

from benchmarks.background import AttackReport, attack_report, in_background
from benchmarks.captured import LIBRDKAFKA_PRODUCER
from benchmarks.processes import Running
from tests.attacks.attacks import Attack
from tests.attacks.targets import Target
from tests.testbed.cpu import cpu_seconds

__all__ = [
    "ATTACKER",
    "INNOCENT",
    "Innocent",
    "Outcome",
    "Stored",
    "prefer",
    "preferred_session",
    "run",
    "stored",
]

INNOCENT: Final = "127.0.0.1"
ATTACKER: Final = "127.0.0.2"

#: The name of the series that stands for those over a budget (docs/meaning.md).
_OVERFLOW: Final = b"kafka.client.telemetry.overflow"

_RATE: Final = 200
_BEFORE_SECONDS: Final = 0.5
_AFTER_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 150.0
_RUNNING_SECONDS: Final = 0.005
_STOPPED_SECONDS: Final = 0.02
_QUEUES_EVERY_SECONDS: Final = 0.5
#: Ahead of other work on the machine, where that is allowed: what is measured, not what attacks.
_PRIORITY: Final = -10


@dataclass(frozen=True, slots=True, kw_only=True)
class Innocent:
    """What the innocent client saw.

    Attributes:
        requests: Small requests that it sent.
        longest_ms: The longest time from when one was due to its answer.
        p99_ms: The 99th percentile.
        telemetry_longest_ms: The longest of its telemetry requests; None where none was answered.
        gets: Its GetTelemetrySubscriptions by error code.
        pushes: Its PushTelemetry by error code.
        cpu_seconds: Its own CPU time.
        problem: Why one of its connections ended; empty where none did.
    """

    requests: int
    longest_ms: float
    p99_ms: float
    telemetry_longest_ms: float | None
    gets: Mapping[int, int]
    pushes: Mapping[int, int]
    cpu_seconds: float
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the spool_files plugin holds of one source address.

    Attributes:
        pushes: Pushes.
        overflowed: Those of them that lost series to a budget.
        otlp_bytes: Bytes of all of them as OTLP, not compressed.
    """

    pushes: int
    overflowed: int
    otlp_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One attack on one target.

    Attributes:
        seconds: How long the attack was to last.
        innocent: What the innocent client saw.
        before_bytes: What the target held in RAM before.
        peak_bytes: The most that the target held in RAM at once (VmHWM).
        buffered_bytes: The most that waited in its TCP sockets at once; None where nobody looked.
        cpu_seconds: The target's CPU time during the attack.
        attacker: What the attacker saw; None where there is no traffic.
        control_ms: The control client's longest wait; None without one.
    """

    seconds: float
    innocent: Innocent
    before_bytes: int
    peak_bytes: int
    buffered_bytes: int | None
    cpu_seconds: float
    attacker: AttackReport | None
    control_ms: float | None


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
    """Attack ``target`` and return what happened.

    Args:
        attack: What to do.
        target: What to attack.
        control: A HAProxy that is not attacked; None: no control.
        folder: For payloads.
        seconds: How long the attack lasts.
        megabits: Rate of the attack in Mbit/s.
        source: The attack's address.

    Raises:
        LoadError: The attacker or the innocent client could not start or did not end.
    """
    process = target.process
    process.forget_peak()
    before = process.peak_bytes()
    queued: list[int] = []
    for one in (process, *([control.process] if control else [])):
        prefer(one)
    used = cpu_seconds(process.pid)
    with contextlib.ExitStack() as stack:
        arguments = _innocent_arguments(attack, target, folder, seconds)
        innocent = stack.enter_context(in_background("innocent", arguments, niceness=_PRIORITY))
        innocent.first_line()
        control_client = None
        if control is not None:
            arguments = [*_asking(control, seconds), "--clients=0"]
            control_client = stack.enter_context(in_background("innocent", arguments, niceness=_PRIORITY))
            control_client.first_line()
        time.sleep(_BEFORE_SECONDS)
        report = None
        if attack.paused:
            _pause(process, seconds)
        if attack.kind:
            arguments = [*_attack_arguments(attack, target, folder, seconds, megabits), f"--from={source}"]
            under_way = stack.enter_context(in_background("attack", arguments))
            if attack.buffered:
                queued += _queues(process, seconds)
            report = attack_report(under_way, _PATIENCE_SECONDS)
        seen = innocent.result(_PATIENCE_SECONDS)
        quiet = control_client and control_client.result(_PATIENCE_SECONDS)
    return Outcome(
        seconds=seconds,
        innocent=_innocent(seen),
        before_bytes=before,
        peak_bytes=process.peak_bytes(),
        buffered_bytes=max(queued) if queued else None,
        cpu_seconds=cpu_seconds(process.pid) - used,
        attacker=report,
        control_ms=quiet["requests"]["latency_us"]["max"] / 1e3 if quiet else None,
    )


def _innocent_arguments(attack: Attack, target: Target, folder: Path, seconds: float) -> list[str]:
    payload = folder / "innocent"
    if attack.innocent_payload is not None:
        payload.write_bytes(attack.innocent_payload.compressed)
    elif attack.innocent_codec == "zstd":
        payload.write_bytes(LIBRDKAFKA_PRODUCER.zstd())
    else:
        payload.write_bytes(LIBRDKAFKA_PRODUCER.inflated())
    return [
        *_asking(target, seconds),
        f"--payload={payload}",
        f"--codec={attack.innocent_codec}",
        f"--clients={attack.innocent_clients}",
        f"--late={_BEFORE_SECONDS + seconds / 2 if attack.innocent_late else 0}",
    ]


def prefer(process: Running, priority: int = _PRIORITY) -> None:
    """Renice all threads of a process and its descendants where the kernel allows it."""
    for pid in process.pids():
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.setpriority(os.PRIO_PROCESS, int(task.name), priority)
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
    """Return what a receiver that has stopped left in ``spool``, by source address."""
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
        )
        for address, pushes in columns.items()
    }


def _asking(target: Target, seconds: float) -> list[str]:
    return [
        f"--target={target.ports['plain']}",
        f"--rate={_RATE}",
        f"--seconds={_BEFORE_SECONDS + seconds + _AFTER_SECONDS}",
    ]


def _attack_arguments(
    attack: Attack, target: Target, folder: Path, seconds: float, megabits: float
) -> list[str]:
    arguments = [
        f"--kind={attack.kind}",
        f"--target={target.ports[attack.port]}",
        f"--connections={attack.connections}",
        f"--seconds={seconds}",
        f"--megabits={megabits}",
        *attack.arguments,
    ]
    if attack.payload is not None:
        file = folder / "hostile"
        file.write_bytes(attack.payload.compressed)
        arguments += [f"--payload={file}", f"--codec={attack.payload.codec}"]
    return arguments


def _queues(process: Running, seconds: float) -> Iterator[int]:
    """Yield for ``seconds`` how many bytes wait in a process's TCP sockets; see tcp(7)."""
    until = time.monotonic() + seconds - _QUEUES_EVERY_SECONDS
    while time.monotonic() < until:
        time.sleep(_QUEUES_EVERY_SECONDS)
        sockets = set()
        for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
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
    """Let a process run in slices only for ``seconds``."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for number, slice_seconds in ((signal.SIGSTOP, _STOPPED_SECONDS), (signal.SIGCONT, _RUNNING_SECONDS)):
            os.kill(process.pid, number)
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
