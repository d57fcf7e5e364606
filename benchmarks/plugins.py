"""Measures each plugin: CPU per push and pushes per second, into real destinations.

Owns the list of contenders and the loop that offers them pushes. An export goes where it would in
production: a collector, a broker, a disk, a Prometheus. What these spend is theirs and not counted.
"""

from __future__ import annotations

import dataclasses
import gc
import logging
import random
import re
import resource
import statistics
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import structlog

from benchmarks.captured import JAVA_PRODUCER, Captured, push_of
from benchmarks.figures import Figure, Results, table
from receiver.app import GC_THRESHOLDS
from receiver.host.delivery.statistics import PluginStatistics
from receiver.host.discovery import load_plugins
from receiver.host.host import PluginHost
from receiver.plugin import Push
from receiver.settings.limits import LimitsSettings
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.connection import Broker, Connection
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.subscription import SubscriptionSet
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire.uuid import Uuid
from tests.testbed.broker import KafkaBroker
from tests.testbed.collector import Collector
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.prometheus import Prometheus

INSTANCES = 50
#: So many pushes wait at most: an honest queue, and none is dropped.
_AHEAD = 2_000
_WITHIN_S = 300.0

#: A data point's start_time_unix_nano and time_unix_nano, fields 2 and 3 of wire type 1.
_TIME = re.compile(rb"([\x11\x19])(.{6}[\xe0-\xff]\x18)", re.DOTALL)
#: Its as_double, field 4, where that is neither zero nor huge; the captured pushes have no such
#: text.
_VALUE = re.compile(rb"\x21.{5}(..[\x3f-\x41])", re.DOTALL)
_NS = struct.Struct("<Q")


class PluginBenchmarkError(RuntimeError):
    """A plugin did not take what it was offered; the text says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A plugin to measure.

    Attributes:
        name: Its row.
        config: Its entry of ``plugins:``.
    """

    name: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a contender did, by round.

    Attributes:
        pushes: Pushes a round.
        per_second: Pushes a second, from the first offer to the last export.
        cpu_us: CPU by push in microseconds: this process, and a plugin's own.
    """

    pushes: int
    per_second: tuple[float, ...]
    cpu_us: tuple[float, ...]


def measure(folder: Path, *, rounds: int, pushes: int) -> Mapping[str, Taken]:
    """Offer each contender so many pushes of a Java producer, so many times.

    Raises:
        PluginBenchmarkError: A push was dropped, or the plugin came to no end.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    offered = captured_pushes(pushes)
    with ExitStack() as stack:
        seen: dict[str, list[tuple[float, float]]] = {}
        contenders = list(_contenders(stack, folder))
        for _ in range(rounds):
            for contender in contenders:
                seen.setdefault(contender.name, []).append(_once(contender, offered))
    return {
        name: Taken(
            pushes=pushes,
            per_second=tuple(per_second for per_second, _ in found),
            cpu_us=tuple(cpu_us for _, cpu_us in found),
        )
        for name, found in seen.items()
    }


def _contenders(stack: ExitStack, folder: Path) -> Iterator[Contender]:
    collector = stack.enter_context(Collector())
    broker = stack.enter_context(KafkaBroker())
    prometheus = stack.enter_context(Prometheus())
    memory = {"delivery": "memory"}
    grpc = {"type": "otlp", "endpoint": collector.grpc_endpoint}
    yield Contender(name="otlp, gRPC", config={**grpc, **memory})
    yield Contender(
        name="otlp, HTTP",
        config={"type": "otlp", "protocol": "http", "endpoint": collector.http_endpoint, **memory},
    )
    yield Contender(name="otlp, cumulative", config={**grpc, "temporality": "cumulative", **memory})
    yield Contender(name="otlp, own process", config={**grpc, "isolation": "process", **memory})
    for delivery in ("spool_when_behind", "spool_always"):
        spool = {"path": str(folder / delivery)}
        yield Contender(name=f"otlp, {delivery}", config={**grpc, "delivery": delivery, "spool": spool})
    yield Contender(
        name="kafka_topic",
        config={
            "type": "kafka_topic",
            "bootstrap_servers": broker.internal_bootstrap,
            "topic": "client-telemetry",
            "create_topic": {"partitions": 1, "replication_factor": 1},
            **memory,
        },
    )
    yield Contender(
        name="spool_files", config={"type": "spool_files", "path": str(folder / "telemetry"), **memory}
    )
    yield Contender(
        name="prometheus, scrape",
        config={"type": "prometheus", "bind": f"{LOOPBACK}:{free_port()}", **memory},
    )
    yield Contender(
        name="prometheus, remote write",
        config={"type": "prometheus", "remote_write": {"url": prometheus.write_url}, **memory},
    )


