"""Runs the command line in this process against a real REST server."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner, Result

from receiver.api import ApiDependencies, Cluster, EventLog, RestServer, create_api
from receiver.brokers.listener_state import ListenerState
from receiver.cli import app
from receiver.cluster.members import Members
from receiver.host.delivery.statistics import PluginStatistics
from receiver.log import configure as configure_log
from receiver.metrics import ProcessNumbers, ReceiverMetrics
from receiver.settings.cluster import ClusterSettings
from receiver.settings.hostport import HostPort
from receiver.settings.model import LogSettings
from receiver.settings.rest import RestSettings
from receiver.settings.usage import UsageSettings
from receiver.store.declared_owners import DeclaredOwners
from receiver.store.owner_file import OwnerFile
from receiver.store.sqlite import SqliteSubscriptionStore
from receiver.store.subscriptions import Subscriptions
from receiver.telemetry.identity import ClientIdentity
from receiver.traffic.traffic import Traffic
from receiver.traffic.usage_store import open_usage
from tests.plain_texts import python_objects
from tests.testbed.ports import listening_on
from tests.unit.api.conftest import Clock, telemetry_core

Run = Callable[..., Result]


class Sidecar:
    """The REST API in a thread."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.settings = RestSettings(bind=HostPort(host="127.0.0.1", port=0), **settings)
        self.telemetry = telemetry_core()
        self.plugins: list[PluginStatistics] = []
        self.connections: list[ClientIdentity] = []
        self.listeners: list[ListenerState] = []
        self.processes: list[ProcessNumbers] = []
        self.certificates: list[tuple[str, str, float]] = []
        self.warnings: list[str] = []
        self.not_ready_because: str | None = None
        self.traffic = Traffic(open_usage(UsageSettings(), None))
        self._events = EventLog(time.time_ns)
        #: The URLs of all receivers of its cluster, if there are others.
        self.members: list[str] = []
        self.receiver_id = path.stem
        self._path = path
        self.store = SqliteSubscriptionStore(path)
        self.url = ""
        self._up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def start(self) -> None:
        self._thread.start()
        assert self._up.wait(120)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(120)
        self.store.close()
        assert not self._thread.is_alive()

    async def _refresh(self) -> None:
        """Nothing to read: there are no other processes."""

    async def _serve(self) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        subscriptions = Subscriptions(
            self.store,
            self.telemetry.subscriptions,
            now=lambda: datetime.now(UTC),
            changed=self._events.subscriptions_replaced,
        )
        await subscriptions.load()
        owners = DeclaredOwners(lambda _, after: setattr(self.telemetry, "owners", after))
        owners.use(None, OwnerFile(self._path.with_name("owners.json")))
        patient = {"connect_timeout_ms": 10_000, "timeout_ms": 20_000}
        members = None
        if self.members:
            cluster = ClusterSettings.model_validate({"members": self.members, **patient})
            members = Members(cluster, self.receiver_id)
        api = create_api(
            ApiDependencies(
                version="9.9.9",
                subscriptions=subscriptions,
                telemetry=self.telemetry,
                monotonic=Clock(),
                traffic=self.traffic,
                connections=lambda: self.connections,
                listeners=lambda: self.listeners,
                plugins=lambda: self.plugins,
                supervisor_hangs=lambda: False,
                not_ready_because=lambda: self.not_ready_because,
                warnings=lambda: self.warnings,
                accepts_somewhere=lambda: True,
                refresh=self._refresh,
                exposition=ReceiverMetrics(version="9.9.9").exposition,
                count_refusal=lambda reason: None,
                processes=lambda: self.processes,
                relays=lambda: (2, 2),
                restarts=lambda: {"core": 0, "relay": 0},
                certificates=lambda: self.certificates,
                store=lambda: "sqlite",
                scattered=lambda: None,
                cluster=Cluster(receiver_id=self.receiver_id, members=members),
                events=self._events,
                owners=owners,
            ),
            self.settings,
        )
        server = RestServer(
            api, self.settings, listening_on(self.settings.bind.host, self.settings.bind.port)
        )
        server.start()
        scheme = "http" if self.settings.tls is None else "https"
        self.url = f"{scheme}://{server.address}"
        self._up.set()
        await self._done.wait()
        await server.stop()
        if members is not None:
            await members.close()


@contextmanager
def served(sidecar: Sidecar) -> Iterator[Sidecar]:
    """Run a sidecar that logs to the stderr of before the command."""
    configure_log(LogSettings())
    sidecar.start()
    try:
        yield sidecar
    finally:
        sidecar.stop()
        structlog.reset_defaults()


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    with served(Sidecar(tmp_path / "subscriptions.db")) as running:
        yield running


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line; arguments as texts, variables by name."""
    monkeypatch.delenv("KAFKA_TELEMETRY_URL", raising=False)
    monkeypatch.delenv("KAFKA_TELEMETRY_CONFIG", raising=False)
    monkeypatch.delenv("KAFKA_TELEMETRY_TOKEN", raising=False)

    def command(*arguments: str, stdin: str | None = None, **environ: str) -> Result:
        done = CliRunner().invoke(app, arguments, input=stdin, env=environ, prog_name="kafka-telemetry")
        assert python_objects(done.output) == []
        return done

    return command
