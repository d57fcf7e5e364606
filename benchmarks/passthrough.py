"""Benchmark of pass-through: the sidecar beside HAProxy in TCP mode and a direct connection.

Relays take turns, round after round, and are compared within a round, because a shared machine
changes its speed from one minute to the next.

There are two placements. On one core (client, relay and broker together) CPU time repeats within a
few percent, so CPU is judged there. Placed freely by the scheduler is what a user sees, so
throughput and latency are judged there. Waking an idle core makes the same request cost up to twice
the CPU, so two runs of the same relay differ by 5 to 10 %.
"""

from __future__ import annotations

import contextlib
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from benchmarks.figures import Figure, Report, table
from benchmarks.load_generator import Timing, fake_broker, time_requests
from benchmarks.processes import BenchmarkError, on_cores
from benchmarks.relays import Relay, haproxy, in_front_of, sidecar
from tests.testbed.certificates import CertificateAuthority

_KIB = 1024
_MIB = 1024 * _KIB
_THROUGHPUT_GOAL = 0.9
_TLS_CPU_GOAL = 1.3
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """A shape of traffic. Sizes are whole frames with their length."""

    name: str
    #: Timed requests in a round.
    requests: int
    frame_bytes: int = _KIB
    response_bytes: int = 100
    #: On each connection.
    in_flight: int = 1
    connections: int = 1
    #: Request sizes vary by 10 % each way.
    jitter: bool = False
    #: The most CPU time, as a multiple of HAProxy's; None: no goal.
    cpu_goal: float | None = None
    #: The least throughput, likewise.
    throughput_goal: float | None = _THROUGHPUT_GOAL
    #: Fetch requests and responses, in place of Produce requests and any responses.
    fetch: bool = False


_SHAPES = (
    _Shape(name="1 kB, one at a time", requests=4_000, cpu_goal=1.0),
    _Shape(name="1 kB, 20 in flight", in_flight=20, requests=50_000, cpu_goal=1.3),
    _Shape(name="1 kB, 20 in flight, sizes vary", in_flight=20, requests=50_000, jitter=True, cpu_goal=1.3),
    _Shape(name="64 kB requests", frame_bytes=64 * _KIB, requests=2_000, cpu_goal=1.0),
    _Shape(name="64 kB responses", frame_bytes=100, response_bytes=64 * _KIB, requests=2_000, cpu_goal=1.0),
    _Shape(name="1 MB requests", frame_bytes=_MIB, requests=400, cpu_goal=1.0),
    _Shape(name="1 MB responses", frame_bytes=100, response_bytes=_MIB, requests=400, cpu_goal=1.0),
    _Shape(name="1 kB, one at a time, 16 connections", connections=16, requests=12_000),
)

#: The shapes over TLS. The goal allows for HAProxy being C around the same OpenSSL.
_TLS_SHAPES = tuple(
    replace(shape, name=f"TLS, {shape.name}", cpu_goal=_TLS_CPU_GOAL, throughput_goal=None)
    for shape in _SHAPES
    if shape.connections == 1 and not shape.jitter
)

#: The shapes for several relays: enough connections for each of them.
_SEVERAL_SHAPES = tuple(
    replace(shape, name=f"{shape.name}, 16 connections", connections=16, cpu_goal=None)
    for shape in _SHAPES
    if shape.connections == 1 and not shape.jitter
)

#: The shapes through a sidecar that replaces the addresses of brokers, which reads Fetch responses.
_REWRITE_SHAPES = tuple(
    _Shape(
        name=f"{name} fetches, one at a time",
        frame_bytes=100,
        response_bytes=size,
        requests=requests,
        cpu_goal=goal,
        throughput_goal=None,
        fetch=True,
    )
    for name, size, requests, goal in (
        ("1 kB", _KIB, 4_000, 1.6),
        ("64 kB", 64 * _KIB, 2_000, 1.3),
        ("1 MB", _MIB, 400, 1.3),
    )
)

_OTHER_VERSION: Final = "other version"

#: The CPU time of two equal relays differs by as much.
_SAME_CPU: Final = 1.1

#: By relay, one timing for each round.
_ByRelay = Mapping[str, Sequence[Timing]]


