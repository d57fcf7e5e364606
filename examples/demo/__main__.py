"""``python -m examples.demo``: starts everything, shows live who pushes what, ends with a summary.

``DEMO_SECONDS=60`` ends it by itself; the exit status is 0 only if metrics of every client arrived at the
collector with all labels. Without it, Ctrl-C ends it. Nothing is left running.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import ExitStack
from typing import Any, Final

import httpx
from rich.console import Console
from rich.live import Live

from examples.demo.arrivals import Arrivals
from examples.demo.view import view
from tests.testbed.broker import KafkaBroker
from tests.testbed.clients import Client, FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector
from tests.testbed.parts import NotSetUpError
from tests.testbed.ports import free_port
from tests.testbed.process import StartError
from tests.testbed.sidecar import Sidecar, config_for

_TOPIC: Final = "orders"
_PUSH_INTERVAL_MS: Final = 2_000
_PRINT_EVERY_S: Final = 10.0

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


def _start(stack: ExitStack) -> tuple[Sidecar, Collector, list[Client]]:
    began = time.monotonic()
    _say("a real Apache Kafka 4.4 broker; it advertises the sidecar's port, and has no telemetry plugin")
    broker = stack.enter_context(KafkaBroker(advertised_client_port=free_port()))
    broker.create_topic(_TOPIC, partitions=3)
    _say("a real OpenTelemetry Collector")
    collector = stack.enter_context(Collector())
    _say("the sidecar: kafka-telemetry serve, in front of the broker")
    sidecar = stack.enter_context(Sidecar(config_for(broker, collector=collector)))
    _say(f"PUT /v1/subscriptions/everything: all metrics, every {_PUSH_INTERVAL_MS / 1000:g} s")
    sidecar.put_subscription("everything", ["*"], _PUSH_INTERVAL_MS)
    clients: list[Client] = []
    for kind in (JavaClient, LibrdkafkaClient, FranzClient):
        for mode in Mode:
            _say(f"a {kind.language} {mode}")
            client = kind(mode, bootstrap=sidecar.bootstrap(), topic=_TOPIC)
            clients.append(stack.enter_context(client))
    _say(f"everything runs, after {time.monotonic() - began:.1f} s")
    return sidecar, collector, clients


def _known_clients(sidecar: Sidecar) -> dict[str, dict[str, Any]]:
    try:
        answer = sidecar.http.get("/v1/clients").raise_for_status().json()
    except httpx.HTTPError:
        return {}
    return {client["client_id"]: client for client in answer["items"]}


def _watch(
    sidecar: Sidecar,
    collector: Collector,
    clients: list[Client],
    stop: threading.Event,
    seconds: float | None,
) -> bool:
    client_ids = [client.client_id for client in clients]
    arrivals = Arrivals(client_ids)
    end = None if seconds is None else time.monotonic() + seconds
    hints = (
        f"clients:   {sidecar.url}/v1/clients",
        f"metrics:   {sidecar.url}/metrics",
        f"collector: {collector.file}",
        "Ctrl-C stops it all" if seconds is None else f"ends after {seconds:g} s",
    )
    last_printed = time.monotonic()
    live = Live(console=_console, refresh_per_second=4)
    interactive = _console.is_terminal
    if interactive:
        live.start()
    known: dict[str, dict[str, Any]] = {}
    try:
        while not stop.wait(0.5) and (end is None or time.monotonic() < end):
            arrivals.take(collector.exports())
            collector.forget()
            known = _known_clients(sidecar) or known
            if interactive:
                live.update(view(client_ids, arrivals, known, hints))
            elif time.monotonic() - last_printed >= _PRINT_EVERY_S:
                last_printed = time.monotonic()
                _console.print(view(client_ids, arrivals, known, hints))
    finally:
        if interactive:
            live.stop()
    if not interactive:
        _console.print(view(client_ids, arrivals, known, hints))
    for client in clients:
        arrived = arrivals[client.client_id]
        verdict = (
            "with all labels" if arrived.complete else f"MISSING: {sorted(arrived.missing) or 'everything'}"
        )
        _say(f"{client.client_id}: {len(arrived.names)} metrics, {arrived.points} points, {verdict}")
    return arrivals.complete


def main() -> int:
    """Run the demo; the result is the exit status."""
    seconds = _seconds()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        with ExitStack() as stack:
            sidecar, collector, clients = _start(stack)
            complete = _watch(sidecar, collector, clients, stop, seconds)
            _say("stopping everything")
    except (NotSetUpError, StartError) as error:
        sys.stderr.write(f"demo: {error}\n")
        return 1
    if seconds is None:
        return 0
    _say(
        "metrics of every client arrived at the collector with all labels"
        if complete
        else "NOT every client's metrics arrived with all labels"
    )
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
