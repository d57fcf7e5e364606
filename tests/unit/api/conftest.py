"""The real REST application on the real store and telemetry core, called without a socket."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from receiver.api import ApiDependencies, Cluster, EventLog, RestServer, create_api
from receiver.brokers.listener_state import ListenerState
from receiver.cluster.rollup import Rollup
from receiver.host.delivery.statistics import PluginStatistics
from receiver.metrics import ProcessNumbers, ReceiverMetrics
from receiver.settings.limits import LimitsSettings, PrincipalLimitsSettings
from receiver.settings.model import TelemetrySettings
from receiver.settings.rest import RestSettings
from receiver.settings.usage import UsageSettings
from receiver.store.declared_owners import DeclaredOwners
from receiver.store.owner_file import OwnerFile
from receiver.store.sqlite import SqliteSubscriptionStore
from receiver.store.store import SubscriptionStore
from receiver.store.subscriptions import Subscriptions
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.current_subscriptions import CurrentSubscriptions
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.outcomes import SubscriptionsOutcome
from receiver.telemetry.owners import Owners
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.traffic.traffic import Traffic
from receiver.traffic.usage_store import open_usage
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.uuid import Uuid
from tests.plain_texts import python_objects
from tests.testbed.ports import listening_on

Scenario = Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]]


async def _is_plain(response: httpx.Response) -> None:
    """Check that an error shows no Python object."""
    if response.is_error:
        assert python_objects((await response.aread()).decode()) == []


VIEWER_TOKEN = "viewer-token-of-the-tests"
EDITOR_TOKEN = "editor-token-of-the-tests"


def token_settings(**facts: Any) -> RestSettings:
    """A viewer and an editor, each with a token; loopback, and a port that the system chooses."""
    return RestSettings.model_validate(
        {
            "bind": "127.0.0.1:0",
            "tokens": [
                {"name": name, "role": role, "sha256": hashlib.sha256(token.encode()).hexdigest()}
                for name, role, token in (("vera", "viewer", VIEWER_TOKEN), ("ed", "editor", EDITOR_TOKEN))
            ],
            **facts,
        }
    )


def bearer(token: str) -> dict[str, str]:
    """The Authorization header of a token."""
    return {"authorization": f"Bearer {token}"}


def whole(name: str, body: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The document of a subscription that was put with this body."""
    return {
        "name": name,
        "interval_ms": 300_000,
        "match": {},
        "enabled": True,
        "expires_at": None,
        "temporality": None,
        "labels": {},
        "description": "",
        "changed_by": "anonymous",
        "changed_at": WALL_TEXT,
        "state": "active",
        **body,
        **changes,
    }


#: The wall clock of the API in nanoseconds since the epoch, and in RFC 3339.
WALL_NS = 1_795_255_024_788_074_000
WALL_TEXT = "2026-11-21T09:57:04.788Z"


UNLIMITED = PrincipalLimitsSettings(
    connections=None,
    new_connections_per_second=None,
    new_instances_per_minute=None,
    telemetry_requests_per_second=None,
    core_ms_per_second=None,
    rejected_bytes_per_minute=None,
)


