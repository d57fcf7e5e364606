"""Benchmark of the telemetry core: CPU by push in this process, without sockets and threads.

The *floor* is what every check of OTLP has to do: inflate, parse, serialise. The *path* is the
core's own, from inflated bytes to the queue of a plugin: the checks of KIP-714, parsing, scrubbing,
merging, labelling, context and queue. A step on metrics (normalisation, privacy, budgets of series)
is measured by what it adds to the path. All take turns, so that a machine that changes its speed
changes all of them.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks.captured import (
    FRANZ_GO_PRODUCER,
    JAVA_CONSUMER,
    JAVA_PRODUCER,
    LIBRDKAFKA_CONSUMER,
    LIBRDKAFKA_PRODUCER,
    Captured,
    push_request,
    telemetry_core,
)
from benchmarks.figures import Figure, Report, table
from benchmarks.processes import BenchmarkError
from receiver.host.discovery import load_plugins
from receiver.host.host import PluginHost
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.compression import CODECS, inflate
from receiver.telemetry.identity import ClientIdentity
from receiver.wire.uuid import Uuid

_PAYLOADS = (JAVA_PRODUCER, JAVA_CONSUMER, LIBRDKAFKA_PRODUCER, LIBRDKAFKA_CONSUMER)
_STEP_PAYLOADS = (*_PAYLOADS, FRANZ_GO_PRODUCER)
_TIMES_THE_FLOOR = 4.0
_BATCH_SECONDS = 0.02
#: Client instances that push in turn, 20 times a second by the clock that the core is given. It
#: reads one push in a second for its estimates (:mod:`receiver.telemetry.profiles`), which with one
#: client alone would be each of them.
_INSTANCES = [Uuid(bytes([number, *range(1, 16)])) for number in range(100)]

#: The most that all defaults may add to a push, in microseconds of CPU.
_STEP_GOALS = {JAVA_CONSUMER.client: 60.0, LIBRDKAFKA_CONSUMER.client: 15.0}

_NO_STEPS = "no steps"
_DEFAULTS = "all defaults"

_KEY = b"a key of 24 bytes or so."
_OFF: dict[str, Any] = {"attributes": False, "units": False, "known_bad_values": "keep"}
_PSEUDONYMS = ("principal", "client_source_address", "client_id")
_EVERY_RATE = {"client_software_name": ".*", "bad_metrics": [r".*\.rate"]}

#: The settings below ``telemetry`` of each variant.
_VARIANTS: Mapping[str, Mapping[str, Any]] = {
    _NO_STEPS: {"normalization": _OFF},
    "attributes": {"normalization": _OFF | {"attributes": True}},
    "units": {"normalization": _OFF | {"units": True}},
    "descriptions": {"normalization": _OFF | {"descriptions": True}},
    "rates marked as bad": {
        "normalization": _OFF | {"known_bad_values": "mark"},
        "quirks": [_EVERY_RATE],
    },
    "topics hashed": {
        "normalization": _OFF,
        "privacy": {"key": {"file": "key"}, "rules": [{"attribute": "topic", "action": "hash"}]},
    },
    "pseudonyms": {"normalization": _OFF, "privacy": {"key": {"file": "key"}, "pseudonymize": _PSEUDONYMS}},
    "over budget": {"normalization": _OFF, "series": {"max_per_client": 10}},
    _DEFAULTS: {},
    "all on": {
        "normalization": {"descriptions": True, "known_bad_values": "mark"},
        "quirks": [_EVERY_RATE],
        "privacy": {
            "key": {"file": "key"},
            "pseudonymize": _PSEUDONYMS,
            "rules": [{"attribute": "topic", "action": "hash"}, {"metric": ".*ratio", "action": "drop"}],
        },
    },
}

#: Microseconds of each round by variant.
_Costs = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """CPU of one push by round, in microseconds."""

    #: Inflate (zstd), parse as MetricsData, serialise.
    floor: tuple[float, ...]
    #: The core's path without the steps of ``normalization``.
    path: tuple[float, ...]
    #: The same with the default steps.
    defaults: tuple[float, ...]

    @property
    def times_floor(self) -> float:
        return statistics.median(path / floor for path, floor in zip(self.path, self.floor, strict=True))


def _rounds(*, quick: bool) -> int:
    """Return how many rounds to measure."""
    return 5 if quick else 21


def run(folder: Path, *, quick: bool) -> Report:
    """Time the floor and the core's path for each captured push."""
    costs = {payload.client: _cost(payload, _rounds(quick=quick)) for payload in _PAYLOADS}
    head = ("push of", "floor us", "core us", "all defaults us", "core / floor")
    rows = [
        (
            client,
            *(f"{statistics.median(us):.1f}" for us in (cost.floor, cost.path, cost.defaults)),
            f"{cost.times_floor:.2f}",
        )
        for client, cost in costs.items()
    ]
    java = costs[JAVA_PRODUCER.client]
    return Report(
        title="The core by push, in one process",
        text=table(head, rows),
        raw={client: asdict(cost) for client, cost in costs.items()},
        figures=[
            Figure(
                name=f"core / floor, {JAVA_PRODUCER.client}",
                value=java.times_floor,
                at_most=_TIMES_THE_FLOOR,
                note=f"{statistics.median(java.path):.0f} us by push, "
                f"{statistics.median(java.defaults):.0f} with the default steps",
            )
        ],
    )


