"""Filters of clients and connections: each alone, together, and over pages."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from receiver.api.filters import ClientQuery, ConnectionQuery, ConnectionState, matching_clients
from receiver.telemetry.client_state import ClientState
from receiver.telemetry.subscription import Subscription
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import uuid_to_text
from tests.unit.api.conftest import Api, ask, connection, instance_id, problem_of

PAGE = (Path(__file__).parents[3] / "docs" / "rest.md").read_text()

#: What each connection and client says.
CLIENTS: dict[int, dict[str, Any]] = {
    2: {"client_id": "orders-1"},
    3: {"client_id": "orders-1", "principal": "User:alice"},
    4: {"client_id": "billing", "client_software_name": "librdkafka", "client_software_version": "2.16.0"},
    5: {"client_id": "", "listener": "SECURE"},
    6: {
        "client_id": "python",
        "client_software_name": "confluent-kafka-python",
        "client_software_version": "0.9-rdkafka-2.16.0",
        "principal": "User:CN=a+b",
    },
}


@pytest.fixture
def fleet(api: Api) -> Api:
    api.store.put(Subscription("some", ("a.",), 10_000, {"client_id": "orders-.*|billing"}))
    return api


def connect(api: Api) -> None:
    """Connect all clients, and one that sends no telemetry."""
    for number, facts in CLIENTS.items():
        ask(api.telemetry, number, api.clock.now, **facts)
        api.connections.append(connection(number, **facts))
    api.connections.append(connection(9, client_id="mute"))


async def found(rest: httpx.AsyncClient, kind: str, query: str) -> list[int]:
    items = (await rest.get(f"/v1/{kind}?{query}")).raise_for_status().json()["items"]
    key = "connection_id" if kind == "clients" else "id"
    return [int(item[key].removeprefix("CLIENT-")) for item in items]


@pytest.mark.parametrize(
    ("query", "clients", "connections"),
    [
        ("", [2, 3, 4, 5, 6], [2, 3, 4, 5, 6, 9]),
        ("client_id=orders-1", [2, 3], [2, 3]),
        ("client_id=orders", [], []),
        ("client_id=ord.*|bill.*", [2, 3, 4], [2, 3, 4]),
        ("client_id=.*&principal=User:(alice|bob)", [3], [3]),
        ("software=librdkafka", [4, 6], [4, 6]),
        ("software=librdkafka&version=2[.].*", [4, 6], [4, 6]),
        ("software=librdkafka&version=0[.].*", [], []),
        ("software=confluent-.*", [6], [6]),
        ("principal=User:CN%3Da%2Bb", [6], [6]),
        ("client_id=", [5], [5]),
        ("version=2.16.0", [4, 6], [4, 6]),
        ("principal=User:alice", [3], [3]),
        ("listener=SECURE", [5], [5]),
        ("subscription=some", [2, 3, 4], [2, 3, 4]),
        ("subscription=other", [], []),
        ("state=waiting", [2, 3, 4], [2, 3, 4]),
        ("state=unsubscribed", [5, 6], [5, 6]),
        ("state=pushing", [], []),
        ("client_id=orders-1&principal=User:ANONYMOUS", [2], [2]),
        ("client_id=orders-1&software=librdkafka", [], []),
        ("state=waiting&subscription=some&version=4.4.0&limit=1", [2], [2]),
    ],
)
def test_filters(fleet: Api, query: str, clients: list[int], connections: list[int]) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        connect(fleet)
        assert await found(rest, "clients", query) == clients
        assert await found(rest, "connections", query) == connections

    fleet.run(scenario)


def test_a_pattern_that_re2_refuses_is_an_error(fleet: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        for kind in ("clients", "connections"):
            for pattern in ("(", "a{1000000}", "(?=a)"):
                problem = problem_of(await rest.get(f"/v1/{kind}", params={"client_id": pattern}), 422)
                (error,) = problem["errors"]
                assert (error["field"], error["value"]) == ("client_id", pattern)
                assert error["detail"].startswith("is no regular expression (RE2): ")

    fleet.run(scenario)


def test_a_connection_may_have_no_telemetry(fleet: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        connect(fleet)
        assert await found(rest, "connections", "state=no_telemetry") == [9]
        problem = problem_of(await rest.get("/v1/clients?state=no_telemetry"), 422)
        assert "expected one of terminated, silent" in problem["detail"]

    fleet.run(scenario)


def test_filters_hold_over_pages(fleet: Api) -> None:
    async def pages(rest: httpx.AsyncClient) -> AsyncIterator[str]:
        query: dict[str, Any] = {"client_id": "many", "limit": 3}
        while True:
            page = (await rest.get("/v1/clients", params=query)).json()
            for item in page["items"]:
                yield item["client_instance_id"]
            if page["next"] is None:
                return
            query["after"] = page["next"]

    async def scenario(rest: httpx.AsyncClient) -> None:
        for number in range(20, 40):
            ask(fleet.telemetry, number, fleet.clock.now, client_id="many" if number % 2 else "few")
        seen = [page async for page in pages(rest)]
        assert seen == [uuid_to_text(instance_id(number)) for number in range(21, 40, 2)]

    fleet.run(scenario)


def test_the_states_of_a_client(fleet: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        async def state() -> str:
            answer = await rest.get(f"/v1/clients/{uuid_to_text(instance_id(2))}")
            text: str = answer.json()["state"]
            return text

        def push(subscription_id: int, *, terminating: bool = False) -> None:
            request = PushTelemetryRequest(
                client_instance_id=instance_id(2), subscription_id=subscription_id, terminating=terminating
            )
            fleet.telemetry.push_telemetry(
                connection(2, client_id="orders-1"), request, now=fleet.clock.now, received_at_ns=1
            )

        answer = ask(fleet.telemetry, 2, fleet.clock.now, client_id="orders-1").response
        assert await state() == "waiting"
        fleet.clock.now += 5
        push(answer.subscription_id)
        assert await state() == "pushing"
        push(answer.subscription_id)  # before the interval is over
        assert await state() == "failing"
        fleet.clock.now += 15.1
        assert await state() == "silent"
        push(answer.subscription_id, terminating=True)
        assert await state() == "terminated"

    fleet.run(scenario)


def test_the_event_loop_goes_on_while_a_list_is_made(fleet: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    others_served = threading.Event()

    def slow(*arguments: Any) -> Any:
        # On the loop this would keep the other request waiting until the timeout.
        assert others_served.wait(60)
        return matching_clients(*arguments)

    monkeypatch.setattr("receiver.api.routes.clients.matching_clients", slow)

    async def scenario(rest: httpx.AsyncClient) -> None:
        connect(fleet)
        listing = asyncio.ensure_future(rest.get("/v1/clients"))
        await asyncio.sleep(0.1)
        assert (await rest.get("/livez")).status_code == 200
        assert not listing.done()
        others_served.set()
        assert len((await listing).json()["items"]) == len(CLIENTS)

    fleet.run(scenario)


def test_the_page_names_every_filter_and_state() -> None:
    for model in (ClientQuery, ConnectionQuery):
        assert all(f"`{name}`" in PAGE for name in model.model_fields)
    assert {state.value for state in ConnectionState} == {
        "no_telemetry",
        "closed",
        *(s.value for s in ClientState),
    }
    rows = re.findall(r"^\| `([a-z_]+)` \| [A-Z]", PAGE, re.MULTILINE)
    assert {state.value for state in ConnectionState} <= set(rows)
