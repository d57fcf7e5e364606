"""Benchmark of a get and a push on the wire, beside a real broker with a telemetry plugin.

The contenders are a broker with a telemetry plugin that counts and exports nothing; the sidecar
whose destination is away, in front of a broker without a plugin; and the sidecar that exports to a
real collector. All run all the time and take turns, round after round.

The sidecar's own figure is what it adds. What its broker spends meanwhile is a column of its own,
because the broker answers a marker for each request of a connection that has others in flight. The
connections here have none, which is the sidecar's best case.

There are three situations. Saturated on one core (clients, sidecar and broker together) CPU repeats
best, so it is judged there. Saturated and placed freely shows how many pushes can be handled. At a
tenth of that rate each request wakes a sleeping process, which costs every contender more.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import relays
from benchmarks.captured import JAVA_PRODUCER, LIBRDKAFKA_PRODUCER, Captured
from benchmarks.figures import Figure, Report, table
from benchmarks.load_generator import Timing, time_pushes
from benchmarks.passthrough import mean_ratio, rotated
from benchmarks.processes import Running, on_cores
from tests.testbed import jvm
from tests.testbed.broker import KafkaBroker
from tests.testbed.collector import Collector

_SIDECAR = "sidecar"
_EXPORTING = "sidecar, otlp"
_BROKER = "broker, no-op plugin"
_OTHER = "other version"

#: Microseconds of CPU by pair.
_GOALS: Mapping[Captured, float] = {JAVA_PRODUCER: 350.0, LIBRDKAFKA_PRODUCER: 250.0}

_INTERVAL_MS = 100
_WARM_UP_PAIRS = 20_000
_WARM_UP_STEP = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Situation:
    """How many connections push (each at most ten times a second), and where processes run."""

    name: str
    one_core: bool
    connections: int
    #: Timed in a round.
    pairs: int


_ONE_CORE = _Situation(name="saturated, one core", one_core=True, connections=150, pairs=3_000)
_SITUATIONS = (
    _ONE_CORE,
    _Situation(name="saturated, free", one_core=False, connections=200, pairs=4_000),
    _Situation(name="1,000 pairs/s, free", one_core=False, connections=100, pairs=1_500),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contender:
    """A server that answers both requests at ``target`` (host:port)."""

    name: str
    target: str
    process: Running
    #: The broker behind a sidecar.
    upstream: Running | None = None

    @property
    def processes(self) -> list[Running]:
        return [self.process, *([self.upstream] if self.upstream else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """One contender in one round; CPU and times are microseconds by pair."""

    cpu_us: float
    #: CPU of the broker behind a sidecar, its idle work included.
    upstream_us: float
    pairs_by_second: float
    p50_us: float
    p99_us: float


#: By situation, client and contender.
_Rounds = Mapping[str, Mapping[str, Mapping[str, list[_Round]]]]


def run(folder: Path, *, quick: bool, other_version: Path | None = None) -> Report:
    """Start the contenders, warm them up and measure them in turns.

    ``other_version`` is the ``kafka-telemetry`` of another version, which is a contender too.
    """
    files = {payload: folder / f"{payload.file}.zst" for payload in _GOALS}
    for payload, file in files.items():
        file.write_bytes(payload.zstd())
    print("pushes: starting two brokers, a collector and two sidecars", flush=True)
    with _contenders(folder, other_version) as contenders:
        # With fewer pairs the brokers' figures are too high.
        pairs = _WARM_UP_PAIRS // (4 if quick else 1)
        warming = {
            contender.name: _warm_up(contender, files[JAVA_PRODUCER], pairs) for contender in contenders
        }
        found: _Rounds = {
            situation.name: {
                payload.client: {contender.name: [] for contender in contenders} for payload in files
            }
            for situation in _SITUATIONS
        }
        everywhere = os.sched_getaffinity(0)
        for situation in _SITUATIONS:
            cores = {max(everywhere)} if situation.one_core else everywhere
            with on_cores(cores, [process for contender in contenders for process in contender.processes]):
                for number in range(1 if quick else 5):
                    print(f"pushes, {situation.name}: round {number + 1}", flush=True)
                    for payload, file in files.items():
                        for item in rotated(contenders, number):
                            found[situation.name][payload.client][item.name].append(
                                _time(item, file, situation)
                            )
    raw: dict[str, Any] = {
        situation: {
            client: {name: [asdict(round_) for round_ in rounds] for name, rounds in by_contender.items()}
            for client, by_contender in by_client.items()
        }
        for situation, by_client in found.items()
    }
    return Report(
        title="A get and a push on the wire",
        text=_describe(found, warming),
        raw={"rounds": raw, "warming": warming},
        figures=[figure for payload, goal in _GOALS.items() for figure in _figures(found, payload, goal)]
        + ([_beside_other(found, payload) for payload in _GOALS] if other_version else []),
    )


@contextlib.contextmanager
def _contenders(folder: Path, other_version: Path | None) -> Iterator[list[_Contender]]:
    """Run all of them; each asks for every metric ten times a second."""
    with contextlib.ExitStack() as stack:
        quiet = {"testbed.telemetry.log": "false"}
        telemetry = stack.enter_context(
            KafkaBroker(telemetry_plugin=True, jvm_flags=jvm.WARM, properties=quiet)
        )
        plain = stack.enter_context(KafkaBroker(jvm_flags=jvm.WARM))
        collector = stack.enter_context(Collector())
        telemetry.alter_client_metrics("bench", ["*"], _INTERVAL_MS)
        contenders: list[_Contender] = []
        otlp = {"type": "otlp", "endpoint": collector.grpc_endpoint, "protocol": "grpc"}
        away = {"plugins": [relays.AWAY]}
        sidecars: list[tuple[str, dict[str, Any]]] = [(_SIDECAR, away), (_EXPORTING, {"plugins": [otlp]})]
        if other_version:
            sidecars.append((_OTHER, away | {"program": other_version}))
        for name, options in sidecars:
            own = folder / f"sidecar-{len(contenders)}"
            own.mkdir()
            relay = stack.enter_context(relays.sidecar(plain.bootstrap, own, **options))
            assert relay.process is not None
            relays.subscribe(relay.rest, interval_ms=_INTERVAL_MS)
            contenders.append(
                _Contender(
                    name=name,
                    target=relay.target,
                    process=relay.process,
                    upstream=Running(name="broker behind", pid=plain.pid),
                )
            )
        process = Running(name=_BROKER, pid=telemetry.pid)
        contenders.append(_Contender(name=_BROKER, target=telemetry.bootstrap, process=process))
        yield contenders


def _warm_up(contender: _Contender, payload: Path, pairs: int) -> dict[int, float]:
    """Let the JVMs compile what is hot; return CPU microseconds by pair, by pairs done.

    Each step has 100 new connections with 20 pairs each, new client instances included. So it is
    another situation than the three. With more of them a core that has just started would be late,
    and answer THROTTLING_QUOTA_EXCEEDED.
    """
    warming = {}
    for done in range(0, pairs if contender.name != _EXPORTING else _WARM_UP_STEP, _WARM_UP_STEP):
        flags = {"connections": 100, "count": _WARM_UP_STEP, "warmup": 0}
        timing = time_pushes(contender.target, payload, contender.process.pids(), **flags)
        warming[done + _WARM_UP_STEP] = _cpu_us(timing, contender.process)
    return warming


def _time(contender: _Contender, payload: Path, situation: _Situation) -> _Round:
    timing = time_pushes(
        contender.target,
        payload,
        [pid for process in contender.processes for pid in process.pids()],
        connections=situation.connections,
        count=situation.pairs,
        warmup=situation.connections + situation.pairs // 5,
    )
    return _Round(
        cpu_us=_cpu_us(timing, contender.process),
        upstream_us=_cpu_us(timing, contender.upstream) if contender.upstream else 0.0,
        pairs_by_second=timing.requests / timing.wall_seconds,
        p50_us=timing.p50_us,
        p99_us=timing.p99_us,
    )


def _cpu_us(timing: Timing, process: Running) -> float:
    return sum(timing.cpu_seconds[str(pid)] for pid in process.pids()) / timing.requests * 1e6


def _figures(found: _Rounds, payload: Captured, goal: float) -> list[Figure]:
    situations = [found[situation.name][payload.client] for situation in _SITUATIONS]
    judged, free, moderate = (_median(by_contender[_SIDECAR], _own) for by_contender in situations)
    beside, beside_free, beside_moderate = map(_beside_broker, situations)
    return [
        Figure(
            name=f"CPU by get and push, {payload.client}",
            value=judged,
            unit="us",
            at_most=goal,
            note=f"{_ONE_CORE.name}; free {free:.0f}, at 1,000 pairs/s {moderate:.0f}",
        ),
        Figure(
            name=f"CPU by get and push / broker's, {payload.client}",
            value=beside,
            at_most=1.0,
            note=f"broker {_median(situations[0][_BROKER], _own):.0f} us; free {beside_free:.2f}, "
            f"at 1,000 pairs/s {beside_moderate:.2f}",
        ),
    ]


def _beside_other(found: _Rounds, payload: Captured) -> Figure:
    ratios = []
    for situation in _SITUATIONS:
        by_contender = found[situation.name][payload.client]
        rounds = zip(by_contender[_SIDECAR], by_contender[_OTHER], strict=True)
        ratios.append(mean_ratio([(ours.cpu_us, other.cpu_us) for ours, other in rounds]))
    judged, free, moderate = ratios
    return Figure(
        name=f"CPU by get and push / other version's, {payload.client}",
        value=max(ratios),
        at_most=1.2,
        note=f"{_ONE_CORE.name} {judged:.2f}; free {free:.2f}; at 1,000 pairs/s {moderate:.2f}",
    )


def _own(one: _Round) -> float:
    return one.cpu_us


def _median(rounds: Sequence[_Round], value: Callable[[_Round], float]) -> float:
    return statistics.median(map(value, rounds))


def _beside_broker(by_contender: Mapping[str, Sequence[_Round]]) -> float:
    rounds = zip(by_contender[_SIDECAR], by_contender[_BROKER], strict=True)
    return mean_ratio([(sidecar.cpu_us, broker.cpu_us) for sidecar, broker in rounds])


def _describe(found: _Rounds, warming: Mapping[str, Mapping[int, float]]) -> str:
    """Return a table by situation, client and contender, with notes."""
    head = (
        "situation", "push of", "answered by", "CPU us/pair", "from-to", "its broker us/pair", "pairs/s",
        "p50 us", "p99 us",
    )  # fmt: skip
    rows = []
    for situation, by_client in found.items():
        for client, by_contender in by_client.items():
            for name, rounds in by_contender.items():
                upstream = _median(rounds, lambda one: one.upstream_us)
                cpu = [round_.cpu_us for round_ in rounds]
                rows.append(
                    (
                        situation,
                        client,
                        name,
                        f"{_median(rounds, _own):.0f}",
                        f"{min(cpu):.0f}-{max(cpu):.0f}",
                        f"{upstream:.0f}" if upstream else "",
                        f"{_median(rounds, lambda one: one.pairs_by_second):,.0f}",
                        f"{_median(rounds, lambda one: one.p50_us):,.0f}",
                        f"{_median(rounds, lambda one: one.p99_us):,.0f}",
                    )
                )
    steps = "\n".join(
        f"  {name}: {', '.join(f'{pairs:,}: {us:.0f}' for pairs, us in by_pairs.items())}"
        for name, by_pairs in warming.items()
    )
    return (
        f"{table(head, rows)}\n"
        f"CPU us by pair (Java) over the first pairs, free, in steps of 100 new connections:\n{steps}"
    )