def run(folder: Path, *, quick: bool, tls: bool) -> Report:
    """Time every shape through every relay, in both placements."""
    rounds = 3 if quick else 7
    shapes = _TLS_SHAPES if tls else _SHAPES
    files = CertificateAuthority().issue().write(folder) if tls else None
    everywhere = os.sched_getaffinity(0)
    timings: dict[str, Mapping[str, _ByRelay]] = {}
    with fake_broker(folder) as (upstream, broker), in_front_of(upstream, folder, tls=files) as relays:
        processes = [broker, *(relay.process for relay in relays if relay.process)]
        for placement, cores in (("one core", {max(everywhere)}), ("free", everywhere)):
            with on_cores(cores, processes):
                timings[placement] = _measure(relays, shapes, placement, rounds)
    one_core, free = timings.values()
    agreed = {timing.tls for by_relay in one_core.values() for of in by_relay.values() for timing in of} - {
        ""
    }
    if len(agreed) > 1:
        raise BenchmarkError(f"relays cannot be compared, because their ciphers differ: {', '.join(agreed)}")
    return Report(
        title=", ".join(["Pass-through", *agreed]),
        text="\n\n".join(f"{placement}:\n{_describe(timings[placement])}" for placement in timings),
        raw={
            placement: {
                shape: {relay: [asdict(timing) for timing in of] for relay, of in by_relay.items()}
                for shape, by_relay in by_shape.items()
            }
            for placement, by_shape in timings.items()
        },
        figures=[
            figure for shape in shapes for figure in _figures(shape, one_core[shape.name], free[shape.name])
        ],
    )


def run_several(folder: Path, *, quick: bool) -> Report:
    """Compare two relays with two threads of HAProxy, and their cost with that of one relay."""
    everywhere = os.sched_getaffinity(0)
    timings: dict[int, Mapping[str, _ByRelay]] = {}
    with fake_broker(folder) as (upstream, broker):
        for cores in (1, 2):
            with in_front_of(upstream, folder, cores=cores) as relays:
                processes = [broker, *(relay.process for relay in relays if relay.process)]
                with on_cores(everywhere, processes):
                    rounds = 3 if quick else 7
                    timings[cores] = _measure(relays, _SEVERAL_SHAPES, f"{cores} relays", rounds)
    figures = []
    for shape in _SEVERAL_SHAPES:
        two = timings[2][shape.name]
        figures.append(
            Figure(
                name=f"throughput / HAProxy's, two relays, {shape.name}",
                value=_ratio(two["sidecar"], two["haproxy"], _requests_by_second),
                at_least=_THROUGHPUT_GOAL,
            )
        )
        cost = [statistics.median(map(_cpu_us, timings[cores][shape.name]["sidecar"])) for cores in (1, 2)]
        figures.append(
            Figure(
                name=f"CPU by request, two relays / one, {shape.name}",
                value=cost[1] / cost[0],
                at_most=1.1,
                note=f"{cost[1]:.1f} us, {cost[0]:.1f} us",
            )
        )
    return Report(
        title="Pass-through with two relays",
        text="\n\n".join(f"{cores} relays:\n{_describe(of)}" for cores, of in timings.items()),
        raw={
            str(cores): {
                shape: {relay: [asdict(timing) for timing in of] for relay, of in by_relay.items()}
                for shape, by_relay in by_shape.items()
            }
            for cores, by_shape in timings.items()
        },
        figures=figures,
    )


def run_rewrite(folder: Path, *, quick: bool, other_version: Path | None = None) -> Report:
    """Compare a sidecar that replaces addresses with HAProxy, and with one that keeps them.

    ``other_version`` is the ``kafka-telemetry`` of another version, which keeps addresses too.
    """
    everywhere = os.sched_getaffinity(0)
    with contextlib.ExitStack() as running:
        upstream, broker = running.enter_context(fake_broker(folder))
        relays = [running.enter_context(haproxy(upstream, folder))]
        for rewrites in (False, True):
            own = folder / f"rewrites-{rewrites}".lower()
            own.mkdir()
            relays.append(running.enter_context(sidecar(upstream, own, rewrites=rewrites)))
        if other_version:
            own = folder / "other-version"
            own.mkdir()
            other = running.enter_context(sidecar(upstream, own, program=other_version))
            relays.append(replace(other, name=_OTHER_VERSION))
        processes = [broker, *(relay.process for relay in relays if relay.process)]
        with on_cores({max(everywhere)}, processes):
            timings = _measure(relays, _REWRITE_SHAPES, "one core", 3 if quick else 7)
    figures = []
    for shape in _REWRITE_SHAPES:
        of = timings[shape.name]
        kept = _ratio(of["sidecar"], of["haproxy"], _cpu_us)
        figures.append(
            Figure(
                name=f"CPU / HAProxy's, addresses rewritten, {shape.name}",
                value=_ratio(of["rewriting"], of["haproxy"], _cpu_us),
                at_most=shape.cpu_goal,
                note=f"one core; addresses kept {kept:.2f}",
            )
        )
        if other_version:
            figures.append(
                Figure(
                    name=f"CPU / another version's, addresses kept, {shape.name}",
                    value=_ratio(of["sidecar"], of[_OTHER_VERSION], _cpu_us),
                    at_most=_SAME_CPU,
                    note="one core",
                )
            )
    return Report(
        title="Pass-through with addresses rewritten",
        text=_describe(timings),
        raw={
            shape: {relay: [asdict(timing) for timing in of] for relay, of in by_relay.items()}
            for shape, by_relay in timings.items()
        },
        figures=figures,
    )


