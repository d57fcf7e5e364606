"""What passing a request through costs: the sidecar beside HAProxy in TCP mode and a direct connection.

Owns the shapes of traffic and the goals of pass-through. The relays are measured in turns, round after round,
and compared within a round, since a shared machine changes its speed from one minute to the next.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from benchmarks.figures import Figure, Results, table
from benchmarks.load_generator import Timing, time_requests
from benchmarks.relays import Relay

KIB = 1024
MIB = 1024 * KIB
SMALL_ANSWER = 100
THROUGHPUT_GOAL = 0.9


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
    """

    name: str
    frame_bytes: int
    response_bytes: int
    requests: int
    in_flight: int = 1
    connections: int = 1
    jitter: bool = False
    cpu_goal: float | None = None


SHAPES = (
    Shape(
        name="1 kB, one at a time",
        frame_bytes=KIB,
        response_bytes=SMALL_ANSWER,
        requests=12_000,
        cpu_goal=1.0,
    ),
    Shape(
        name="1 kB, 20 in flight",
        frame_bytes=KIB,
        response_bytes=SMALL_ANSWER,
        in_flight=20,
        requests=150_000,
        cpu_goal=1.3,
    ),
    Shape(
        name="1 kB, 20 in flight, sizes vary",
        frame_bytes=KIB,
        response_bytes=SMALL_ANSWER,
        in_flight=20,
        requests=150_000,
        jitter=True,
        cpu_goal=1.3,
    ),
    Shape(
        name="64 kB requests", frame_bytes=64 * KIB, response_bytes=SMALL_ANSWER, requests=6_000, cpu_goal=1.0
    ),
    Shape(
        name="64 kB responses",
        frame_bytes=SMALL_ANSWER,
        response_bytes=64 * KIB,
        requests=6_000,
        cpu_goal=1.0,
    ),
    Shape(name="1 MB requests", frame_bytes=MIB, response_bytes=SMALL_ANSWER, requests=1_200, cpu_goal=1.0),
    Shape(name="1 MB responses", frame_bytes=SMALL_ANSWER, response_bytes=MIB, requests=1_200, cpu_goal=1.0),
    Shape(
        name="1 kB, one at a time, 16 connections",
        frame_bytes=KIB,
        response_bytes=SMALL_ANSWER,
        connections=16,
        requests=40_000,
    ),
)

Timings = Mapping[str, Mapping[str, Sequence[Timing]]]
"""Shape's name, relay's name, one timing for each round."""


def measure(
    relays: Sequence[Relay],
    *,
    rounds: int,
    scale: float = 1.0,
    only: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> Timings:
    """Time every shape through every relay, in turns.

    Args:
        relays: running, all in front of the same load server; one named ``direct`` among them.
        rounds: how many times.
        scale: multiplies each shape's number of requests.
        only: shapes by name, or a part of it; empty for all.
        say: takes a line of progress.

    Raises:
        LoadError: a relay lost, changed or mixed up an answer.
    """
    shapes = [shape for shape in SHAPES if not only or any(part in shape.name for part in only)]
    timings: dict[str, dict[str, list[Timing]]] = {
        shape.name: {relay.name: [] for relay in relays} for shape in shapes
    }
    for round_number in range(rounds):
        say(f"pass-through, round {round_number + 1} of {rounds}")
        for shape in shapes:
            # Who begins changes, so that nobody always runs on a cache that another one warmed.
            first = round_number % len(relays)
            for relay in [*relays[first:], *relays[:first]]:
                timings[shape.name][relay.name].append(_once(shape, relay, scale))
    return timings


def _once(shape: Shape, relay: Relay, scale: float) -> Timing:
    requests = max(shape.connections, int(shape.requests * scale))
    return time_requests(
        relay.target,
        frame_bytes=shape.frame_bytes,
        response_bytes=shape.response_bytes,
        in_flight=shape.in_flight,
        connections=shape.connections,
        requests=requests,
        warmup=requests // 5,
        jitter=shape.jitter,
        cpu_of=relay.process.pids() if relay.process else [],
    )


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


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
    """Return the median over the rounds of a value of one relay divided by another's in the same round."""
    return _median([value(a) / value(b) for a, b in zip(of, to, strict=True)])


def added(of: Sequence[Timing], to: Sequence[Timing], value: Callable[[Timing], float]) -> float:
    """Return the median over the rounds of the difference of a value between two relays in the same round."""
    return _median([value(a) - value(b) for a, b in zip(of, to, strict=True)])


def figures(timings: Timings, subject: str, *, why_missing: str = "") -> list[Figure]:
    """Return the goals of pass-through with what ``subject`` reached beside HAProxy.

    Args:
        timings: from ``measure``.
        subject: the relay to judge, by name.
        why_missing: a note for when it, or HAProxy, was not measured.
    """
    found = []
    for shape in SHAPES:
        by_relay = timings.get(shape.name)
        if by_relay is None:
            continue
        mine, theirs = by_relay.get(subject), by_relay.get("haproxy")
        cpu = ratio(mine, theirs, cpu_us) if mine and theirs else None
        throughput = ratio(mine, theirs, requests_by_second) if mine and theirs else None
        note = f"{_median([cpu_us(t) for t in mine]):.1f} us by request" if mine else why_missing
        found.append(
            Figure(name=f"CPU / HAProxy's, {shape.name}", value=cpu, at_most=shape.cpu_goal, note=note)
        )
        found.append(
            Figure(
                name=f"throughput / HAProxy's, {shape.name}",
                value=throughput,
                at_least=THROUGHPUT_GOAL,
                note=f"{_median([requests_by_second(t) for t in mine]):,.0f} by second"
                if mine
                else why_missing,
            )
        )
    return found


def describe(timings: Timings) -> str:
    """Return a table by shape and relay: throughput, CPU by request and by GB, latency and what is added."""
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


def record(timings: Timings, results: Results) -> None:
    """Keep every single timing in ``results``."""
    results.raw["passthrough"] = {
        shape: {relay: [asdict(timing) for timing in of] for relay, of in by_relay.items()}
        for shape, by_relay in timings.items()
    }
