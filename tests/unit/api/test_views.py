"""Clients and connections over REST: their fields, and pages that lose nothing."""

from dataclasses import replace

import httpx

from receiver.telemetry.identity import Via
from receiver.telemetry.subscription import Subscription
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import uuid_from_text, uuid_to_text
from tests.unit.api.conftest import WALL_NS, Api, ask, connection, instance_id, problem_of


def test_a_client(api: Api) -> None:
    api.store.put(
        Subscription(
            name="all", metrics=("org.apache.kafka.",), interval_ms=60_000, match={"client_id": "o.*"}
        )
    )
    text = uuid_to_text(instance_id(5))

    async def scenario(rest: httpx.AsyncClient) -> None:
        answer = ask(api.telemetry, 5, api.clock.now).response
        shown = (await rest.get(f"/v1/clients/{text}")).json()
        assert shown == {
            "client_instance_id": text,
            "client_id": "orders",
            "client_software_name": "apache-kafka-java",
            "client_software_version": "4.4.0",
            "connection_id": "CLIENT-5",
            "via": "gateway",
            "listener": "CLIENT",
            "source_address": "10.0.0.7",
            "source_port": 40_005,
            "principal": "User:ANONYMOUS",
            "sasl_mechanism": None,
            "owner": None,
            "subscription_id": answer.subscription_id,
            "push_interval_ms": 60_000,
            "security_protocol": "PLAINTEXT",
            "client_rack": None,
            "group_id": None,
            "group_member_id": None,
            "transactional_id": None,
            "application_id": None,
            "state": "waiting",
            "temporality": "delta",
            "requested_metrics": ["org.apache.kafka."],
            "subscriptions": ["all"],
            "quirks": [],
            "interval_factor": 1,
            "plugin_behind": None,
            "reduced": None,
            "pushes": 0,
            "pushed_minutes": "000000000000000",
            "last_request_age_s": 0.0,
            "last_push_age_s": None,
            "last_error": "NONE",
            "terminating": False,
        }
        assert (await rest.get("/v1/clients")).json() == {"items": [shown], "next": None}

        push = PushTelemetryRequest(
            client_instance_id=instance_id(5), subscription_id=answer.subscription_id, terminating=True
        )
        api.telemetry.push_telemetry(connection(6), push, now=api.clock.now + 1, received_at_ns=1)
        api.clock.now += 2.5
        assert (await rest.get(f"/v1/clients/{text}")).json() == {
            **shown,
            "connection_id": "CLIENT-6",
            "source_port": 40_006,
            "state": "terminated",
            "pushes": 1,
            "pushed_minutes": "000000000000001",
            "last_request_age_s": 1.5,
            "last_push_age_s": 1.5,
            "terminating": True,
        }
        ask(api.telemetry, 5, api.clock.now)
        shown = (await rest.get(f"/v1/clients/{text}")).json()
        assert (shown["last_error"], shown["last_push_age_s"]) == ("THROTTLING_QUOTA_EXCEEDED", 1.5)

    api.run(scenario)


