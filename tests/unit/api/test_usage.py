"""Traffic, usage and the check of an upgrade over REST."""

from __future__ import annotations

import csv
import io
from typing import Any

import httpx
import pytest

from receiver.telemetry.owners import Owner, Owners
from receiver.traffic.table import BYTES_IN, BYTES_OUT, LAST_KEY, REQUESTS, RESPONSES, RelayTable, new_table
from receiver.traffic.table import arrived as note_arrival
from receiver.traffic.usage_store import Amounts, Key, Settlement
from receiver.wire.seen_versions import note_version
from tests.testbed.ports import free_port
from tests.unit.api.conftest import WALL_NS, Api, connection, problem_of
from tests.unit.api.test_cluster import cluster_of, everything, run

NOW_MS = WALL_NS // 1_000_000
TODAY = "2026-11-21"


def settle(api: Api, stamp: int, day: str, **used: tuple[int, int, int, int]) -> None:
    """Add the usage of a day, of principals with the client ids ``a`` and ``b``."""
    settlement = Settlement(stamp, day, NOW_MS)
    for name, amounts in used.items():
        for client_id in ("a", "b"):
            settlement.add(Key(f"User:{name}", client_id), Amounts(*amounts))
    api.traffic().store.commit(settlement)


def moving(api: Api, relay: RelayTable, number: int, **facts: Any) -> memoryview[int]:
    """An open connection that counts in a relay's table; return its words."""
    identity = connection(number, id=f"relay-{number}", **facts)
    slot = relay.take(number)
    note_arrival(slot.words)
    slot.words[BYTES_IN], slot.words[BYTES_OUT] = 100 * number, 10 * number
    slot.words[REQUESTS], slot.words[RESPONSES], slot.words[LAST_KEY] = number, number - 1, 1
    note_version(slot.seen, 1, 3)
    note_version(slot.seen, 1, 11)
    api.connections.append(identity)
    api.traffic().opened(identity, "relay", "relay-1", number, slot.index)
    return slot.words


def relay(api: Api) -> RelayTable:
    table = new_table(64)
    found = RelayTable(table)
    api.traffic().attach("relay", table)
    return found


def test_connections_are_ordered_and_grouped_by_what_they_move(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        table = relay(api)
        for number, principal in enumerate(("User:ann", "User:bob", "User:ann"), 1):
            moving(api, table, number, principal=principal, client_id=f"c{number}")
        first, *_ = (await rest.get("/v1/connections?order_by=-bytes_in")).json()["items"]
        assert first["client_id"] == "c3"
        expected = {"bytes_in": 300, "bytes_out": 30, "requests": 3, "in_flight": 1, "relay": "relay-1"}
        assert {name: first[name] for name in expected} == expected
        assert first["last_minute"] == {"bytes_in": 300, "bytes_out": 30, "requests": 3}
        assert first["last_api"] == "Fetch"
        assert first["api_versions"] == {"Fetch": {"lowest": 3, "highest": 11}}

        seen = []
        following = "/v1/connections?order_by=requests&limit=1"
        while True:
            page = (await rest.get(following)).json()
            seen += [entry["client_id"] for entry in page["items"]]
            if page["next"] is None:
                break
            following = f"/v1/connections?order_by=requests&limit=1&after={page['next']}"
        assert seen == ["c1", "c2", "c3"]

        ann, bob = (await rest.get("/v1/connections?by=principal")).json()["items"]
        assert (ann["principal"], ann["connections"], ann["bytes_in"]) == ("User:ann", 2, 400)
        assert (bob["principal"], bob["connections"], bob["bytes_out"]) == ("User:bob", 1, 20)
        page = (await rest.get("/v1/connections?by=principal&order_by=-connections&limit=1")).json()
        (second,) = (
            await rest.get(f"/v1/connections?by=principal&order_by=-connections&after={page['next']}")
        ).json()["items"]
        assert second["principal"] == "User:bob"

    api.run(scenario)


@pytest.mark.parametrize(
    "query", ["order_by=nothing", "order_by=closed_at", "order_by=connections", "by=principal&order_by=since"]
)
def test_an_order_that_the_list_lacks_is_refused(api: Api, query: str) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        assert "order_by" in problem_of(await rest.get(f"/v1/connections?{query}"), 422)["detail"]

    api.run(scenario)


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("usage?since=yesterday", "since: expected a day such as 2026-11-29"),
        ("clients?state=dead", "state: expected one of terminated, silent, failing, unsubscribed, waiting"),
    ],
)
def test_a_wrong_parameter_is_told_what_it_may_be(api: Api, query: str, detail: str) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        told = problem_of(await rest.get(f"/v1/{query}"), 422)["detail"]
        assert told.startswith(detail)
        assert "null" not in told  # which no query has

    api.run(scenario)


