"""Benchmark of subscriptions at their bounds: 1,000 of them and 16,384 client instances.

It measures, in this process and without sockets: the union of the matching subscriptions of a new
client, the first request of a client after a change, and lists of clients with each filter as the
REST API makes them, in its thread. Each client has another client id, address and principal, and
each subscription another pattern, so that nothing is matched twice.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import httpx

from benchmarks.figures import Figure, Report, table
from receiver.api import ApiDependencies, Cluster, EventLog, create_api
from receiver.metrics import ReceiverMetrics
from receiver.process_memory import tune_garbage_collection
from receiver.settings.limits import LimitsSettings, PrincipalLimitsSettings
from receiver.settings.model import TelemetrySettings
from receiver.settings.rest import RestSettings
from receiver.settings.usage import UsageSettings
from receiver.store.sqlite import SqliteSubscriptionStore
from receiver.store.subscriptions import Subscriptions
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.current_subscriptions import CurrentSubscriptions
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.subscription import Subscription, SubscriptionSet
from receiver.telemetry.subscription_checks import MAX_SUBSCRIPTIONS
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.traffic.traffic import Traffic
from receiver.traffic.usage_store import open_usage
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.uuid import Uuid

_NOW = datetime(2026, 11, 23, tzinfo=UTC)

_INSTANCES = 16_384
_MATCH_MS_GOAL = 1.0
_LIST_MS_GOAL = 50.0
_GROUPS = 250

_UNLIMITED = PrincipalLimitsSettings(
    connections=None,
    new_connections_per_second=None,
    new_instances_per_minute=None,
    telemetry_requests_per_second=None,
    core_ms_per_second=None,
    rejected_bytes_per_minute=None,
)

#: Filters of ``/v1/clients``: none, some or all clients pass.
_QUERIES = (
    "limit=1000",
    "client_id=orders-7-77",
    "client_id=absent",
    "software=apache-kafka-java&limit=1000",
    "version=4.4.0&state=waiting&limit=1000",
    "principal=User:77",
    "state=silent",
    "subscription=s0007",
    "subscription=every&limit=1000",
)


def run(folder: Path, *, quick: bool) -> Report:
    """Measure all of it, in rounds."""
    rounds = 3 if quick else 9
    telemetry = _telemetry()
    clients = [_client(number) for number in range(_INSTANCES)]
    cold = [_milliseconds(lambda: SubscriptionSet(_subscriptions()).assignment(clients[0]))]
    telemetry.subscriptions.replace(SubscriptionSet(_subscriptions()), _NOW)
    matching = [
        _milliseconds(lambda client=client: telemetry.subscriptions.active.assignment(client))  # type: ignore[misc]
        for client in clients[:4000]
    ]
    for number, client in enumerate(clients):
        _ask(telemetry, number, client, 0.0)
    # One subscription changes; every client is matched anew with its next request.
    *others, _ = _subscriptions()
    telemetry.subscriptions.replace(SubscriptionSet([*others, Subscription("s0999", ("b.",))]), _NOW)
    changed = [
        _milliseconds(lambda n=number, c=client: _ask(telemetry, n, c, 1.0))  # type: ignore[misc]
        for number, client in enumerate(clients[:4000])
    ]
    tune_garbage_collection()
    measured = asyncio.run(_lists(folder, telemetry, rounds))
    lists = {name: [wall for wall, _ in values] for name, values in measured.items()}
    cpu_ms = max(statistics.median(cpu for _, cpu in values) for values in measured.values())
    head = ("what", "median ms", "99 % ms", "longest ms")
    figures = {"effective subscription": matching, "request after a change": changed[1:]}
    rows = [(name, *_spread(values)) for name, values in (figures | lists).items()]
    rows.append(("first match after a start", *_spread(cold)))
    rows.append(("first match after a change", *_spread(changed[:1])))
    slowest = max(statistics.median(values) for values in lists.values())
    return Report(
        title=f"{MAX_SUBSCRIPTIONS:,} subscriptions and {_INSTANCES:,} client instances",
        text=table(head, rows),
        raw={**figures, **measured, "cold": cold},
        figures=[
            Figure(
                name="effective subscription",
                value=statistics.median(matching),
                unit="ms",
                at_most=_MATCH_MS_GOAL,
            ),
            Figure(
                name="GET /v1/clients, slowest filter",
                value=slowest,
                unit="ms",
                at_most=_LIST_MS_GOAL,
                note=f"{cpu_ms:.1f} ms of CPU",
            ),
        ],
    )


async def _lists(
    folder: Path, telemetry: ClientTelemetry, rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Return milliseconds of each list, with those of CPU in all threads."""
    store = SqliteSubscriptionStore(folder / "subscriptions.db")
    dependencies = ApiDependencies(
        version="0",
        subscriptions=Subscriptions(store, telemetry.subscriptions, now=lambda: _NOW),
        telemetry=telemetry,
        monotonic=lambda: 2.0,
        traffic=Traffic(open_usage(UsageSettings(), None)),
        connections=list,
        plugins=list,
        listeners=list,
        supervisor_hangs=lambda: False,
        not_ready_because=lambda: None,
        accepts_somewhere=lambda: True,
        warnings=list,
        refresh=_nothing,
        exposition=ReceiverMetrics(version="0").exposition,
        count_refusal=lambda _: None,
        processes=list,
        relays=lambda: (1, 1),
        restarts=dict,
        certificates=list,
        store=lambda: "sqlite",
        scattered=lambda: None,
        cluster=Cluster(receiver_id="receiver-1"),
        events=EventLog(time.time_ns),
    )
    transport = httpx.ASGITransport(create_api(dependencies, RestSettings()))
    taken: dict[str, list[tuple[float, float]]] = {}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as rest:
        for _ in range(rounds):
            for query in _QUERIES:
                started, cpu = time.perf_counter(), time.process_time()
                (await rest.get(f"/v1/clients?{query}")).raise_for_status()
                cpu_ms, wall_ms = (time.process_time() - cpu) * 1000, (time.perf_counter() - started) * 1000
                taken.setdefault(f"clients?{query}", []).append((wall_ms, cpu_ms))
    store.close()
    return taken


