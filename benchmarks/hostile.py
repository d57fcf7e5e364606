"""What a well-behaved producer and the sidecar's memory go through while somebody attacks.

Owns the phases and what is read in them. The producer comes from 127.0.0.1, each attack from an address of
its own, as limits by source address need it, and each meets a sidecar that has just started.

The sidecar has a core to itself. Producer, attacker and the broker behind share the other one, where the
attacker steps back for the others. An attack still slows the producer by its mere work. The *floor* tells by
how much: the same attack on HAProxy in the sidecar's place, with the sidecar's limit on connections. It looks
into nothing, and passes all of it on.

In each phase (before, during, after) the producer first sends at a rate far below what can be had, which
shows latency, then as fast as it is answered, which shows throughput. At a rate, a request that is late
counts from when it was due: a stall holds up all that are due meanwhile. The attack begins when the producer
has connected.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks import relays
from benchmarks.attacks import Attack, attacks
from benchmarks.background import (
    AttackReport,
    Background,
    attack_report,
    in_background,
    produce_timing,
    producer,
)
from benchmarks.load_generator import LoadError
from benchmarks.processes import Running, free_port, on_cores, pin
from receiver.settings.limits import LimitsSettings
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.cpu import cpu_seconds

SIDECAR = "sidecar"
FLOOR = "haproxy"

_RATE = 1_000
_CONNECTIONS = 4
_SETTLE_SECONDS = 0.5
_NICENESS = 19
_PATIENCE_SECONDS = 60.0

_FLOOR = """\
    bind {tls} ssl crt {keystore}
    stick-table type ip size 1k expire 1m store conn_cur
    tcp-request connection track-sc0 src
    tcp-request connection reject if {{ sc0_conn_cur gt {connections} }}
"""


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
    """Try every attack on the sidecar and on HAProxy; the keys are the attacks' and the relays' names.

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
    lengths = _Lengths(rate=0.8, fast=0.5) if quick else _Lengths(rate=2.0, fast=1.2)
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
            for relay, target in _relays(attack, upstream, place, floor=not quick):
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
    more = f'  - {{name: TLS, bind: "{tls}", upstream: "{upstream}", {relays.ssl_listener(files)}}}'
    with relays.sidecar(upstream, folder, limits="{}", more=more if attack.tls else "") as relay:
        yield relay, tls if attack.tls else relay.target
    if floor:
        more = _FLOOR.format(
            connections=LimitsSettings().source_address.connections, tls=tls, keystore=files.keystore
        )
        with relays.haproxy(upstream, folder, more=more) as relay:
            yield relay, tls if attack.tls else relay.target


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
