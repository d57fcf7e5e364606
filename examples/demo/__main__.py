"""``python -m examples.demo``: starts everything, shows live who pushes what, ends with a summary.

One client is throttled, and one group rebalances all the time. The console at the address that the
demo prints shows both, and the demo ends with them in words.

Ctrl-C ends it. With ``DEMO_SECONDS=60`` it ends after a minute, or up to three minutes later while
metrics are missing, because Spark starts slowly on a busy machine. The exit status is then 0 only
if metrics of every client arrived at the collector with all labels, and in PostgreSQL, and the
throttled client was found.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import httpx
from rich.console import Console
from rich.live import Live

from examples.demo.arrivals import Arrivals
from examples.demo.culprits import THROTTLED, in_words, restless_member, signs_of, throttled_producer
from examples.demo.rolled_up import RolledUp, Summary
from examples.demo.view import view
from receiver.cli.subscription_presets import Preset, read_preset
from spark_streaming.embedded import EmbeddedError, EmbeddedPostgres
from tests.testbed.broker import KafkaBroker
from tests.testbed.clients import Client, FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector
from tests.testbed.parts import NotSetUpError
from tests.testbed.ports import free_port
from tests.testbed.process import ScratchFolder, StartError, WaitTimeoutError, wait_until
from tests.testbed.rollup import Rollup
from tests.testbed.sidecar import Sidecar, config_for

_TOPIC: Final = "orders"
#: The group of the Java consumer.
_REBALANCING: Final = "orders-java-consumer"
_PUSH_INTERVAL_MS: Final = 2_000
_PRINT_EVERY_S: Final = 10.0
_ROLL_SECONDS: Final = 2
_SPARK_WITHIN_S: Final = 180.0
#: How much longer than DEMO_SECONDS it runs while metrics are missing.
_LATE_WITHIN_S: Final = 180.0
_ROLLUP: Final = {"trigger_seconds": 2.0, "grace_seconds": 10.0, "spark": {"spark.driver.memory": "512m"}}
_DASHBOARDS: Final = "deploy/helm/kafka-client-telemetry/dashboards"

_console = Console()


def _seconds() -> float | None:
    text = os.environ.get("DEMO_SECONDS", "").strip()
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        sys.exit(f"DEMO_SECONDS={text!r}: expected a number of seconds greater than 0, for example 60")
    return seconds


def _say(text: str) -> None:
    _console.print(f"[bold]==> \\[demo][/bold] {text}", highlight=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """Everything that runs."""

    sidecar: Sidecar
    collector: Collector
    clients: list[Client]
    rollup: Rollup
    postgres: str


def _start(stack: ExitStack) -> _Running:
    began = time.monotonic()
    spool = stack.enter_context(ScratchFolder("spool")).path / "telemetry"
    _say("a real Apache Kafka 4.4 broker; it advertises the sidecar's port, and has no telemetry plugin")
    broker = stack.enter_context(KafkaBroker(advertised_client_port=free_port()))
    broker.create_topic(_TOPIC, partitions=3)
    _say("a real OpenTelemetry Collector")
    collector = stack.enter_context(Collector())
    _say("the sidecar: kafka-telemetry serve, in front of the broker, with the plugins otlp and spool_files")
    config = config_for(broker, collector=collector)
    config["plugins"].append({"type": "spool_files", "path": str(spool), "roll_seconds": _ROLL_SECONDS})
    sidecar = stack.enter_context(Sidecar(config))
    asked_for = read_preset(Preset.DASHBOARDS)["metrics"]
    _say(
        f"PUT /v1/subscriptions/{Preset.DASHBOARDS}: the {len(asked_for)} metrics that dashboards and "
        f"findings read, every {_PUSH_INTERVAL_MS / 1000:g} s"
    )
    sidecar.put_subscription(Preset.DASHBOARDS, asked_for, _PUSH_INTERVAL_MS)
    clients: list[Client] = []
    for kind in (JavaClient, LibrdkafkaClient, FranzClient):
        for mode in Mode:
            _say(f"a {kind.language} {mode}")
            client = kind(mode, bootstrap=sidecar.bootstrap(), topic=_TOPIC)
            clients.append(stack.enter_context(client))
    _say(f"a librdkafka producer, {THROTTLED}, with a quota far below what it sends")
    clients.append(stack.enter_context(throttled_producer(broker, sidecar.bootstrap(), _TOPIC)))
    _say(f"a member that joins and leaves the group {_REBALANCING} all the time")
    stack.enter_context(restless_member(sidecar.bootstrap(), _TOPIC, _REBALANCING))
    _say("a PostgreSQL and the roll-up: kafka-telemetry rollup run. Spark takes a while to start")
    data = stack.enter_context(ScratchFolder("postgres")).path
    postgres = stack.enter_context(EmbeddedPostgres(data)).url
    rollup = stack.enter_context(Rollup(spool=spool, postgres=postgres, settings=_ROLLUP))
    wait_until(
        lambda: "migrated" in rollup.log_text() or not rollup.running,
        timeout_s=_SPARK_WITHIN_S,
        what="the roll-up's tables",
    )
    _say(f"everything runs, after {time.monotonic() - began:.1f} s. The console: {sidecar.url}/")
    return _Running(sidecar=sidecar, collector=collector, clients=clients, rollup=rollup, postgres=postgres)


def _known_clients(sidecar: Sidecar) -> dict[str, dict[str, Any]]:
    try:
        answer = sidecar.http.get("/v1/clients").raise_for_status().json()
    except httpx.HTTPError:
        return {}
    return {client["client_id"]: client for client in answer["items"]}


def _lines(found: Mapping[tuple[str, str], Mapping[str, Any]]) -> list[str]:
    return [f"{client_id} is {kind.replace('_', ' ')}" for kind, client_id in found]


def _watch(running: _Running, stop: threading.Event, seconds: float | None) -> bool:
    sidecar, collector, clients = running.sidecar, running.collector, running.clients
    client_ids = [client.client_id for client in clients]
    arrivals = Arrivals(client_ids)
    end = None if seconds is None else time.monotonic() + seconds
    hints = (
        f"console:   {sidecar.url}/",
        f"metrics:   {sidecar.url}/metrics",
        f"collector: {collector.file}",
        f"postgres:  psql '{running.postgres}'",
        "grafana:   while this runs, add a data source of type PostgreSQL with that host, database and "
        f"user, and import {_DASHBOARDS}; examples/docker-compose has a Grafana of its own",
        "Ctrl-C stops it all"
        if seconds is None
        else f"ends after {seconds:g} s, once every client's metrics arrived",
    )
    last_printed = time.monotonic()
    live = Live(console=_console, refresh_per_second=4)
    interactive = _console.is_terminal
    if interactive:
        live.start()
    known: dict[str, dict[str, Any]] = {}
    summary = Summary()
    found: dict[tuple[str, str], dict[str, Any]] = {}

    def complete() -> bool:
        rolled_up = all(summary.metrics.get(client_id) for client_id in client_ids)
        return arrivals.complete and rolled_up and ("throttled", THROTTLED) in found

    def over() -> bool:
        late_s = -1.0 if end is None else time.monotonic() - end
        return late_s >= (0.0 if complete() else _LATE_WITHIN_S)

    try:
        with RolledUp(running.postgres) as rolled_up:
            while not stop.wait(0.5) and not over():
                if not running.rollup.running:
                    raise StartError(f"the roll-up ended; its log ends with:\n{running.rollup.log_tail()}")
                arrivals.take(collector.exports())
                collector.forget()
                known = _known_clients(sidecar) or known
                found |= {(sign["kind"], sign["client_id"]): sign for sign in signs_of(sidecar) or ()}
                summary = rolled_up.summary()
                if interactive:
                    live.update(view(client_ids, arrivals, known, summary, hints, _lines(found)))
                elif time.monotonic() - last_printed >= _PRINT_EVERY_S:
                    last_printed = time.monotonic()
                    _console.print(view(client_ids, arrivals, known, summary, hints, _lines(found)))
    finally:
        if interactive:
            live.stop()
    if not interactive:
        _console.print(view(client_ids, arrivals, known, summary, hints, _lines(found)))
    for client_id in client_ids:
        arrived, metrics = arrivals[client_id], summary.metrics.get(client_id, 0)
        verdict = (
            "with all labels" if arrived.complete else f"MISSING: {sorted(arrived.missing) or 'everything'}"
        )
        _say(
            f"{client_id}: {len(arrived.names)} metrics, {arrived.points} points, {verdict}; "
            f"{metrics or 'NO'} metrics in PostgreSQL"
        )
    for sign in found.values():
        _say(in_words(sign))
    if not found:
        _say("NO client showed anything wrong")
    return complete()


def main() -> int:
    """Run the demo; the result is the exit status."""
    seconds = _seconds()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        with ExitStack() as stack:
            complete = _watch(_start(stack), stop, seconds)
            _say("stopping everything")
    except (NotSetUpError, StartError, WaitTimeoutError, EmbeddedError) as error:
        sys.stderr.write(f"demo: {error}\n")
        return 1
    if seconds is None:
        return 0
    _say(
        "metrics of every client arrived at the collector with all labels, and in PostgreSQL, and the "
        "throttled client was found"
        if complete
        else "NOT every client's metrics arrived everywhere with all labels, or the throttled client was "
        "not found"
    )
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
