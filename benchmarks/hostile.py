"""What a well-behaved producer and the sidecar's memory go through while somebody attacks.

Owns the attacks, the phases and the goals. The producer comes from 127.0.0.1, each attack from an address of
its own, as limits by source address need it, and each meets a sidecar that has just started.

The sidecar has a core to itself. Producer, attacker and the broker behind share the other one, where the
attacker steps back for the others. An attack still slows the producer by its mere work. The *floor* tells by
how much: the same attack on HAProxy in the sidecar's place, with the sidecar's limit on connections. Attacks
without a floor of their own send less than one that has it.

In each phase (before, during, after) the producer first sends at a rate far below what can be had, which
shows latency, then as fast as it is answered, which shows throughput. At a rate, a request that is late
counts from when it was due: a stall holds up all that are due meanwhile. The attack begins when the producer
has connected.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from benchmarks import relays
from benchmarks.bombs import Payload, bombs, empty_metrics
from benchmarks.captured import LIBRDKAFKA_PRODUCER
from benchmarks.figures import Figure, Results, table
from benchmarks.load_generator import (
    AttackReport,
    Background,
    LoadError,
    attack_report,
    in_background,
    produce_timing,
    producer,
)
from benchmarks.processes import Running, free_port, on_cores, pin
from receiver.settings.limits import LimitsSettings
from receiver.settings.model import TelemetrySettings
from receiver.wire.error_codes import error_name
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.cpu import cpu_seconds

SIDECAR = "sidecar"
FLOOR = "haproxy"

THROUGHPUT_DURING = 0.5
THROUGHPUT_AFTER = 0.9
P99_MS = 10.0
LONGEST_MS = 500.0

#: What an attack may add to the sidecar's memory besides requests that are not whole: one push at a time,
#: inflated and taken apart, and its share of connections, client instances and peers.
_ROOM_BYTES = 96 << 20

_RATE = 1_000
_CONNECTIONS = 4
_SETTLE_SECONDS = 0.5
_NICENESS = 19
_PATIENCE_SECONDS = 60.0

_FLOOR_LIMIT = """\
    stick-table type ip size 1k expire 1m store conn_cur
    tcp-request connection track-sc0 src
    tcp-request connection reject if {{ sc0_conn_cur gt {connections} }}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attack.

    Attributes:
        name: its row in the tables.
        kind: what the load generator calls it.
        connections: how many it wants to have open.
        payload: what it pushes; None where it pushes nothing.
        floor: whether it is also tried on HAProxy.
        tls: whether it goes to the TLS listener; the producer stays on the plain one.
        alike: whether another attack is so much like it that a quick run leaves it out.
    """

    name: str
    kind: str
    connections: int
    payload: Payload | None = None
    floor: bool = False
    tls: bool = False
    alike: bool = False


def attacks() -> list[Attack]:
    """Return the attacks, in the order of the tables."""
    settings = TelemetrySettings()
    size = settings.max_inflated_bytes - 64
    real = LIBRDKAFKA_PRODUCER
    captured = Payload(codec="zstd", compressed=real.zstd(), inflated_bytes=len(real.inflated()))
    return [
        Attack(name="10,000 connections", kind="connections", connections=10_000, floor=True),
        Attack(name="slow-loris, 1 MB pushes", kind="slow-loris", connections=500),
        Attack(name="slow-loris, TLS", kind="tls-hello", connections=500, tls=True),
        *(
            Attack(
                name=f"bombs, {codec}",
                kind="pushes",
                connections=8,
                payload=bomb,
                floor=codec == "zstd",
                alike=codec != "zstd",
            )
            for codec, bomb in bombs().items()
        ),
        Attack(name="telemetry flood", kind="telemetry-flood", connections=8, payload=captured, floor=True),
        Attack(
            name="too many messages",
            kind="pushes",
            connections=8,
            payload=empty_metrics(inflated_bytes=size, metrics=size // 2 - 100),
        ),
        Attack(
            name="almost too many messages",
            kind="pushes",
            connections=8,
            payload=empty_metrics(inflated_bytes=size, metrics=settings.max_entries * 9 // 10),
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What the producer saw in one phase.

    Attributes:
        requests_per_second: throughput where each request follows the answer before it; 0 where it broke off.
        p50_us: median time at the rate, in microseconds; None where it broke off.
        p99_us: the same, 99th percentile.
        longest_us: the longest.
        problem: why it broke off; empty where it did not.
    """

    requests_per_second: float
    p50_us: float | None
    p99_us: float | None
    longest_us: float | None
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One attack on one relay.

    Attributes:
        before: the producer before it.
        during: from its first moment on.
        after: half a second after its end.
        resident_before: what the relay held in RAM before, in bytes.
        resident_peak: the most that it held during the attack.
        cpu_percent: how much of its core it used during the attack.
        report: what the attacker saw.
        counters: what the sidecar counted: refused connections and exceeded limits.
    """

    before: Phase
    during: Phase
    after: Phase
    resident_before: int
    resident_peak: int
    cpu_percent: float
    report: AttackReport
    counters: Mapping[str, int]

    @property
    def throughput_during(self) -> float:
        """Throughput during the attack, of that before."""
        return self.during.requests_per_second / self.before.requests_per_second

    @property
    def throughput_after(self) -> float:
        """Throughput after the attack, of that before."""
        return self.after.requests_per_second / self.before.requests_per_second

    @property
    def times_p99(self) -> float | None:
        """The 99th percentile during the attack, in times of that before."""
        if self.during.p99_us is None or self.before.p99_us is None:
            return None
        return self.during.p99_us / self.before.p99_us


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lengths:
    """How long the producer sends at the rate, and as fast as it can, in seconds."""

    rate: float
    fast: float


_WARM_UP = _Lengths(rate=0.2, fast=0.5)


def measure(
    upstream: str, broker: Running, folder: Path, *, quick: bool, only: Sequence[str] = ()
) -> Mapping[str, Mapping[str, Seen]]:
    """Try every attack on the sidecar, and some on HAProxy; the keys are the attacks' and the relays' names.

    Args:
        upstream: the load server's host:port.
        broker: its process.
        folder: for payloads, configurations and logs.
        quick: shorter phases, fewer attacks, and no HAProxy.
        only: attacks with one of these texts in their name; empty: all.

    Raises:
        LoadError: the producer broke off before an attack, or an attack could not be made.
        RelayMissingError: the sidecar or HAProxy is not installed.
        ProcessError: something can't be started.
    """
    lengths = _Lengths(rate=0.8, fast=0.5) if quick else _Lengths(rate=2.5, fast=1.5)
    everywhere = sorted(os.sched_getaffinity(0))
    own_core, others = {everywhere[-1]}, {everywhere[0]}
    seen: dict[str, dict[str, Seen]] = {}
    with on_cores(others, [broker]):
        for number, attack in enumerate(attacks()):
            wanted = not only or any(text in attack.name for text in only)
            if not wanted or (quick and attack.alike):
                continue
            print(f"hostile: {attack.name}", flush=True)
            place = folder / f"attack-{number}"
            place.mkdir()
            for relay, target in _relays(attack, upstream, place, floor=attack.floor and not quick):
                assert relay.process is not None
                pin([relay.process], own_core)
                source = f"127.0.0.{2 + number}"
                seen.setdefault(attack.name, {})[relay.name] = _attack(
                    attack, relay, target, place, source, lengths
                )
    return seen


def _relays(
    attack: Attack, upstream: str, folder: Path, *, floor: bool
) -> Iterator[tuple[relays.Relay, str]]:
    """Run one relay after the other; the second value is where the attack goes."""
    tls = f"127.0.0.1:{free_port()}"
    files = CertificateAuthority().issue().write(folder)
    more = (
        f'  - {{name: TLS, bind: "{tls}", upstream: "{upstream}", security_protocol: SSL, '
        f'tls: {{certificate: "{files.chain}", key: "{files.key}"}}}}'
    )
    with relays.sidecar(upstream, folder, more=more if attack.tls else "") as relay:
        yield relay, tls if attack.tls else relay.target
    if floor:
        limit = _FLOOR_LIMIT.format(connections=LimitsSettings().source_address.connections)
        with relays.haproxy(upstream, folder, more=limit) as relay:
            yield relay, relay.target


def _attack(
    attack: Attack, relay: relays.Relay, target: str, folder: Path, source: str, lengths: _Lengths
) -> Seen:
    assert relay.process is not None
    process = relay.process
    seconds = lengths.rate + lengths.fast + 0.2
    arguments = [
        f"--kind={attack.kind}",
        f"--target={target}",
        f"--from={source}",
        f"--connections={attack.connections}",
        f"--seconds={seconds}",
    ]
    if attack.payload is not None:
        file = folder / "payload"
        file.write_bytes(attack.payload.compressed)
        arguments += [f"--payload={file}", f"--codec={attack.payload.codec}"]
    with _producer(relay.target, _WARM_UP) as warming:
        _phase(warming)
    with _producer(relay.target, lengths) as producing:
        before = _phase(producing)
    if before.problem:
        raise LoadError(f"the producer broke off before {attack.name}: {before.problem}")
    counted = _counters(relay)
    process.forget_peak()
    resident, used = process.peak_bytes(), cpu_seconds(process.pid)
    with (
        _producer(relay.target, lengths) as producing,
        in_background("attack", arguments, niceness=_NICENESS) as under_way,
    ):
        during = _phase(producing)
        report = attack_report(under_way, _PATIENCE_SECONDS)
    used = cpu_seconds(process.pid) - used
    peak = process.peak_bytes()
    now = _counters(relay)
    time.sleep(_SETTLE_SECONDS)
    with _producer(relay.target, lengths) as producing:
        after = _phase(producing)
    return Seen(
        before=before,
        during=during,
        after=after,
        resident_before=resident,
        resident_peak=peak,
        cpu_percent=used / report.seconds * 100,
        report=report,
        counters={name: count - counted.get(name, 0) for name, count in now.items()},
    )


def _producer(target: str, lengths: _Lengths) -> contextlib.AbstractContextManager[Background]:
    return producer(
        target,
        connections=_CONNECTIONS,
        requests_per_second=_RATE,
        seconds=lengths.rate,
        fast_seconds=lengths.fast,
    )


def _phase(producing: Background) -> Phase:
    try:
        seen = produce_timing(producing, _PATIENCE_SECONDS)
    except LoadError as error:
        return Phase(requests_per_second=0.0, p50_us=None, p99_us=None, longest_us=None, problem=str(error))
    return Phase(
        requests_per_second=seen.requests_per_second,
        p50_us=seen.p50_us,
        p99_us=seen.p99_us,
        longest_us=seen.longest_us,
        problem="",
    )


_COUNTED = (
    "kafka_telemetry_limit_exceeded_total",
    "kafka_telemetry_connections_refused_total",
    "kafka_telemetry_connections_closed_total",
)


def _counters(relay: relays.Relay) -> Mapping[str, int]:
    """Read from the sidecar's metrics what it has refused and closed; nothing for another relay."""
    if not relay.rest:
        return {}
    with contextlib.closing(httpx.Client(trust_env=False, timeout=_PATIENCE_SECONDS)) as client:
        text = client.get(f"http://{relay.rest}/metrics").raise_for_status().text
    samples = (line.rpartition(" ") for line in text.splitlines() if line.startswith(_COUNTED))
    return {series.removeprefix("kafka_telemetry_"): int(float(value)) for series, _, value in samples}