async def _nothing() -> None:
    pass


def _telemetry() -> ClientTelemetry:
    return ClientTelemetry(
        settings=TelemetrySettings(max_instances=_INSTANCES),
        subscriptions=CurrentSubscriptions(),
        limits=Limits(LimitsSettings(source_address=_UNLIMITED, principal=_UNLIMITED)),
        random_bytes=lambda count: bytes(range(count)),
    )


def _subscriptions() -> list[Subscription]:
    """Return one for every client, and others by client id, principal and address."""
    conditions = (
        lambda n: {"client_id": f"orders-{n}-[0-9]+"},
        lambda n: {"principal": f"User:{n}[0-9]*", "client_software_name!": "librdkafka"},
        lambda n: {"client_source_address": rf"10\.{n % 256}\..*", "client_id!": f".*-{n}"},
    )
    return [
        Subscription("every", ("org.apache.kafka.",), 60_000),
        *(
            Subscription(f"s{number:04}", (f"m{number % 100}.",), 60_000, conditions[number % 3](number))
            for number in range(1, MAX_SUBSCRIPTIONS)
        ),
    ]


def _client(number: int) -> ClientIdentity:
    return ClientIdentity(
        id=f"c{number}",
        listener="CLIENT",
        security_protocol="SASL_SSL",
        source_address=f"10.{number % _GROUPS}.{number // _GROUPS}.1",
        source_port=40_000,
        since=0.0,
        client_id=f"orders-{number % _GROUPS}-{number}",
        client_software_name="apache-kafka-java",
        client_software_version="4.4.0",
        principal=f"User:{number}",
    )


def _ask(telemetry: ClientTelemetry, number: int, client: ClientIdentity, now: float) -> None:
    instance = Uuid((number + 2).to_bytes(16, "big"))
    request = GetTelemetrySubscriptionsRequest(client_instance_id=instance)
    telemetry.get_telemetry_subscriptions(replace(client, client_instance_id=instance), request, now=now)


def _milliseconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


def _spread(values: list[float]) -> tuple[str, str, str]:
    ordered = sorted(values)
    return (
        f"{statistics.median(ordered):.3f}",
        f"{ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]:.3f}",
        f"{ordered[-1]:.3f}",
    )
