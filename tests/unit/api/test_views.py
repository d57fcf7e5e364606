"""Clients and connections over REST: what is shown of them, and pages that lose nothing."""

import httpx

from receiver.api import ClientState
from receiver.telemetry.connection import Connection
from receiver.wire.uuid import Uuid, uuid_to_text
from tests.unit.api.conftest import Api, problem_of


def connection(number: int, instance: Uuid | None = None) -> Connection:
    return Connection(
        id=f"CLIENT-{number}",
        listener="CLIENT",
        security_protocol="PLAINTEXT",
        source_address="10.0.0.7",
        source_port=40_000 + number,
        since=1_700_000_000.25 + number,
        client_id="orders",
        client_software_name="apache-kafka-java",
        client_software_version="4.4.0",
        client_instance_id=instance,
    )


def client(number: int, open_connection: Connection | None) -> ClientState:
    return ClientState(
        client_instance_id=Uuid(number.to_bytes(16, "big")),
        connection=open_connection,
        client_id="orders",
        client_software_name="apache-kafka-java",
        client_software_version="4.4.0",
        subscription_id=-7,
        push_interval_ms=60_000,
        requested_metrics=("org.apache.kafka.producer.",),
        subscriptions=("producers",),
        pushes=3,
        last_request_age_s=1.23456,
        last_push_age_s=None,
        last_error="NONE",
        terminating=False,
    )


def test_a_client(api: Api) -> None:
    state = client(5, connection(1))
    api.clients.by_id[state.client_instance_id] = state
    text = uuid_to_text(state.client_instance_id)

    async def scenario(rest: httpx.AsyncClient) -> None:
        shown = (await rest.get(f"/v1/clients/{text}")).json()
        assert shown == {
            "client_instance_id": text,
            "client_id": "orders",
            "client_software_name": "apache-kafka-java",
            "client_software_version": "4.4.0",
            "connected": True,
            "connection_id": "CLIENT-1",
            "listener": "CLIENT",
            "source_address": "10.0.0.7",
            "source_port": 40_001,
            "principal": "User:ANONYMOUS",
            "subscription_id": -7,
            "push_interval_ms": 60_000,
            "requested_metrics": ["org.apache.kafka.producer."],
            "subscriptions": ["producers"],
            "pushes": 3,
            "last_request_age_s": 1.235,
            "last_push_age_s": None,
            "last_error": "NONE",
            "terminating": False,
        }
        assert (await rest.get("/v1/clients")).json() == {"items": [shown], "next": None}

    api.run(scenario)


def test_a_client_without_a_connection(api: Api) -> None:
    state = client(5, None)
    api.clients.by_id[state.client_instance_id] = state

    async def scenario(rest: httpx.AsyncClient) -> None:
        shown = (await rest.get(f"/v1/clients/{uuid_to_text(state.client_instance_id)}")).json()
        assert shown["connected"] is False
        assert shown["connection_id"] is shown["source_address"] is shown["principal"] is None

    api.run(scenario)


def test_a_client_that_is_not_known(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        problem_of(await rest.get("/v1/clients/AAAAAAAAAAAAAAAAAAAAAA"), 404)
        (error,) = problem_of(await rest.get("/v1/clients/nonsense"), 422)["errors"]
        assert (error["field"], error["value"]) == ("client_instance_id", "nonsense")
        (error,) = problem_of(await rest.get("/v1/clients?after=nonsense"), 422)["errors"]
        assert error["field"] == "after"

    api.run(scenario)


def test_pages_of_clients_lose_none_while_others_go(api: Api) -> None:
    # Ids beyond 127 sort otherwise as text.
    for number in range(0, 1000, 40):
        state = client(number, None)
        api.clients.by_id[state.client_instance_id] = state

    async def scenario(rest: httpx.AsyncClient) -> None:
        seen: list[str] = []
        parameters: dict[str, str | int] = {"limit": 10}
        while True:
            page = (await rest.get("/v1/clients", params=parameters)).json()
            seen += [one["client_instance_id"] for one in page["items"]]
            if page["next"] is None:
                break
            parameters["after"] = page["next"]
            # The last one of the page goes: what comes after it must not be skipped.
            api.clients.by_id.popitem() if len(seen) > 100 else api.clients.by_id.pop(
                next(one for one in api.clients.by_id if uuid_to_text(one) == page["next"])
            )
        assert seen == [uuid_to_text(Uuid(number.to_bytes(16, "big"))) for number in range(0, 1000, 40)]

    api.run(scenario)


def test_connections(api: Api) -> None:
    instance = Uuid(bytes(range(16)))
    api.connections += [connection(2), connection(1, instance)]

    async def scenario(rest: httpx.AsyncClient) -> None:
        first, second = (await rest.get("/v1/connections")).json()["items"]
        assert first == {
            "id": "CLIENT-1",
            "listener": "CLIENT",
            "security_protocol": "PLAINTEXT",
            "source_address": "10.0.0.7",
            "source_port": 40_001,
            "client_id": "orders",
            "client_software_name": "apache-kafka-java",
            "client_software_version": "4.4.0",
            "client_instance_id": uuid_to_text(instance),
            "principal": "User:ANONYMOUS",
            "since": "2023-11-14T22:13:21.250Z",
        }
        assert second["id"] == "CLIENT-2"
        assert second["client_instance_id"] is None

    api.run(scenario)


def test_pages_of_connections_lose_none_while_others_close(api: Api) -> None:
    api.connections += [connection(number) for number in range(25)]
    # Several may be accepted at the same moment.
    for one in api.connections[5:20]:
        one.since = api.connections[5].since

    async def scenario(rest: httpx.AsyncClient) -> None:
        seen: list[str] = []
        parameters: dict[str, str | int] = {"limit": 7}
        while True:
            page = (await rest.get("/v1/connections", params=parameters)).json()
            seen += [one["id"] for one in page["items"]]
            if page["next"] is None:
                break
            parameters["after"] = page["next"]
            api.connections[:] = [one for one in api.connections if one.id != seen[-1]]
        assert sorted(seen) == sorted(f"CLIENT-{number}" for number in range(25))
        problem_of(await rest.get("/v1/connections?after=nonsense"), 422)

    api.run(scenario)
