"""Measures pass-through: the sidecar beside HAProxy in TCP mode and a direct connection.

Owns the shapes of traffic and the goals of pass-through. The relays are measured in turns, round
after round, and compared within a round, since a shared machine changes its speed from one minute
to the next.

There are two placements. On one core (client, relay and broker together) CPU time repeats within a
few percent, so CPU is judged there. Placed freely by the scheduler is what a user sees, so
throughput and latency are judged there; but waking an idle core makes the same request cost up to
twice the CPU, as chance has it, and two runs of one and the same relay differ by 5 to 10 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from benchmarks.figures import Figure, Results, table
from benchmarks.load_generator import LoadError, Timing, time_requests
from benchmarks.relays import Relay

KIB = 1024
MIB = 1024 * KIB
SMALL_ANSWER = 100
THROUGHPUT_GOAL = 0.9
TLS_CPU_GOAL = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of traffic.

    Attributes:
        name: its row in the tables.
        frame_bytes: size of a request frame, with its length.
        response_bytes: size of a response frame, with its length.
        in_flight: requests in flight on each connection.
        connections: connections at the same time.
        requests: how many are timed in one round.
        jitter: request sizes vary by 10 % each way.
        cpu_goal: most CPU time, as a multiple of HAProxy's; ``None`` where nothing was promised.
        throughput_goal: least throughput, likewise.
    """

    name: str
    frame_bytes: int
    response_bytes: int
    requests: int
    in_flight: int = 1
    connections: int = 1
    jitter: bool = False
    cpu_goal: float | None = None
    throughput_goal: float | None = THROUGHPUT_GOAL


SHAPES = (
    Shape(
        name="1 kB, one at a time",
        frame_bytes=KIB,
        response_bytes=SMALL_ANSWER,
        requests=4_000,
        cpu_goal=1.0,
    ),
    Shape(
        name="1 kB, 20 in flight",
        frame_bytes=KIB,
        response_bytes=SMALL_ANSWER,
        in_flight=20,
        requests=50_000,
        cpu_goal=1.3,
    ),
    Shape(
        name="1 kB, 20 in flight, sizes vary",
        frame_bytes=KIB,
        response_bytes=SMALL_ANSWER,
        in_flight=20,
        requests=50_000,
        jitter=True,
        cpu_goal=1.3,
    ),
    Shape(
        name="64 kB requests", frame_bytes=64 * KIB, response_bytes=SMALL_ANSWER, requests=2_000, cpu_goal=1.0
    ),
    Shape(
        name="64 kB responses",
        frame_bytes=SMALL_ANSWER,
        response_bytes=64 * KIB,
        requests=2_000,
        cpu_goal=1.0,
    ),
    Shape(name="1 MB requests", frame_bytes=MIB, response_bytes=SMALL_ANSWER, requests=400, cpu_goal=1.0),
    Shape(name="1 MB responses", frame_bytes=SMALL_ANSWER, response_bytes=MIB, requests=400, cpu_goal=1.0),
    Shape(
        name="1 kB, one at a time, 16 connections",
        frame_bytes=KIB,
        response_bytes=SMALL_ANSWER,
        connections=16,
        requests=12_000,
    ),
)

#: What is tried over TLS too. The goal is this project's own: HAProxy is C around the same OpenSSL.
TLS_SHAPES = tuple(
    replace(shape, name=f"TLS, {shape.name}", cpu_goal=TLS_CPU_GOAL, throughput_goal=None)
    for shape in SHAPES
    if shape.connections == 1 and not shape.jitter
)

ONE_CORE = "one core"
FREE = "free"

Timings = Mapping[str, Mapping[str, Sequence[Timing]]]
"""Shape's name, relay's name, one timing for each round."""


