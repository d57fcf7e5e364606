"""What is counted of connections equals what a client sent and received, also after kills."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.gateway.support import TIMEOUT_S, GatewaySidecar, Raw, api_versions, config
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import ScriptedBroker, produce_frame


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


class Ledger(Raw):
    """A client that notes the bytes that it sent and received, and its requests."""

    bytes_in = bytes_out = requests = 0

    def exchange(self, request: bytes) -> bytes:
        answer = super().exchange(request)
        self.bytes_in += len(request)
        self.bytes_out += 4 + len(answer)
        self.requests += 1
        return answer

    def work(self, times: int, size: int = 1_000) -> None:
        """Exchange some requests."""
        for number in range(times):
            self.exchange(produce_frame(2, bytes(size + number)))

    @property
    def noted(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("bytes_in", "bytes_out", "requests")}


def listed(sidecar: GatewaySidecar, **query: Any) -> list[dict[str, Any]]:
    answer = sidecar.http.get("/v1/connections", params=query).raise_for_status()
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def of(sidecar: GatewaySidecar, client: Ledger, **query: Any) -> dict[str, Any]:
    (found,) = [entry for entry in listed(sidecar, **query) if entry["source_port"] == client.port]
    return found


def used(sidecar: GatewaySidecar) -> dict[str, int]:
    """All usage, added up."""
    rows = sidecar.http.get("/v1/usage", params={"by": "principal"}).raise_for_status().json()["items"]
    names = ("bytes_in", "bytes_out", "requests", "connections")
    return {name: sum(row[name] for row in rows) for name in names}


def kill(sidecar: GatewaySidecar, name: str) -> None:
    """Kill a process, and wait until another one is in its place."""
    pid = sidecar.processes()[name]
    os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: sidecar.processes().get(name) not in {None, pid}, timeout_s=TIMEOUT_S, what=f"a new {name}"
    )
    wait_until(sidecar.is_ready, timeout_s=TIMEOUT_S, what="readiness")


def summed(clients: list[Ledger]) -> dict[str, int]:
    names = ("bytes_in", "bytes_out", "requests")
    return {
        **{name: sum(client.noted[name] for client in clients) for name in names},
        "connections": len(clients),
    }


@pytest.mark.parametrize(
    "pure", [pytest.param("", id="compiled"), pytest.param("1", id="python", marks=pytest.mark.full)]
)
def test_counters_equal_a_ledger_also_under_kills(broker: ScriptedBroker, pure: str) -> None:
    env = {"KAFKA_TELEMETRY_PURE_PYTHON": pure} if pure else {}
    settings = config(broker.port, gateway={"relays": 2})
    with GatewaySidecar(settings, env=env) as sidecar, contextlib.ExitStack() as opened:
        clients = [opened.enter_context(Ledger(sidecar.port())) for _ in range(4)]
        for number, client in enumerate(clients):
            client.exchange(api_versions(3))  # its answer is rewritten
            client.work(10 + number)
            entry = of(sidecar, client)
            assert {name: entry[name] for name in client.noted} == client.noted
            assert entry["last_minute"] == client.noted
            assert (entry["in_flight"], entry["last_api"]) == (0, "Produce")
            assert set(entry["api_versions"]) == {"ApiVersions", "Produce"}
        assert used(sidecar) == summed(clients)

        clients[0].socket.close()
        wait_until(lambda: len(listed(sidecar)) == 3, timeout_s=TIMEOUT_S, what="the end of a connection")
        (closed,) = listed(sidecar, closed=True)
        assert {name: closed[name] for name in clients[0].noted} == clients[0].noted
        assert closed["reason"] == "client_closed"

        kill(sidecar, "kct-core")
        for client in clients[1:]:
            client.work(5)
        assert used(sidecar) == summed(clients)

        kill(sidecar, "kct-relay-1")
        assert used(sidecar) == summed(clients)
        kill(sidecar, "kct-relay-2")
        assert used(sidecar) == summed(clients)
        clients.append(opened.enter_context(Ledger(sidecar.port())))
        clients[-1].exchange(api_versions(3))
        assert used(sidecar) == summed(clients)
        wait_until(
            lambda: [entry["reason"] for entry in listed(sidecar, closed=True)].count("relay_ended") == 3,
            timeout_s=TIMEOUT_S,
            what="the lost connections",
        )
        assert used(sidecar) == summed(clients)
