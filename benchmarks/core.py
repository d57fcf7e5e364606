"""What the telemetry core costs by push, in this process: no socket, no other thread.

Owns the two loops that are compared and the goal. The *floor* is what anybody who checks OTLP has
to pay: inflate, parse, serialise. The *path* is the core's own, from inflated bytes to the plugins'
queue: the checks of KIP-714, parsing, scrubbing, merging, labelling, context and queue. Both run in
turns, so that a machine that changes its speed changes both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks.captured import (
    JAVA_CONSUMER,
    JAVA_PRODUCER,
    LIBRDKAFKA_CONSUMER,
    LIBRDKAFKA_PRODUCER,
    Captured,
)
from benchmarks.figures import Figure, Results, table
from receiver.host.discovery import load_plugins
from receiver.host.host import PluginHost
from receiver.settings.limits import LimitsSettings
from receiver.settings.metric_processing import NormalizationSettings
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.compression import CODECS, inflate
from receiver.telemetry.connection import Broker, Connection
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.subscription import SubscriptionSet
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import Uuid

PAYLOADS = (JAVA_PRODUCER, JAVA_CONSUMER, LIBRDKAFKA_PRODUCER, LIBRDKAFKA_CONSUMER)
TIMES_THE_FLOOR = 4.0

WITHOUT_STEPS = TelemetrySettings(
    normalization=NormalizationSettings(attributes=False, units=False, known_bad_values="keep")
)

_BATCH_SECONDS = 0.02
_INSTANCE = Uuid(bytes(range(16)))


class CoreError(RuntimeError):
    """The core did not take a push that it must take; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one push costs, by round, in microseconds of CPU.

    Attributes:
        floor: inflate (zstd), parse as MetricsData, serialise.
        inflate: the first part of it alone.
        path: the core's path from inflated bytes to the queue, without the steps of
            ``normalization``.
        defaults: the same with the steps that are on by default; the part ``meaning`` has each of
            them.
    """

    floor: tuple[float, ...]
    inflate: tuple[float, ...]
    path: tuple[float, ...]
    defaults: tuple[float, ...]

    @property
    def times_floor(self) -> float:
        """How many times the floor the path takes: the median over the rounds."""
        return statistics.median(path / floor for path, floor in zip(self.path, self.floor, strict=True))

    @property
    def times_bare_floor(self) -> float:
        """The same beside parse and serialise only, since the path does not inflate either."""
        return statistics.median(
            path / (floor - inflate)
            for path, floor, inflate in zip(self.path, self.floor, self.inflate, strict=True)
        )


def measure(*, rounds: int) -> Mapping[str, Cost]:
    """Time the floor and the core's path for every captured payload; the keys are their clients.

    Raises:
        CoreError: a push was refused.
    """
    return {payload.client: _cost(payload, rounds) for payload in PAYLOADS}


def _cost(payload: Captured, rounds: int) -> Cost:
    inflated, compressed = payload.inflated(), payload.zstd()
    zstd = CODECS["zstd"]
    limit = TelemetrySettings().max_inflated_bytes

    def floor() -> None:
        MetricsData.FromString(inflate(zstd, compressed, limit)).SerializeToString()

    parts = (
        floor,
        lambda: inflate(zstd, compressed, limit),
        path(inflated, WITHOUT_STEPS),
        path(inflated, TelemetrySettings()),
    )
    floors, inflates, paths, defaults = zip(*in_turns(parts, rounds), strict=True)
    return Cost(floor=floors, inflate=inflates, path=paths, defaults=defaults)


def in_turns(parts: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Return what each part costs by call in microseconds of CPU, by round."""
    counts = [_count(part) for part in parts]
    return [[_cpu_us(part, count) for part, count in zip(parts, counts, strict=True)] for _ in range(rounds)]


def path(
    inflated: bytes, settings: TelemetrySettings, *, hash_key: bytes | None = None
) -> Callable[[], None]:
    """Return a push as the gateway does it, once it is off the wire.

    The codec is "none", for which inflating returns the very bytes. The plugin is never started:
    its queue fills and from then on drops the oldest push, which every producer may have to do.
    """
    telemetry = ClientTelemetry(
        settings=settings,
        broker=Broker(id=1, cluster_id="kafka-telemetry-testQQ"),
        subscriptions=SubscriptionSet(()),
        limits=Limits(LimitsSettings()),
        random_bytes=lambda count: bytes(range(count)),
        hash_key=hash_key,
    )
    host = PluginHost(load_plugins([{"type": "console", "queue": {"max_items": 100}, "delivery": "memory"}]))
    connection = Connection(
        id="1",
        listener="CLIENT",
        security_protocol="PLAINTEXT",
        source_address="127.0.0.1",
        source_port=54321,
        since=0.0,
    )
    now = 0.0
    asked = telemetry.get_telemetry_subscriptions(
        connection, GetTelemetrySubscriptionsRequest(client_instance_id=_INSTANCE), now=now
    )
    request = PushTelemetryRequest(
        client_instance_id=_INSTANCE,
        subscription_id=asked.response.subscription_id,
        terminating=False,
        compression_type=CODECS["none"],
        metrics=inflated,
    )

    def push() -> None:
        nonlocal now
        outcome = telemetry.push_telemetry(connection, request, now=now, received_at_ns=1)
        if outcome.push is None:
            raise CoreError(f"a captured push was refused: {outcome.problem or 'nothing is left of it'}")
        host.offer(outcome.push)
        # Never throttled, and never forgotten.
        now += asked.response.push_interval_ms / 1000

    return push


def _count(part: Callable[[], object]) -> int:
    """Return how often to call it so that the clock's own cost is nothing beside it."""
    for _ in range(100):
        part()
    return max(20, int(_BATCH_SECONDS / (_cpu_us(part, 100) / 1e6)))


def _cpu_us(part: Callable[[], object], count: int) -> float:
    started = time.thread_time_ns()
    for _ in range(count):
        part()
    return (time.thread_time_ns() - started) / count / 1000


def figures(costs: Mapping[str, Cost]) -> list[Figure]:
    """Return the goal for the Java producer's push with what was reached."""
    cost = costs[JAVA_PRODUCER.client]
    return [
        Figure(
            name=f"core / floor, {JAVA_PRODUCER.client}",
            value=cost.times_floor,
            at_most=TIMES_THE_FLOOR,
            note=f"{statistics.median(cost.path):.0f} us by push, "
            f"{statistics.median(cost.defaults):.0f} with "
            "the default steps; "
            f"{cost.times_bare_floor:.2f} of parse and serialise alone",
        )
    ]


def describe(costs: Mapping[str, Cost]) -> str:
    """Return a table by client: the floor, its parts, the path, and their ratio."""
    rows = [
        (
            client,
            *_medians(cost.inflate, cost.floor, cost.path, cost.defaults),
            f"{cost.times_floor:.2f}",
            f"{cost.times_bare_floor:.2f}",
        )
        for client, cost in costs.items()
    ]
    head = (
        "push of",
        "inflate us",
        "floor us",
        "core us",
        "all defaults us",
        "core / floor",
        "without inflate",
    )
    return table(head, rows)


def _medians(*values: Sequence[float]) -> tuple[str, ...]:
    return tuple(f"{statistics.median(of):.1f}" for of in values)


def record(costs: Mapping[str, Cost], results: Results) -> None:
    """Keep every round in ``results``."""
    results.raw["core"] = {client: asdict(cost) for client, cost in costs.items()}