def _measure(
    relays: Sequence[Relay], shapes: Sequence[_Shape], placement: str, rounds: int
) -> Mapping[str, _ByRelay]:
    timings: dict[str, dict[str, list[Timing]]] = {
        shape.name: {relay.name: [] for relay in relays} for shape in shapes
    }
    for number in range(rounds):
        print(f"pass-through, {placement}: round {number + 1} of {rounds}", flush=True)
        for shape in shapes:
            for relay in rotated(relays, number):
                timings[shape.name][relay.name].append(_time(shape, relay))
    return timings


def rotated(contenders: Sequence[_T], number: int) -> list[_T]:
    """Return the order of a round: each round another contender begins, with a cold cache."""
    first = number % len(contenders)
    return [*contenders[first:], *contenders[:first]]


def _time(shape: _Shape, relay: Relay) -> Timing:
    flags = {
        "frame-bytes": shape.frame_bytes,
        "response-bytes": shape.response_bytes,
        "in-flight": shape.in_flight,
        "connections": shape.connections,
        "requests": shape.requests,
        "warmup": shape.requests // 5,
        "jitter": str(shape.jitter).lower(),
        "fetch": str(shape.fetch).lower(),
        "ca": relay.ca or "",
    }
    return time_requests(relay.target, cpu_of=relay.process.pids() if relay.process else [], **flags)


def _cpu_us(timing: Timing) -> float:
    return sum(timing.cpu_seconds.values()) / timing.requests * 1e6


def _cpu_seconds_by_gb(timing: Timing) -> float:
    """CPU seconds for each GB (10^9 bytes, both directions)."""
    return sum(timing.cpu_seconds.values()) / timing.bytes_moved * 1e9


def _requests_by_second(timing: Timing) -> float:
    return timing.requests / timing.wall_seconds


def mean_ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the mean ratio of two contenders over the middle half of the rounds.

    For two equal relays it came nearest to 1 among the mean, the median and others.
    """
    logarithms = sorted(math.log(pair / other) for pair, other in pairs)
    dropped = len(logarithms) // 4
    return math.exp(statistics.fmean(logarithms[dropped : len(logarithms) - dropped]))


def _ratio(of: Sequence[Timing], to: Sequence[Timing], value: Callable[[Timing], float]) -> float:
    return mean_ratio([(value(item), value(other)) for item, other in zip(of, to, strict=True)])


def _figures(shape: _Shape, one_core: _ByRelay, free: _ByRelay) -> list[Figure]:
    def beside_haproxy(by_relay: _ByRelay, value: Callable[[Timing], float]) -> float:
        return _ratio(by_relay["sidecar"], by_relay["haproxy"], value)

    return [
        Figure(
            name=f"CPU / HAProxy's, {shape.name}",
            value=beside_haproxy(one_core, _cpu_us),
            at_most=shape.cpu_goal,
            note=f"one core; placed freely {beside_haproxy(free, _cpu_us):.2f}",
        ),
        Figure(
            name=f"throughput / HAProxy's, {shape.name}",
            value=beside_haproxy(free, _requests_by_second),
            at_least=shape.throughput_goal,
            note=f"placed freely; one core {beside_haproxy(one_core, _requests_by_second):.2f}",
        ),
    ]


def _describe(timings: Mapping[str, _ByRelay]) -> str:
    """Return a table by shape and relay: throughput, CPU per request and per GB, latency."""
    head = (
        "shape", "relay", "requests/s", "CPU us/req", "from-to", "/ HAProxy's", "CPU s/GB", "p50 us",
        "p99 us",
    )  # fmt: skip
    rows = []
    for shape, by_relay in timings.items():
        for name, of in by_relay.items():
            cpu = [_cpu_us(timing) for timing in of]
            relayed = (
                f"{statistics.median(cpu):.1f}",
                f"{min(cpu):.1f}-{max(cpu):.1f}",
                "" if name in {"direct", "haproxy"} else f"{_ratio(of, by_relay['haproxy'], _cpu_us):.2f}",
                f"{statistics.median(map(_cpu_seconds_by_gb, of)):.2f}",
            )
            rows.append(
                (
                    shape if name == next(iter(by_relay)) else "",
                    name,
                    f"{statistics.median(map(_requests_by_second, of)):,.0f}",
                    *(("",) * 4 if name == "direct" else relayed),
                    f"{statistics.median(timing.p50_us for timing in of):,.0f}",
                    f"{statistics.median(timing.p99_us for timing in of):,.0f}",
                )
            )
    return table(head, rows)
