"""Measures a get and a push on the wire, beside a real broker with a telemetry plugin.

Owns the contenders, the situations and the goals. Contenders are a broker with a telemetry plugin
that counts and exports nothing; the sidecar without plugins in front of a broker without one; and
the sidecar that exports to a real collector. All are up during the whole run and take their turns
round after round.

The sidecar's own figure is what it adds. What its broker spends meanwhile is a column of its own:
it answers a marker for each request of a connection that has others in flight. The clients'
connections here have none, which is the sidecar's best case.

There are three situations. Saturated on one core (clients, sidecar and broker together) CPU repeats
best, and is judged. Saturated and placed freely shows how many pushes can be handled. At a tenth of
that rate each request wakes a sleeping process, which costs every contender more.
"""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from benchmarks import relays
from benchmarks.captured import JAVA_PRODUCER, LIBRDKAFKA_PRODUCER, Captured
from benchmarks.figures import Figure, Results, table
from benchmarks.load_generator import PushTiming, time_pushes
from benchmarks.passthrough import middle_half
from benchmarks.processes import Running, on_cores
from tests.testbed import jvm
from tests.testbed.broker import KafkaBroker
from tests.testbed.collector import Collector
from tests.testbed.cpu import cpu_seconds

SIDECAR = "sidecar"
EXPORTING = "sidecar, otlp"
BROKER = "broker, no-op plugin"

#: Microseconds of CPU by pair.
GOALS: Mapping[Captured, float] = {JAVA_PRODUCER: 350.0, LIBRDKAFKA_PRODUCER: 250.0}

_INTERVAL_MS = 100
_WARM_UP_PAIRS = 20_000
_WARM_UP_STEP = 2_000
_IDLE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """How hard, and where.

    Attributes:
        name: its place in the tables.
        one_core: whether everything shares one core.
        connections: each pushes at most ten times a second.
        pairs: how many are timed in one round.
    """

    name: str
    one_core: bool
    connections: int
    pairs: int