def test_the_status_names_misspelt_subscriptions_once_their_clients_push(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        async def misspelt() -> object:
            return (await rest.get("/v1/status")).json()["subscriptions"]["misspelt"]

        await rest.put("/v1/subscriptions/typo", json={"metrics": ["producer."]})
        ask(api.telemetry, 5, api.clock.now)
        assert await misspelt() == {}
        pushed = PushTelemetryRequest(client_instance_id=instance_id(5))
        api.telemetry.accept(connection(5), pushed, now=api.clock.now, received_at_ns=1)
        reason = "no known metric begins with 'producer.'; did you mean 'org.apache.kafka.producer.'?"
        assert await misspelt() == {"typo": reason}

    api.run(scenario)


def test_what_a_bridge_cannot_see_is_not_shown(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        ask(api.telemetry, 5, api.clock.now)
        path = f"/v1/clients/{uuid_to_text(instance_id(5))}"
        asked = (await rest.get(path)).json()
        known = api.telemetry.instances.find(instance_id(5))
        assert known is not None
        identity = replace(known.identity, via=Via.BRIDGE, source_port=0)
        pushed = PushTelemetryRequest(client_instance_id=instance_id(5))
        api.telemetry.accept(identity, pushed, now=api.clock.now, received_at_ns=1, interval_ms=7_000)
        shown = (await rest.get(path)).json()
        assert {key: value for key, value in shown.items() if value != asked[key]} == {
            "via": "bridge",
            "state": "pushing",
            "source_port": None,
            "push_interval_ms": 7_000,
            "pushes": 1,
            "pushed_minutes": "000000000000001",
            "last_push_age_s": 0.0,
            **dict.fromkeys(
                ("subscription_id", "requested_metrics", "temporality", "subscriptions", "last_error")
            ),
        }
        explained = (await rest.get(f"{path}/explain")).json()
        assert (explained["via"], explained["in_effect"]) == ("bridge", False)

    api.run(scenario)


def test_a_client_with_a_quirk(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        ask(api.telemetry, 5, api.clock.now, client_software_version="3.8.0")
        shown = (await rest.get(f"/v1/clients/{uuid_to_text(instance_id(5))}")).json()
        assert "KAFKA-19506" in shown["quirks"][0]

    api.run(scenario)


def test_an_unknown_client(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        problem_of(await rest.get("/v1/clients/AAAAAAAAAAAAAAAAAAAAAA"), 404)
        (error,) = problem_of(await rest.get("/v1/clients/nonsense"), 422)["errors"]
        assert (error["field"], error["value"]) == ("client_instance_id", "nonsense")
        (error,) = problem_of(await rest.get("/v1/clients?after=nonsense"), 422)["errors"]
        assert error["field"] == "after"
        ask(api.telemetry, 5, api.clock.now)
        api.clock.now += 3 * 300 + 1
        problem_of(await rest.get(f"/v1/clients/{uuid_to_text(instance_id(5))}"), 404)
        assert (await rest.get("/v1/clients")).json()["items"] == []

    api.run(scenario)


def test_pages_of_clients_lose_none_while_others_disconnect(api: Api) -> None:
    # These ids sort differently as text and as bytes.
    numbers = range(40, 1000, 40)
    for number in numbers:
        ask(api.telemetry, number, api.clock.now)

    async def scenario(rest: httpx.AsyncClient) -> None:
        seen: list[str] = []
        parameters: dict[str, str | int] = {"limit": 7}
        while True:
            page = (await rest.get("/v1/clients", params=parameters)).json()
            seen += [item["client_instance_id"] for item in page["items"]]
            if page["next"] is None:
                break
            parameters["after"] = page["next"]
            # The last client of the page disconnects; the next page must not skip any.
            gone = api.telemetry.instances.find(uuid_from_text(page["next"]))
            assert gone is not None
            api.telemetry.instances.disconnected(gone.identity.id)
        assert seen == [uuid_to_text(instance_id(number)) for number in numbers]

    api.run(scenario)


def test_connections(api: Api) -> None:
    instance = instance_id(7)
    api.connections += [connection(2), connection(1, client_instance_id=instance)]

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
            "sasl_mechanism": None,
            "owner": None,
            "since": "2023-11-14T22:13:21.250Z",
            "age_ms": (WALL_NS - 1_700_000_001_250_000_000) // 1_000_000,
            "state": "no_telemetry",
            "broker_id": None,
            "tls_version": None,
            "tls_cipher": None,
            "closed_at": None,
            "reason": None,
            # No relay has told where it counts.
            **dict.fromkeys(
                (
                    "bytes_in",
                    "bytes_out",
                    "requests",
                    "in_flight",
                    "last_minute",
                    "idle_ms",
                    "relay",
                    "last_api",
                    "api_versions",
                )
            ),
        }
        assert second["id"] == "CLIENT-2"
        assert second["client_instance_id"] is None

    api.run(scenario)


def test_pages_of_connections_lose_none_while_others_close(api: Api) -> None:
    api.connections += [connection(number) for number in range(25)]
    # Several may be accepted at the same moment.
    api.connections[5:20] = [replace(item, since=api.connections[5].since) for item in api.connections[5:20]]

    async def scenario(rest: httpx.AsyncClient) -> None:
        seen: list[str] = []
        parameters: dict[str, str | int] = {"limit": 7}
        while True:
            page = (await rest.get("/v1/connections", params=parameters)).json()
            seen += [item["id"] for item in page["items"]]
            if page["next"] is None:
                break
            parameters["after"] = page["next"]
            api.connections[:] = [item for item in api.connections if item.id != seen[-1]]
        assert sorted(seen) == sorted(f"CLIENT-{number}" for number in range(25))
        problem_of(await rest.get("/v1/connections?after=nonsense"), 422)

    api.run(scenario)