class Clock:
    """A monotonic clock that a test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def telemetry_core(max_instances: int = 16_384, **settings: Any) -> ClientTelemetry:
    """The real telemetry core without subscriptions."""
    return ClientTelemetry(
        settings=TelemetrySettings(
            max_instances=max_instances,
            **{"default_interval_ms": 300_000, "unsubscribed_metrics": "keep", **settings},
        ),
        subscriptions=CurrentSubscriptions(),
        limits=Limits(LimitsSettings(source_address=UNLIMITED, principal=UNLIMITED)),
        random_bytes=os.urandom,
    )


def connection(number: int, **facts: Any) -> ClientIdentity:
    """A connection from 10.0.0.7, port 40000 + number."""
    return ClientIdentity(
        **{
            "id": f"CLIENT-{number}",
            "listener": "CLIENT",
            "security_protocol": "PLAINTEXT",
            "source_address": "10.0.0.7",
            "source_port": 40_000 + number,
            "since": 1_700_000_000.25 + number,
            "client_id": "orders",
            "client_software_name": "apache-kafka-java",
            "client_software_version": "4.4.0",
            **facts,
        }
    )


def ask(telemetry: ClientTelemetry, number: int, now: float, **facts: Any) -> SubscriptionsOutcome:
    """Make a client instance ask for its subscriptions over the connection of the same number."""
    request = GetTelemetrySubscriptionsRequest(client_instance_id=instance_id(number))
    return telemetry.get_telemetry_subscriptions(connection(number, **facts), request, now=now)


def instance_id(number: int) -> Uuid:
    """The client instance id of a number, from 2 on: the first two are reserved."""
    return Uuid(number.to_bytes(16, "big"))


@dataclass
class Api:
    """The application and its dependencies."""

    store: SubscriptionStore
    clock: Clock = field(default_factory=Clock)
    wall_ns: int = WALL_NS
    telemetry: ClientTelemetry = field(default_factory=telemetry_core)
    connections: list[ClientIdentity] = field(default_factory=list)
    plugins: list[PluginStatistics] = field(default_factory=list)
    listeners: list[ListenerState] = field(default_factory=list)
    exposition: Callable[[str | None], tuple[bytes, str]] = field(
        default_factory=lambda: ReceiverMetrics(version="9.9.9").exposition
    )
    processes: list[ProcessNumbers] = field(default_factory=list)
    relays: int = 2
    certificates: list[tuple[str, str, float]] = field(default_factory=list)
    supervisor_hangs: bool = False
    not_ready_because: str | None = None
    warnings: list[str] = field(default_factory=list)
    accepts_somewhere: bool = True
    settings: RestSettings = field(default_factory=RestSettings)
    refused: list[str] = field(default_factory=list)
    cluster: Cluster = field(default_factory=lambda: Cluster(receiver_id="receiver-1"))
    rollup: Rollup | None = None
    store_name: str = "sqlite"
    scattered: str | None = None
    owner_file: Path | None = None
    _events: EventLog | None = None
    _traffic: Traffic | None = None

    def run(self, scenario: Scenario, *, host: str = "127.0.0.1:8642") -> None:
        async def whole() -> None:
            app = await self.app()
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(
                transport=transport,
                base_url=f"http://{host}",
                event_hooks={"response": [_is_plain]},
                timeout=60,
            ) as client:
                await scenario(client)

        asyncio.run(whole())

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[RestServer]:
        """A real server of the application."""
        server = RestServer(
            await self.app(), self.settings, listening_on(self.settings.bind.host, self.settings.bind.port)
        )
        server.start()
        try:
            yield server
        finally:
            await server.stop()

    def traffic(self) -> Traffic:
        """The traffic of the connections, from the first call on."""
        if self._traffic is None:
            self._traffic = Traffic(open_usage(UsageSettings(), None), lambda: self.wall_ns)
        return self._traffic

    def events(self) -> EventLog:
        """The events of the telemetry core, from the first call on."""
        if self._events is None:
            self._events = EventLog(lambda: self.wall_ns)
            self.telemetry.on_created = self._events.client_created
            self.telemetry.on_forgotten = self._events.client_forgotten
        return self._events

    async def _refresh(self) -> None:
        """Nothing to read: there are no other processes."""

    def _owners_changed(self, before: Owners, after: Owners) -> None:
        self.telemetry.owners = after
        self.events().owners_replaced(before, after)

    async def app(self) -> FastAPI:
        """The application."""
        subscriptions = Subscriptions(
            self.store,
            self.telemetry.subscriptions,
            now=lambda: datetime.fromtimestamp(self.wall_ns / 1e9, UTC),
            changed=self.events().subscriptions_replaced,
        )
        await subscriptions.load()
        owners = DeclaredOwners(self._owners_changed)
        if self.owner_file is not None:
            owners.use(None, OwnerFile(self.owner_file))
        return create_api(
            ApiDependencies(
                version="9.9.9",
                subscriptions=subscriptions,
                telemetry=self.telemetry,
                monotonic=self.clock,
                connections=lambda: self.connections,
                traffic=self.traffic(),
                plugins=lambda: self.plugins,
                listeners=lambda: self.listeners,
                supervisor_hangs=lambda: self.supervisor_hangs,
                not_ready_because=lambda: self.not_ready_because,
                warnings=lambda: self.warnings,
                accepts_somewhere=lambda: self.accepts_somewhere,
                refresh=self._refresh,
                exposition=self.exposition,
                count_refusal=self.refused.append,
                processes=lambda: self.processes,
                relays=lambda: (self.relays, 2),
                restarts=lambda: {"core": 0, "relay": 1},
                certificates=lambda: self.certificates,
                store=lambda: self.store_name,
                scattered=lambda: self.scattered,
                owners=owners,
                events=self.events(),
                cluster=self.cluster,
                rollup=self.rollup,
                wall_ns=lambda: self.wall_ns,
            ),
            self.settings,
        )


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    store = SqliteSubscriptionStore(tmp_path / "subscriptions.db")
    yield Api(store)
    store.close()


@pytest.fixture
def apis(tmp_path: Path) -> Iterator[list[Api]]:
    stores = [SqliteSubscriptionStore(tmp_path / f"{number}.db") for number in range(3)]
    yield [Api(store, clock=Clock()) for store in stores]
    for store in stores:
        store.close()


def problem_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The problem document of an answer, once it has been checked to be one."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "about:blank"
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    assert isinstance(problem, dict)
    return problem