def figures(seen: Mapping[str, Mapping[str, Seen]]) -> list[Figure]:
    """Return the goals with what was reached."""
    found = []
    for name, by_relay in seen.items():
        mine, floor = by_relay[SIDECAR], by_relay.get(FLOOR)
        beside = f"; HAProxy {floor.throughput_during:.2f}" if floor else ""
        found += [
            Figure(
                name=f"throughput during / before, {name}",
                value=mine.throughput_during,
                at_least=THROUGHPUT_DURING,
                note=mine.during.problem or f"after / before {mine.throughput_after:.2f}{beside}",
            ),
            Figure(
                name=f"p99 during, {name}",
                value=_ms(mine.during.p99_us),
                unit="ms",
                at_most=P99_MS,
                note=mine.during.problem or _p99_note(mine, floor),
            ),
        ]
    mine_by_name = {name: by_relay[SIDECAR] for name, by_relay in seen.items()}
    longest = {name: of.during.longest_us for name, of in mine_by_name.items()}
    broken = [name for name, us in longest.items() if us is None]
    slowest = max(longest, key=lambda name: longest[name] or 0.0)
    after = min(mine_by_name, key=lambda name: mine_by_name[name].throughput_after)
    median_after = statistics.median(of.throughput_after for of in mine_by_name.values())
    largest = max(mine_by_name, key=lambda name: mine_by_name[name].resident_peak)
    of = mine_by_name[largest]
    bound = LimitsSettings().max_held_bytes + _ROOM_BYTES
    return [
        *found,
        Figure(
            name="longest wait during any attack",
            value=None if broken else _ms(longest[slowest]),
            unit="ms",
            at_most=LONGEST_MS,
            note=f"broke off: {', '.join(broken)}" if broken else slowest,
        ),
        Figure(
            name="throughput after / before, least of all attacks",
            value=mine_by_name[after].throughput_after,
            at_least=THROUGHPUT_AFTER,
            note=f"{after}; median {median_after:.2f}",
        ),
        Figure(
            name="memory that an attack added, most of all",
            value=(of.resident_peak - of.resident_before) / 2**20,
            unit="MiB",
            at_most=bound / 2**20,
            note=f"{largest}, {of.resident_peak / 2**20:.0f} MiB in all; the goal is limits.max_held_bytes "
            f"and {_ROOM_BYTES >> 20} MiB",
        ),
    ]