def captured_pushes(count: int, captured: Captured = JAVA_PRODUCER) -> list[Push]:
    """Pushes of several instances, as the core hands them over; each with a time of its own."""
    telemetry = ClientTelemetry(
        settings=TelemetrySettings(),
        broker=Broker(id=1, cluster_id="kafka-telemetry-testQQ"),
        subscriptions=SubscriptionSet(()),
        limits=Limits(LimitsSettings()),
        random_bytes=lambda size: bytes(range(size)),
    )
    templates = [_push_of(telemetry, number, captured) for number in range(2, INSTANCES + 2)]
    began = time.time_ns()
    return [
        dataclasses.replace(
            template,
            context=dataclasses.replace(template.context, received_at_ns=began + number * 1_000_000),
            payload=dataclasses.replace(
                template.payload,
                data=_varied(template.payload.data, number, number // INSTANCES),
                sequence=number // INSTANCES + 1,
                push_id=f"{number:032x}",
            ),
        )
        for number in range(count)
        for template in (templates[number % INSTANCES],)
    ]


def _varied(data: bytes, number: int, seconds: int) -> bytes:
    """The push of so many seconds later, with values of its own.

    Sums of the same time would not be added up, and the same values would be compressed to nothing.
    """
    shift = seconds * 1_000_000_000
    digits = random.Random(number).randbytes
    data = _TIME.sub(lambda found: found[1] + _NS.pack(_NS.unpack(found[2])[0] + shift), data)
    return _VALUE.sub(lambda found: b"\x21" + digits(5) + found[1], data)


def _push_of(telemetry: ClientTelemetry, number: int, captured: Captured) -> Push:
    connection = Connection(
        id=str(number),
        listener="CLIENT",
        security_protocol="PLAINTEXT",
        source_address=LOOPBACK,
        source_port=40_000 + number,
        since=0.0,
    )
    connection.client_id = f"producer-{number}"
    return push_of(telemetry, connection, Uuid(number.to_bytes(16, "big")), captured)


def _once(contender: Contender, pushes: Sequence[Push]) -> tuple[float, float]:
    """Return pushes a second and microseconds of CPU by push."""
    host = PluginHost(load_plugins([contender.config]))
    cpu, began = _cpu_s(), time.monotonic()
    host.start()
    try:
        for number, push in enumerate(pushes, start=1):
            host.offer(push)
            if number % 100 == 0:
                _wait(host, contender, number - _AHEAD)
        _wait(host, contender, len(pushes))
        seconds = time.monotonic() - began
    finally:
        host.stop(30.0)
    return len(pushes) / seconds, (_cpu_s() - cpu) / len(pushes) * 1e6


def _wait(host: PluginHost, contender: Contender, exported: int) -> None:
    deadline = time.monotonic() + _WITHIN_S
    while True:
        (seen,) = host.statistics()
        if lost := sum(seen.dropped.values()):
            raise PluginBenchmarkError(f"{contender.name}: {lost} pushes dropped: {_why(seen)}")
        if seen.exported_pushes >= exported:
            return
        if time.monotonic() > deadline:
            raise PluginBenchmarkError(f"{contender.name}: {seen.exported_pushes} pushes taken: {_why(seen)}")
        time.sleep(0.001)


def _why(seen: PluginStatistics) -> str:
    return seen.last_error or "no error was told"


def _cpu_s() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)


def figures(taken: Mapping[str, Taken]) -> list[Figure]:
    """Return a figure for each contender; there are no goals but to be seen."""
    return [
        Figure(name=f"{name}, CPU by push", value=statistics.median(one.cpu_us), unit="us")
        for name, one in taken.items()
    ]


def describe(taken: Mapping[str, Taken]) -> str:
    """Return a table by contender."""
    rows = [
        (
            name,
            f"{statistics.median(one.per_second):,.0f}",
            f"{statistics.median(one.cpu_us):.0f}",
            f"{min(one.cpu_us):.0f}-{max(one.cpu_us):.0f}",
        )
        for name, one in taken.items()
    ]
    return table(("plugin", "pushes/s", "CPU us/push", "from-to"), rows)


def record(taken: Mapping[str, Taken], results: Results) -> None:
    """Keep every round in ``results``."""
    results.raw["plugins"] = {name: asdict(one) for name, one in taken.items()}