ONE_CORE = Situation(name="saturated, one core", one_core=True, connections=1_000, pairs=3_000)
FREE = Situation(name="saturated, free", one_core=False, connections=1_000, pairs=4_000)
MODERATE = Situation(name="1,000 pairs/s, free", one_core=False, connections=100, pairs=1_500)
SITUATIONS = (ONE_CORE, FREE, MODERATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Somebody who answers both requests.

    Attributes:
        name: its column in the tables.
        target: host:port.
        process: whose CPU is its own.
        upstream: the broker behind it; ``None`` where it is the broker.
        rest: host:port of the REST API; empty for a broker.
    """

    name: str
    target: str
    process: Running
    upstream: Running | None = None
    rest: str = ""

    def processes(self) -> list[Running]:
        """Return all whose CPU is read."""
        return [self.process, *([self.upstream] if self.upstream else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One contender in one round.

    Attributes:
        cpu_us: CPU by pair of its own process, in microseconds.
        upstream_us: CPU by pair of the broker behind it, its idle work included; 0 without one.
        pairs_by_second: throughput.
        p50_us: median time of a pair.
        p99_us: the same, 99th percentile.
    """

    cpu_us: float
    upstream_us: float
    pairs_by_second: float
    p50_us: float
    p99_us: float


@dataclass(slots=True, kw_only=True)
class Pushes:
    """All that was seen.

    Attributes:
        rounds: by situation, client and contender.
        warming: each contender's CPU by pair over its first pairs, in microseconds, by pairs done.
            Every step is 500 new connections with four pairs each, new client instances included:
            another situation than the three, to be compared among contenders only.
        idle_percent: CPU of each process while nobody asked for anything, in percent of a core.
        dropped: pushes that the exporting sidecar could not export, from its metrics.
    """

    rounds: dict[str, dict[str, dict[str, list[Round]]]]
    warming: dict[str, dict[int, float]]
    idle_percent: dict[str, float]
    dropped: int


def measure(folder: Path, *, rounds: int, quick: bool = False, say: Callable[[str], None] = print) -> Pushes:
    """Start the contenders, warm them up and measure them in turns.

    Args:
        folder: for payloads, configurations and logs.
        rounds: how many times.
        quick: warm the brokers up less: their figures are then too high.
        say: takes a line of progress.

    Raises:
        LoadError: a push was not accepted.
        RelayMissingError: the sidecar is not installed.
        ProcessError, NotSetUpError, StartError: something can't be started.
    """
    files = {payload: folder / f"{payload.file}.zst" for payload in GOALS}
    for payload, file in files.items():
        file.write_bytes(payload.zstd())
    say("pushes: starting two brokers, a collector and two sidecars")
    with _contenders(folder) as contenders:
        warming = _warm_up(contenders, files[JAVA_PRODUCER], pairs=_WARM_UP_PAIRS // (4 if quick else 1))
        idle_percent = _idle_percent(contenders)
        seen: dict[str, dict[str, dict[str, list[Round]]]] = {
            situation.name: {payload.client: {c.name: [] for c in contenders} for payload in files}
            for situation in SITUATIONS
        }
        everywhere = os.sched_getaffinity(0)
        for situation in SITUATIONS:
            cores = {max(everywhere)} if situation.one_core else everywhere
            with on_cores(cores, [process for c in contenders for process in c.processes()]):
                for number in range(rounds):
                    say(f"pushes, {situation.name}: round {number + 1} of {rounds}")
                    first = number % len(contenders)
                    for payload, file in files.items():
                        for contender in [*contenders[first:], *contenders[:first]]:
                            timing = _time(contender, file, situation)
                            seen[situation.name][payload.client][contender.name].append(
                                _round(contender, timing)
                            )
        dropped = sum(_dropped(contender.rest) for contender in contenders if contender.rest)
    return Pushes(rounds=seen, warming=warming, idle_percent=idle_percent, dropped=dropped)


@contextlib.contextmanager
def _contenders(folder: Path) -> Iterator[list[Contender]]:
    """Run all of them; each asks for every metric ten times a second."""
    with contextlib.ExitStack() as stack:
        quiet = {"testbed.telemetry.log": "false"}
        taking = stack.enter_context(KafkaBroker(telemetry_plugin=True, jvm_flags=jvm.WARM, properties=quiet))
        plain = stack.enter_context(KafkaBroker(jvm_flags=jvm.WARM))
        collector = stack.enter_context(Collector())
        taking.alter_client_metrics("bench", ["*"], _INTERVAL_MS)
        upstream = _running("broker behind", plain)
        contenders: list[Contender] = []
        otlp = f'[{{type: otlp, endpoint: "{collector.grpc_endpoint}", protocol: grpc}}]'
        for name, plugins in ((SIDECAR, "[]"), (EXPORTING, otlp)):
            own = folder / f"pushes-{len(contenders)}"
            own.mkdir()
            relay = stack.enter_context(relays.sidecar(plain.bootstrap, own, plugins=plugins))
            assert relay.process is not None
            body = {"metrics": ["*"], "interval_ms": _INTERVAL_MS}
            url = f"http://{relay.rest}/v1/subscriptions/bench"
            httpx.put(url, json=body, trust_env=False).raise_for_status()
            contenders.append(
                Contender(
                    name=name,
                    target=relay.target,
                    process=relay.process,
                    upstream=upstream,
                    rest=relay.rest,
                )
            )
        contenders.append(Contender(name=BROKER, target=taking.bootstrap, process=_running(BROKER, taking)))
        yield contenders


def _running(name: str, broker: KafkaBroker) -> Running:
    return Running(name=name, pid=broker.pid, log=broker.data.parent / "broker.log")


def _warm_up(contenders: Sequence[Contender], payload: Path, *, pairs: int) -> dict[str, dict[int, float]]:
    """Let the Java processes compile what is hot; return what pairs cost on the way."""
    warming: dict[str, dict[int, float]] = {contender.name: {} for contender in contenders}
    for contender in contenders:
        for done in range(0, pairs if contender.name != EXPORTING else _WARM_UP_STEP, _WARM_UP_STEP):
            timing = time_pushes(
                contender.target,
                payload=payload,
                codec="zstd",
                connections=500,
                pairs=_WARM_UP_STEP,
                warmup=0,
                cpu_of=[contender.process.pid],
            )
            warming[contender.name][done + _WARM_UP_STEP] = _round(contender, timing).cpu_us
    return warming


def _idle_percent(contenders: Sequence[Contender]) -> dict[str, float]:
    processes = {process.name: process.pid for c in contenders for process in c.processes()}
    before = {name: cpu_seconds(pid) for name, pid in processes.items()}
    time.sleep(_IDLE_SECONDS)
    return {name: (cpu_seconds(pid) - before[name]) / _IDLE_SECONDS * 100 for name, pid in processes.items()}


def _time(contender: Contender, payload: Path, situation: Situation) -> PushTiming:
    return time_pushes(
        contender.target,
        payload=payload,
        codec="zstd",
        connections=situation.connections,
        pairs=situation.pairs,
        warmup=situation.connections + situation.pairs // 5,
        cpu_of=[process.pid for process in contender.processes()],
    )


def _round(contender: Contender, timing: PushTiming) -> Round:
    def by_pair(process: Running | None) -> float:
        return timing.cpu_seconds.get(process.pid, 0.0) / timing.pairs * 1e6 if process else 0.0

    return Round(
        cpu_us=by_pair(contender.process),
        upstream_us=by_pair(contender.upstream),
        pairs_by_second=timing.pairs / timing.wall_seconds,
        p50_us=timing.p50_us,
        p99_us=timing.p99_us,
    )


def _dropped(rest: str) -> int:
    """Read from the sidecar's metrics how many pushes no plugin took."""
    text = httpx.get(f"http://{rest}/metrics", trust_env=False).raise_for_status().text
    lines = [line for line in text.splitlines() if line.startswith("kafka_telemetry_plugin_dropped")]
    return int(sum(float(line.rpartition(" ")[2]) for line in lines))


def _median(rounds: Sequence[Round], value: Callable[[Round], float]) -> float:
    return statistics.median(value(seen) for seen in rounds)


def figures(pushes: Pushes) -> list[Figure]:
    """Return the goals with what was reached."""
    found = []
    for payload, goal in GOALS.items():
        judged, free, moderate = (pushes.rounds[situation.name][payload.client] for situation in SITUATIONS)
        found.append(
            Figure(
                name=f"CPU by get and push, {payload.client}",
                value=_median(judged[SIDECAR], _cpu),
                unit="us",
                at_most=goal,
                note=f"{ONE_CORE.name}; free {_median(free[SIDECAR], _cpu):.0f}, "
                f"at 1,000 pairs/s {_median(moderate[SIDECAR], _cpu):.0f}",
            )
        )
        found.append(
            Figure(
                name=f"CPU by get and push / broker's, {payload.client}",
                value=_beside_broker(judged),
                at_most=1.0,
                note=f"broker {_median(judged[BROKER], _cpu):.0f} us; free {_beside_broker(free):.2f}, "
                f"at 1,000 pairs/s {_beside_broker(moderate):.2f}",
            )
        )
    return found


def _cpu(seen: Round) -> float:
    return seen.cpu_us


def _beside_broker(by_contender: Mapping[str, Sequence[Round]]) -> float:
    pairs = zip(by_contender[SIDECAR], by_contender[BROKER], strict=True)
    return math.exp(middle_half([math.log(mine.cpu_us / theirs.cpu_us) for mine, theirs in pairs]))


def describe(pushes: Pushes) -> str:
    """Return a table by situation, client and contender, with notes."""
    rows = []
    for situation, by_client in pushes.rounds.items():
        shown = situation
        for client, by_contender in by_client.items():
            for name, rounds in by_contender.items():
                upstream = _median(rounds, lambda seen: seen.upstream_us)
                spread = [seen.cpu_us for seen in rounds]
                rows.append(
                    (
                        shown,
                        client,
                        name,
                        f"{_median(rounds, _cpu):.0f}",
                        f"{min(spread):.0f}-{max(spread):.0f}",
                        f"{upstream:.0f}" if upstream else "",
                        f"{_median(rounds, lambda seen: seen.pairs_by_second):,.0f}",
                        f"{_median(rounds, lambda seen: seen.p50_us):,.0f}",
                        f"{_median(rounds, lambda seen: seen.p99_us):,.0f}",
                    )
                )
                shown = client = ""
    head = (
        "situation",
        "push of",
        "answered by",
        "CPU us/pair",
        "from-to",
        "its broker us/pair",
        "pairs/s",
        "p50 us",
        "p99 us",
    )
    warming = "\n".join(
        f"  {name}: {', '.join(f'{pairs:,}: {us:.0f}' for pairs, us in steps.items())}"
        for name, steps in pushes.warming.items()
    )
    idle = ", ".join(f"{name} {percent:.1f} %" for name, percent in pushes.idle_percent.items())
    return "\n".join(
        (
            table(head, rows),
            f"CPU us by pair (Java) over the first pairs, free, in steps of 500 new connections:\n{warming}",
            f"CPU of a core without any request: {idle}",
            f"Pushes that the exporting sidecar dropped: {pushes.dropped}",
        )
    )


def record(pushes: Pushes, results: Results) -> None:
    """Keep every round in ``results``."""
    results.raw["pushes"] = asdict(pushes)