def measure(
    relays: Sequence[Relay],
    *,
    shapes: Sequence[Shape] = SHAPES,
    placement: str,
    rounds: int,
    only: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> Timings:
    """Time every shape through every relay, in turns.

    Args:
        relays: running, all in front of the same load server; one named ``direct`` among them.
        shapes: what to time.
        placement: where the processes were put, for the progress.
        rounds: how many times.
        only: shapes by name, or a part of it; empty for all.
        say: takes a line of progress.

    Raises:
        LoadError: a relay lost, changed or mixed up an answer, or two agreed on different ciphers.
    """
    wanted = [shape for shape in shapes if not only or any(part in shape.name for part in only)]
    timings: dict[str, dict[str, list[Timing]]] = {
        shape.name: {relay.name: [] for relay in relays} for shape in wanted
    }
    for round_number in range(rounds):
        say(f"pass-through, {placement}: round {round_number + 1} of {rounds}")
        for shape in wanted:
            # Who begins changes, so that nobody always runs on a cache that another one warmed.
            first = round_number % len(relays)
            for relay in [*relays[first:], *relays[:first]]:
                timings[shape.name][relay.name].append(_once(shape, relay))
    if len(of := ciphers(timings)) > 1:
        raise LoadError(f"not to be compared: {', '.join(of)}")
    return timings


def ciphers(timings: Timings) -> list[str]:
    """Return the TLS versions and ciphers that relays and clients agreed on; none without TLS."""
    every = (timing.tls for by_relay in timings.values() for of in by_relay.values() for timing in of)
    return sorted({tls for tls in every if tls})


def _once(shape: Shape, relay: Relay) -> Timing:
    return time_requests(
        relay.target,
        frame_bytes=shape.frame_bytes,
        response_bytes=shape.response_bytes,
        in_flight=shape.in_flight,
        connections=shape.connections,
        requests=shape.requests,
        warmup=shape.requests // 5,
        jitter=shape.jitter,
        cpu_of=relay.process.pids() if relay.process else [],
        ca=relay.ca,
    )


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


def middle_half(values: Sequence[float]) -> float:
    """Return the mean of ``values`` without the lowest and the highest quarter of them."""
    dropped = len(values) // 4
    return statistics.fmean(sorted(values)[dropped : len(values) - dropped])


def cpu_us(timing: Timing) -> float:
    """Return a relay's CPU time by request, in microseconds."""
    return timing.cpu_seconds / timing.requests * 1e6


def cpu_seconds_by_gb(timing: Timing) -> float:
    """Return a relay's CPU seconds for each GB (10^9 bytes, both directions) that it moved."""
    return timing.cpu_seconds / timing.bytes_moved * 1e9


def requests_by_second(timing: Timing) -> float:
    """Return the throughput in requests each second."""
    return timing.requests / timing.wall_seconds


def ratio(of: Sequence[Timing], to: Sequence[Timing], value: Callable[[Timing], float]) -> float:
    """Return the ratio of two relays' values in the same round, over the middle half of rounds.

    Of two equal relays this came nearest to 1 among the mean, the median and others that were
    tried.
    """
    return math.exp(middle_half([math.log(value(a) / value(b)) for a, b in zip(of, to, strict=True)]))


def added(of: Sequence[Timing], to: Sequence[Timing], value: Callable[[Timing], float]) -> float:
    """Return the median over rounds of the difference between two relays' values."""
    return _median([value(a) - value(b) for a, b in zip(of, to, strict=True)])


def figures(one_core: Timings, free: Timings, subject: str, *, why_missing: str = "") -> list[Figure]:
    """Return the goals of pass-through with what ``subject`` reached beside HAProxy.

    Args:
        one_core: from ``measure``, everything on one core; gives the CPU ratios.
        free: from ``measure``, placed by the scheduler; gives the throughput ratios.
        subject: the relay to judge, by name.
        why_missing: a note for when it was not measured.
    """
    found = []
    for shape in (*SHAPES, *TLS_SHAPES):
        if shape.name not in one_core:
            continue
        cpu = _beside_haproxy(one_core[shape.name], subject, cpu_us)
        throughput = _beside_haproxy(free[shape.name], subject, requests_by_second)
        also = _beside_haproxy(free[shape.name], subject, cpu_us)
        also_throughput = _beside_haproxy(one_core[shape.name], subject, requests_by_second)
        found.append(
            Figure(
                name=f"CPU / HAProxy's, {shape.name}",
                value=cpu,
                at_most=shape.cpu_goal,
                note=f"one core; placed freely {also:.2f}" if also else why_missing,
            )
        )
        found.append(
            Figure(
                name=f"throughput / HAProxy's, {shape.name}",
                value=throughput,
                at_least=shape.throughput_goal,
                note=f"placed freely; one core {also_throughput:.2f}" if also_throughput else why_missing,
            )
        )
    return found


def _beside_haproxy(
    by_relay: Mapping[str, Sequence[Timing]], subject: str, value: Callable[[Timing], float]
) -> float | None:
    mine, theirs = by_relay.get(subject), by_relay.get("haproxy")
    return ratio(mine, theirs, value) if mine and theirs else None


def describe(timings: Timings) -> str:
    """Return a table by shape and relay: throughput, CPU per request and per GB, latency."""
    rows = []
    for shape, by_relay in timings.items():
        for name, of in by_relay.items():
            straight = by_relay["direct"]
            relayed = name != "direct"
            spread = [cpu_us(t) for t in of]
            beside = by_relay.get("haproxy") if name != "haproxy" else None
            rows.append(
                (
                    shape,
                    name,
                    f"{_median([requests_by_second(t) for t in of]):,.0f}",
                    f"{_median(spread):.1f}" if relayed else "",
                    f"{min(spread):.1f}-{max(spread):.1f}" if relayed else "",
                    f"{ratio(of, beside, cpu_us):.2f}" if relayed and beside else "",
                    f"{_median([cpu_seconds_by_gb(t) for t in of]):.2f}" if relayed else "",
                    f"{_median([t.p50_us for t in of]):,.0f}",
                    f"{_median([t.p99_us for t in of]):,.0f}",
                    f"{added(of, straight, lambda t: t.p50_us):+,.0f}" if relayed else "",
                    f"{added(of, straight, lambda t: t.p99_us):+,.0f}" if relayed else "",
                )
            )
            shape = ""
    return table(
        (
            "shape",
            "relay",
            "requests/s",
            "CPU us/req",
            "from-to",
            "/ HAProxy's",
            "CPU s/GB",
            "p50 us",
            "p99 us",
            "p50 added",
            "p99 added",
        ),
        rows,
    )


def record(placement: str, timings: Timings, results: Results) -> None:
    """Keep every single timing of one placement in ``results``."""
    results.raw.setdefault(f"passthrough, {placement}", {}).update(
        {
            shape: {relay: [asdict(timing) for timing in of] for relay, of in by_relay.items()}
            for shape, by_relay in timings.items()
        }
    )
