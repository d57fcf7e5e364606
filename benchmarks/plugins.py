"""Benchmark of each plugin: CPU by push and pushes a second, into real destinations.

An export goes where it would in production: a collector, a broker, a disk, a Prometheus. The CPU of
these destinations does not count.
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
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import structlog

from benchmarks.captured import JAVA_PRODUCER, Captured, push_of, telemetry_core
from benchmarks.figures import Figure, Report, table
from benchmarks.processes import BenchmarkError
from receiver.host.discovery import load_plugins
from receiver.host.host import PluginHost
from receiver.plugin import Push
from receiver.process_memory import GC_THRESHOLDS
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire.uuid import Uuid
from tests.testbed.broker import KafkaBroker
from tests.testbed.collector import Collector
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.prometheus import Prometheus

_INSTANCES = 50
#: The most pushes that wait, so that none is dropped.
_AHEAD = 2_000
_WITHIN_S = 300.0

#: A data point's start_time_unix_nano and time_unix_nano, fields 2 and 3 of wire type 1.
_TIME = re.compile(rb"([\x11\x19])(.{6}[\xe0-\xff]\x18)", re.DOTALL)
#: Its as_double, field 4, if it is neither zero nor huge; no text of a captured push matches.
_VALUE = re.compile(rb"\x21.{5}(..[\x3f-\x41])", re.DOTALL)
_NS = struct.Struct("<Q")


def run(folder: Path, *, quick: bool) -> Report:
    """Offer each plugin pushes of a Java producer."""
    gc.set_threshold(*GC_THRESHOLDS)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    rounds, count = sizes(quick=quick)
    pushes = captured_pushes(count)
    with ExitStack() as stack:
        contenders = _contenders(stack, folder)
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
        for _ in range(rounds):
            for name, config in contenders.items():
                measured[name].append(_round(name, config, pushes))
    cpu_us = {name: [us for _, us in found] for name, found in measured.items()}
    rows = [
        (
            name,
            f"{statistics.median(rate for rate, _ in found):,.0f}",
            f"{statistics.median(cpu_us[name]):.0f}",
            f"{min(cpu_us[name]):.0f}-{max(cpu_us[name]):.0f}",
        )
        for name, found in measured.items()
    ]
    return Report(
        title="Plugins, pushes of a Java producer",
        text=table(("plugin", "pushes/s", "CPU us/push", "from-to"), rows),
        raw={"pushes": count, "per_second, cpu_us": measured},
        figures=[
            Figure(name=f"{name}, CPU by push", value=statistics.median(us), unit="us")
            for name, us in cpu_us.items()
        ],
    )


def sizes(*, quick: bool) -> tuple[int, int]:
    """Return the number of rounds, and of pushes in a round."""
    return (1, 1_000) if quick else (3, 6_000)


def _contenders(stack: ExitStack, folder: Path) -> dict[str, dict[str, Any]]:
    """Return entries of ``plugins`` by name, and start their destinations."""
    collector = stack.enter_context(Collector())
    broker = stack.enter_context(KafkaBroker())
    prometheus = stack.enter_context(Prometheus())
    grpc = {"type": "otlp", "endpoint": collector.grpc_endpoint}
    http = {"type": "otlp", "protocol": "http", "endpoint": collector.http_endpoint}
    topic = {
        "type": "kafka_topic",
        "bootstrap_servers": broker.internal_bootstrap,
        "topic": "client-telemetry",
        "create_topic": {"partitions": 1, "replication_factor": 1},
    }
    in_memory: dict[str, dict[str, Any]] = {
        "otlp, gRPC": grpc,
        "otlp, HTTP": http,
        "otlp, cumulative": {**grpc, "temporality": "cumulative"},
        "otlp, own process": {**grpc, "isolation": "process"},
        "kafka_topic": topic,
        "spool_files": {"type": "spool_files", "path": str(folder / "telemetry")},
        "prometheus, scrape": {"type": "prometheus", "bind": f"{LOOPBACK}:{free_port()}"},
        "prometheus, remote write": {"type": "prometheus", "remote_write": {"url": prometheus.write_url}},
    }
    return {name: {**config, "delivery": "memory"} for name, config in in_memory.items()} | {
        f"otlp, {delivery}": {**grpc, "delivery": delivery, "spool": {"path": str(folder / delivery)}}
        for delivery in ("spool_when_behind", "spool_always")
    }


def captured_pushes(count: int, captured: Captured = JAVA_PRODUCER) -> list[Push]:
    """Return pushes of 50 instances as plugins receive them, each with its own time and values."""
    telemetry = telemetry_core()
    templates = [_push_of(telemetry, number, captured) for number in range(2, _INSTANCES + 2)]
    began = time.time_ns()
    return [
        dataclasses.replace(
            template,
            context=dataclasses.replace(template.context, received_at_ns=began + number * 1_000_000),
            payload=dataclasses.replace(
                template.payload,
                data=_varied(template.payload.data, number, number // _INSTANCES),
                sequence=number // _INSTANCES + 1,
                push_id=f"{number:032x}",
            ),
        )
        for number in range(count)
        for template in (templates[number % _INSTANCES],)
    ]


def _varied(data: bytes, number: int, seconds: int) -> bytes:
    """Move the times of a push by some seconds, and change its values.

    Sums of the same time would not be added up, and equal values would be compressed to nothing.
    """
    shift = seconds * 1_000_000_000
    digits = random.Random(number).randbytes
    data = _TIME.sub(lambda found: found[1] + _NS.pack(_NS.unpack(found[2])[0] + shift), data)
    return _VALUE.sub(lambda found: b"\x21" + digits(5) + found[1], data)


def _push_of(telemetry: ClientTelemetry, number: int, captured: Captured) -> Push:
    connection = ClientIdentity(
        id=str(number),
        listener="CLIENT",
        security_protocol="PLAINTEXT",
        source_address=LOOPBACK,
        source_port=40_000 + number,
        since=0.0,
        client_id=f"producer-{number}",
    )
    return push_of(telemetry, connection, Uuid(number.to_bytes(16, "big")), captured)


def _round(name: str, config: Mapping[str, Any], pushes: Sequence[Push]) -> tuple[float, float]:
    """Return pushes a second and CPU microseconds by push, those of a plugin's process included."""
    host = PluginHost(load_plugins([config]))
    cpu, began = _cpu_s(), time.monotonic()
    host.start()
    try:
        for number, push in enumerate(pushes, start=1):
            host.offer(push)
            if number % 100 == 0:
                _wait(host, name, number - _AHEAD)
        _wait(host, name, len(pushes))
        seconds = time.monotonic() - began
    finally:
        host.stop(30.0)
    return len(pushes) / seconds, (_cpu_s() - cpu) / len(pushes) * 1e6


def _wait(host: PluginHost, name: str, exported: int) -> None:
    deadline = time.monotonic() + _WITHIN_S
    while True:
        (plugin,) = host.statistics()
        lost = sum(plugin.dropped.values())
        if plugin.exported_pushes >= exported and not lost:
            return
        if lost or time.monotonic() > deadline:
            raise BenchmarkError(
                f"{name}: {lost} pushes dropped, {plugin.exported_pushes} of {exported} exported; "
                f"last error: {plugin.last_error}"
            )
        time.sleep(0.001)


def _cpu_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
