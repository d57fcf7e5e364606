"""The real application over the real store, reached without a socket."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from receiver.api import ApiDependencies, ClientState, create_api
from receiver.metrics import ReceiverMetrics
from receiver.store import SqliteSubscriptionStore, Subscriptions
from receiver.telemetry.connection import Connection
from receiver.telemetry.subscription import SubscriptionSet
from receiver.wire.uuid import Uuid

Scenario = Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]]


@dataclass
class KnownClients:
    """Client instances by id, for what the telemetry core knows."""

    by_id: dict[Uuid, ClientState] = field(default_factory=dict)

    def ids(self) -> list[Uuid]:
        return list(self.by_id)

    def get(self, client_instance_id: Uuid) -> ClientState | None:
        return self.by_id.get(client_instance_id)


@dataclass
class Api:
    """The application with what it was given."""

    store: SqliteSubscriptionStore
    clients: KnownClients = field(default_factory=KnownClients)
    connections: list[Connection] = field(default_factory=list)
    in_force: list[SubscriptionSet] = field(default_factory=list)
    metrics: ReceiverMetrics = field(default_factory=lambda: ReceiverMetrics(version="9.9.9"))
    not_ready_because: str | None = None

    def run(self, scenario: Scenario, *, host: str = "127.0.0.1:8642") -> None:
        async def whole() -> None:
            subscriptions = Subscriptions(self.store, self.in_force.append)
            await subscriptions.load()
            app = create_api(
                ApiDependencies(
                    version="9.9.9",
                    subscriptions=subscriptions,
                    clients=self.clients,
                    connections=lambda: self.connections,
                    not_ready_because=lambda: self.not_ready_because,
                    metrics=self.metrics,
                )
            )
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
                await scenario(client)

        asyncio.run(whole())


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    store = SqliteSubscriptionStore(tmp_path / "subscriptions.db")
    yield Api(store)
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