def run_steps(folder: Path, *, quick: bool) -> Report:
    """Time the path of each captured push with the settings of each variant."""
    costs = {payload.client: _variants(payload, _rounds(quick=quick)) for payload in _STEP_PAYLOADS}
    plain = {client: statistics.median(cost[_NO_STEPS]) for client, cost in costs.items()}
    rows = [(_NO_STEPS, *(f"{us:.1f}" for us in plain.values()))]
    for variant in _VARIANTS:
        if variant != _NO_STEPS:
            added = {client: _added(cost, variant) for client, cost in costs.items()}
            rows.append(
                (variant, *(f"{us:+.1f} ({1 + us / plain[client]:.2f})" for client, us in added.items()))
            )
    return Report(
        title="What the steps add to a push",
        text=table(("us by push", *costs), rows),
        raw=costs,
        figures=[
            Figure(
                name=f"steps, {client}",
                value=_added(costs[client], _DEFAULTS),
                unit="us",
                at_most=goal,
                note=f"all defaults added to {plain[client]:.0f} us",
            )
            for client, goal in _STEP_GOALS.items()
        ],
    )


def _cost(payload: Captured, rounds: int) -> _Cost:
    inflated, compressed = payload.inflated(), payload.zstd()
    zstd = CODECS["zstd"]
    limit = TelemetrySettings().max_inflated_bytes
    parts = (
        lambda: MetricsData.FromString(inflate(zstd, compressed, limit)).SerializeToString(),
        _path(inflated, TelemetrySettings.model_validate(_VARIANTS[_NO_STEPS])),
        _path(inflated, TelemetrySettings()),
    )
    floors, paths, defaults = zip(*_in_turns(parts, rounds), strict=True)
    return _Cost(floor=floors, path=paths, defaults=defaults)


def _variants(payload: Captured, rounds: int) -> _Costs:
    parts = [
        _path(payload.inflated(), TelemetrySettings.model_validate(changes), hash_key=_KEY)
        for changes in _VARIANTS.values()
    ]
    return dict(zip(_VARIANTS, zip(*_in_turns(parts, rounds), strict=True), strict=True))


def _added(costs: _Costs, variant: str) -> float:
    return statistics.median(
        cost - without for cost, without in zip(costs[variant], costs[_NO_STEPS], strict=True)
    )


def _in_turns(parts: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Return the CPU of each part's call in microseconds, by round."""
    counts = [_count(part) for part in parts]
    return [[_cpu_us(part, count) for part, count in zip(parts, counts, strict=True)] for _ in range(rounds)]


def _path(
    inflated: bytes, settings: TelemetrySettings, *, hash_key: bytes | None = None
) -> Callable[[], None]:
    """Return a function that pushes as the gateway does, from inflated bytes on.

    The plugin is never started, so its queue fills and then drops the oldest push.
    """
    telemetry = telemetry_core(settings, hash_key=hash_key)
    host = PluginHost(load_plugins([{"type": "console", "queue": {"max_items": 100}, "delivery": "memory"}]))
    clients = []
    for number, instance in enumerate(_INSTANCES):
        connection = ClientIdentity(
            id=str(number),
            listener="CLIENT",
            security_protocol="PLAINTEXT",
            source_address=f"127.0.0.{number}",
            source_port=54321,
            since=0.0,
        )
        clients.append((connection, *push_request(telemetry, connection, instance, inflated)))
    turns = itertools.cycle(clients)
    now = 0.0

    def push() -> None:
        nonlocal now
        connection, request, interval_s = next(turns)
        outcome = telemetry.push_telemetry(connection, request, now=now, received_at_ns=1)
        if outcome.push is None:
            raise BenchmarkError(f"a captured push was refused: {outcome.problem or 'nothing is left of it'}")
        host.offer(outcome.push)
        # Never throttled, and never forgotten.
        now += interval_s / len(clients)

    return push


def _count(part: Callable[[], object]) -> int:
    """Return how often to call a part so that the clock's own cost is small beside it."""
    for _ in range(100):
        part()
    return max(20, int(_BATCH_SECONDS / (_cpu_us(part, 100) / 1e6)))


def _cpu_us(part: Callable[[], object], count: int) -> float:
    started = time.thread_time_ns()
    for _ in range(count):
        part()
    return (time.thread_time_ns() - started) / count / 1000