@pytest.mark.parametrize("path", ["/v1/usage", "/v1/upgrade-check?to=4.0"])
def test_a_disk_that_hangs_is_told_and_holds_no_other_list(
    api: Api, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.traffic.traffic._READ_S", 0.01)

    async def scenario(rest: httpx.AsyncClient) -> None:
        with api.traffic().store._lock:  # as a commit that waits for the disk
            told = problem_of(await rest.get(path), 503)["detail"]
            assert told == "cannot read the usage: the disk of usage.path gave no answer within 0.01 s"
            assert (await rest.get("/v1/connections")).json()["items"] == []

    api.run(scenario)


def test_a_closed_connection_keeps_what_it_moved_and_is_used_once(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        table = relay(api)
        words = moving(api, table, 4, principal="User:ann")
        traffic = api.traffic()
        await traffic.settle()
        words[BYTES_IN] += 5
        traffic.ended("relay-4", "client_closed")
        api.connections.clear()
        (closed,) = (await rest.get("/v1/connections?closed=true")).json()["items"]
        assert (closed["bytes_in"], closed["reason"], closed["state"]) == (405, "client_closed", "closed")
        assert (await rest.get("/v1/connections")).json()["items"] == []
        for _ in range(2):
            (used,) = (await rest.get("/v1/usage")).json()["items"]
            assert used == {
                "day": TODAY,
                "principal": "User:ann",
                "bytes_in": 405,
                "bytes_out": 40,
                "requests": 4,
                "connections": 1,
            }
        assert table.is_settled(0, 4)

    api.run(scenario)


def test_what_came_before_a_login_is_of_the_same_client(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        words = moving(api, relay(api), 1, client_id="a")
        traffic = api.traffic()
        identity = connection(1, id="relay-1", client_id="a", principal="User:ann")
        traffic.opened(identity, "relay", "relay-1", 1, 0)
        traffic.opened(
            connection(1, id="relay-1", client_id="b", principal="User:ann"), "relay", "relay-1", 1, 0
        )
        words[BYTES_IN] += 7
        rows = (await rest.get("/v1/usage?by=client_id&principal=User:ann")).json()["items"]
        assert [(row["client_id"], row["bytes_in"]) for row in rows] == [("a", 100), ("b", 7)]

    api.run(scenario)


def test_usage_by_day_as_json_and_as_csv(api: Api) -> None:
    settle(api, 1, "2026-11-20", ann=(1, 2, 3, 1), bob=(4, 5, 6, 1))
    settle(api, 2, TODAY, ann=(10, 20, 30, 0))
    settle(api, 3, "2026-09-01", ann=(1, 1, 1, 1))

    async def scenario(rest: httpx.AsyncClient) -> None:
        rows = (await rest.get("/v1/usage?by=principal")).json()["items"]
        assert [(row["day"], row["principal"], row["bytes_in"]) for row in rows] == [
            ("2026-11-20", "User:ann", 2),
            ("2026-11-20", "User:bob", 8),
            (TODAY, "User:ann", 20),
        ]
        page = (await rest.get("/v1/usage?limit=2")).json()
        rest_of = (await rest.get("/v1/usage", params={"after": page["next"]})).json()
        assert page["items"] + rest_of["items"] == rows
        day = (await rest.get(f"/v1/usage?by=client_id&since={TODAY}T03:00:00Z&until={TODAY}")).json()
        assert [row["client_id"] for row in day["items"]] == ["a", "b"]
        text = (await rest.get("/v1/usage?since=2026-09-01", headers={"accept": "text/csv"})).text
        head, first, *_ = csv.reader(io.StringIO(text))
        assert head == ["day", "principal", "bytes_in", "bytes_out", "requests", "connections"]
        assert first == ["2026-09-01", "User:ann", "2", "2", "2", "2"]
        problem_of(await rest.get("/v1/usage?since=2026-11-22&until=2026-11-21"), 422)
        assert (await rest.get("/v1/usage?by=principal&since=&until=")).json()["items"] == rows
        for wrong in ("since=yesterday", "until=0001-01-01"):
            problem_of(await rest.get(f"/v1/usage?{wrong}"), 422)

    api.run(scenario)


def test_an_upgrade_names_the_clients_that_it_breaks(api: Api) -> None:
    old = ("User:ann", "orders", "sarama", "1.20")
    settlement = Settlement(1, TODAY, NOW_MS)
    settlement.add(Key("User:ann", "orders"), Amounts(1, 1, 1, 1))
    settlement.apis[old] = {0: (2, 2), 3: (0, 5)}  # of Metadata every version is left
    settlement.apis["User:bob", "new", "apache-kafka-java", "4.0"] = {0: (3, 13), 1: (4, 17)}
    settlement.apis["User:cyd", "mixed", "franz-go", "1.0"] = {1: (3, 11)}
    api.traffic().store.commit(settlement)

    async def scenario(rest: httpx.AsyncClient) -> None:
        ann, cyd = (await rest.get("/v1/upgrade-check?to=4.0")).json()["items"]
        assert (ann["client_id"], ann["client_software_name"]) == ("orders", "sarama")
        (broken,) = ann["breaks"]
        assert {name: broken[name] for name in ("api", "lowest", "needs", "dropped_in", "why")} == {
            "api": "Produce",
            "lowest": 2,
            "needs": 3,
            "dropped_in": "4.0",
            "why": "KIP-896",
        }
        assert [entry["api"] for entry in cyd["breaks"]] == ["Fetch"]
        page = (await rest.get("/v1/upgrade-check?to=4.0.1&limit=1")).json()
        following = await rest.get("/v1/upgrade-check", params={"to": "4.1", "after": page["next"]})
        assert [entry["client_id"] for entry in following.json()["items"]] == ["mixed"]
        assert (await rest.get("/v1/upgrade-check?to=3.9")).json()["items"] == []
        for wrong in ("9.9", "four", ""):
            assert "to" in problem_of(await rest.get(f"/v1/upgrade-check?to={wrong}"), 422)["detail"]

    api.run(scenario)


OWNERS = Owners([Owner(team="pay", match={"principal": "User:ann"})])


def test_usage_and_upgrades_of_owners_and_of_the_cluster(apis: list[Api]) -> None:
    for number, api in enumerate(apis[:2], 1):
        settle(api, 1, TODAY, ann=(number, 2, 3, 1), bob=(10, 0, 0, 0))
        settlement = Settlement(2, TODAY, NOW_MS + number)
        settlement.add(Key("User:ann", "a"), Amounts(0, 0, 0, 0))
        settlement.apis["User:ann", "a", "sarama", "1"] = {0: (number, number), 1: (number, 11)}
        api.traffic().store.commit(settlement)
        api.telemetry.owners = OWNERS

    async def scenario() -> None:
        async with cluster_of(apis[:2]) as (client, _):
            rows = await everything(client, "/v1/usage", by="owner", limit=1)
            assert [(row["owner"], row["bytes_in"]) for row in rows] == [("", 40), ("pay", 6)]
            (broken,) = await everything(client, "/v1/upgrade-check", to="4.0", owner="pay")
            assert (broken["client_id"], broken["owner"]) == ("a", "pay")
            assert [(use["api"], use["lowest"], use["highest"]) for use in broken["breaks"]] == [
                ("Produce", 1, 2),
                ("Fetch", 1, 11),
            ]
            query, as_csv = {"scope": "cluster", "by": "owner"}, {"accept": "text/csv"}
            answer = await client.get("/v1/usage", params=query, headers=as_csv)
            assert list(csv.reader(io.StringIO(answer.text)))[1:] == [
                [TODAY, "", "40", "0", "0", "0"],
                [TODAY, "pay", "6", "8", "12", "4"],
            ]
        async with cluster_of(apis[:2], f"http://127.0.0.1:{free_port()}") as (client, _):
            answer = await client.get("/v1/usage", params=query, headers=as_csv)
            told = problem_of(answer, 503)["detail"]
            assert told.startswith("the usage of the cluster is not complete: http://127.0.0.1:")

    run(scenario)