def _p99_note(mine: Seen, floor: Seen | None) -> str:
    def text(seen: Seen) -> str:
        times = "" if seen.times_p99 is None else f"{seen.times_p99:.1f} times that before"
        return times or "broke off"

    longest = "" if mine.during.longest_us is None else f", longest {mine.during.longest_us / 1e3:.1f} ms"
    return f"{text(mine)}{longest}" + (f"; HAProxy {text(floor)}" if floor else "")


def _ms(us: float | None) -> float | None:
    return None if us is None else us / 1e3


def describe(seen: Mapping[str, Mapping[str, Seen]]) -> str:
    """Return a table of the producer and one of the attackers, and what the pushes inflate to."""
    producer, attackers = [], []
    for name, by_relay in seen.items():
        shown = name
        for relay, of in by_relay.items():
            phases = (of.before, of.during, of.after)
            producer.append(
                (
                    shown,
                    relay,
                    *(f"{phase.requests_per_second:,.0f}" for phase in phases),
                    f"{of.throughput_during:.2f}",
                    *("-" if phase.p99_us is None else f"{phase.p99_us:,.0f}" for phase in phases),
                    "-" if of.times_p99 is None else f"{of.times_p99:.1f}",
                    *(
                        "-" if phase.longest_us is None else f"{phase.longest_us / 1e3:,.1f}"
                        for phase in phases
                    ),
                    f"{of.resident_before / 2**20:.0f}",
                    f"{of.resident_peak / 2**20:.0f}",
                    f"{of.cpu_percent:.0f}",
                )
            )
            report = of.report
            attackers.append(
                (
                    shown,
                    relay,
                    f"{report.opened:,}",
                    f"{report.held:,}",
                    f"{report.ended:,}",
                    f"{report.bytes_sent / report.seconds / 1e6:,.1f}",
                    _answers("get", report.gets) + _answers("push", report.pushes),
                )
            )
            shown = ""
    producer_head = (
        "attack",
        "relay",
        *("req/s before", "during", "after", "during/before"),
        *("p99 us before", "during", "after", "times"),
        *("longest ms before", "during", "after"),
        *("MiB before", "peak", "CPU %"),
    )
    attacker_head = ("attack", "relay", "opened", "held", "ended", "MB/s sent", "note")
    counted = [
        f"  {name}: "
        + ", ".join(f"{series} {count:,}" for series, count in by_relay[SIDECAR].counters.items() if count)
        for name, by_relay in seen.items()
    ]
    payloads = [f"  {attack.name}: {attack.payload.note}" for attack in attacks() if attack.payload]
    return "\n".join(
        (
            table(producer_head, producer),
            "",
            table(attacker_head, attackers),
            "",
            "What the sidecar counted meanwhile, the producer's own connections included:",
            *counted,
            "What is pushed:",
            *payloads,
        )
    )


def _answers(request: str, by_code: Mapping[int, int]) -> str:
    return "".join(f"{request} {error_name(code)} {count:,}  " for code, count in sorted(by_code.items()))


def record(seen: Mapping[str, Mapping[str, Seen]], results: Results) -> None:
    """Keep every phase in ``results``."""
    results.raw["hostile"] = {
        name: {relay: asdict(of) for relay, of in by_relay.items()} for name, by_relay in seen.items()
    }
