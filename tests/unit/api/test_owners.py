"""Owners in the REST API: a field, a filter, and who is absent."""

import json
from pathlib import Path

import httpx
import pytest
import structlog
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.telemetry.owners import MAX_OWNERS, Owner, Owners
from tests.unit.api.conftest import (
    EDITOR_TOKEN,
    VIEWER_TOKEN,
    WALL_TEXT,
    Api,
    ask,
    bearer,
    connection,
    instance_id,
    problem_of,
    token_settings,
)
from tests.unit.api.test_cluster import cluster_of, everything, run

OWNERS = Owners(
    [
        Owner(team="pay", match={"principal": "User:pay.*"}, principals=("User:pay-1", "User:pay-2")),
        Owner(team="all java", match={"client_software_name": "apache-kafka-java", "client_id": "o.*"}),
    ]
)


def test_the_owner_is_a_field_and_a_filter(api: Api) -> None:
    api.telemetry.owners = OWNERS
    api.connections += [connection(2, principal="User:pay-1"), connection(3), connection(4, client_id="x")]
    ask(api.telemetry, 2, api.clock.now, principal="User:pay-1")
    ask(api.telemetry, 4, api.clock.now, client_id="x")

    async def scenario(rest: httpx.AsyncClient) -> None:
        async def owned(path: str, owner: str | None = None) -> list[tuple[int, str | None]]:
            query = {} if owner is None else {"owner": owner}
            items = (await rest.get(path, params=query)).json()["items"]
            return [(item["source_port"] - 40_000, item["owner"]) for item in items]

        assert await owned("/v1/connections") == [(2, "pay"), (3, "all java"), (4, None)]
        assert await owned("/v1/connections", "pay|all.*") == [(2, "pay"), (3, "all java")]
        assert await owned("/v1/connections", "") == [(4, None)]
        assert await owned("/v1/clients") == [(2, "pay"), (4, None)]
        assert await owned("/v1/clients", "pay") == [(2, "pay")]
        groups = (await rest.get("/v1/connections?by=owner&order_by=-bytes_in")).json()["items"]
        assert {(group["owner"], group["connections"]) for group in groups} == {
            ("pay", 1), ("all java", 1), ("", 1),
        }  # fmt: skip
        items = (await rest.get("/v1/owners")).json()["items"]
        assert [(item["team"], item["connections"], item["clients"]) for item in items] == [
            ("all java", 1, 0),
            ("pay", 1, 1),
        ]
        assert (items[1]["expected"], items[1]["absent"]) == (["User:pay-1", "User:pay-2"], ["User:pay-2"])
        page = (await rest.get("/v1/owners?limit=1")).json()
        page = (await rest.get("/v1/owners", params={"after": page["next"]})).json()
        assert [item["team"] for item in page["items"]] == ["pay"]

    api.run(scenario)


def test_a_principal_is_absent_only_from_the_whole_cluster(apis: list[Api]) -> None:
    for number, api in enumerate(apis[:2], 1):
        api.telemetry.owners = OWNERS
        api.connections.append(connection(number, principal=f"User:pay-{number}"))

    async def scenario() -> None:
        async with cluster_of(apis[:2]) as (client, _):
            owners = {owner["team"]: owner for owner in await everything(client, "/v1/owners")}
            assert (owners["pay"]["connections"], owners["pay"]["absent"]) == (2, [])
            items = await everything(client, "/v1/connections", owner="pay", limit=1)
            assert [item["owner"] for item in items] == ["pay", "pay"]

    run(scenario)


def naming(*topics: str) -> bytes:
    """Metrics with these topics."""
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    for topic in topics:
        attribute = metric.sum.data_points.add().attributes.add(key="topic")
        attribute.value.string_value = topic
    return data.SerializeToString()


def test_expected_topics_are_compared_with_what_pushes_name(apis: list[Api]) -> None:
    expects = Owner(team="pay", match={"client_id": "pay"}, topics=("bills.v1", "refunds"))
    for api in apis[:2]:
        api.telemetry.owners = Owners([expects])

    async def scenario() -> None:
        async with cluster_of(apis[:2]) as (client, _):

            async def absent() -> object:
                (owner,) = await everything(client, "/v1/owners")
                assert owner["expected_topics"] == ["bills.v1", "refunds"]
                return owner["absent_topics"]

            assert await absent() == ["bills.v1", "refunds"]  # without clients, all are
            first, second = apis[:2]
            for number, api in ((2, first), (3, second)):
                ask(api.telemetry, number, api.clock.now, client_id="pay")
            assert await absent() is None  # nothing is known of the topics
            first.telemetry.latest_pushes.record(instance_id(2), naming("bills_v1", "else"), 1, 0.0)
            assert await absent() == ["refunds"]
            second.telemetry.latest_pushes.record(instance_id(3), naming("refunds"), 1, 0.0)
            assert await absent() == []
            second.telemetry.latest_pushes.record(instance_id(3), naming("other"), 2, 0.0)
            assert await absent() == ["refunds"]

    run(scenario)


PAY = {
    "match": {"principal": "User:pay-.*"},
    "contact": "#pay",
    "expected": {"principals": ["User:pay-1"], "topics": ["bills"]},
}


def test_an_owner_is_put_changed_and_deleted_durably(api: Api, tmp_path: Path) -> None:
    api.owner_file = tmp_path / "owners.json"
    api.connections.append(connection(2, principal="User:pay-2"))

    async def create(rest: httpx.AsyncClient) -> None:
        answer = await rest.put("/v1/owners/team/pay", json=PAY)
        assert (answer.status_code, answer.json()) == (
            201,
            {
                "team": "team/pay", "link": "", **PAY, "source": "rest",
                "changed_by": "anonymous", "changed_at": WALL_TEXT,
            },
        )  # fmt: skip
        tag = answer.headers["etag"]
        again = await rest.put("/v1/owners/team/pay", json=answer.json())  # an answer can be sent back
        assert (again.status_code, again.headers["etag"]) == (200, tag)
        assert (await rest.get("/v1/connections?owner=team/pay")).json()["items"]
        for headers in ({"if-none-match": "*"}, {"if-match": '"x"'}):
            problem_of(await rest.put("/v1/owners/team/pay", json=PAY, headers=headers), 412)
        problem_of(await rest.put("/v1/owners/b", json=PAY, headers={"if-match": "*"}), 412)
        patch = {
            "link": "https://wiki",
            "contact": None,
            "expected": {"topics": None},
            "match": {"client_id": "a"},
        }
        answer = await rest.patch("/v1/owners/team/pay", json=patch, headers={"if-match": tag})
        assert answer.status_code == 200
        assert answer.json()["match"] == {"principal": "User:pay-.*", "client_id": "a"}
        assert answer.json()["expected"] == {"principals": ["User:pay-1"], "topics": []}
        assert (answer.json()["contact"], answer.json()["link"]) == ("", "https://wiki")
        problem_of(await rest.patch("/v1/owners/none", json={}), 404)
        await rest.put("/v1/owners/gone", json=PAY)
        assert (await rest.delete("/v1/owners/gone")).status_code == 204
        problem_of(await rest.delete("/v1/owners/gone"), 404)
        problem_of(await rest.get("/v1/owners/gone"), 404)
        events = (await rest.get("/v1/events")).json()["items"]
        assert [(event["type"], event["owner"]) for event in events] == [
            ("owner_created", "team/pay"), ("owner_changed", "team/pay"),
            ("owner_created", "gone"), ("owner_deleted", "gone"),
        ]  # fmt: skip

    api.run(create)

    async def again(rest: httpx.AsyncClient) -> None:  # a receiver that was started anew
        shown = await rest.get("/v1/owners/team/pay")
        assert (shown.json()["link"], shown.json()["changed_at"]) == ("https://wiki", WALL_TEXT)
        assert shown.headers["etag"]
        assert [owner["team"] for owner in (await rest.get("/v1/owners")).json()["items"]] == ["team/pay"]

    api.run(again)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "match"),
        ({"match": {"client_id": "("}}, "match.client_id"),
        ({"match": {}, "expected": {"topics": "a"}}, "expected"),
        ({"match": {}, "team": "b"}, "team"),
        ({"match": {}, "email": "b"}, "email"),
        ([], ""),
    ],
)
def test_a_wrong_owner_is_refused_and_named(api: Api, tmp_path: Path, body: object, field: str) -> None:
    api.owner_file = tmp_path / "owners.json"

    async def scenario(rest: httpx.AsyncClient) -> None:
        problem = problem_of(await rest.put("/v1/owners/a", json=body), 422)
        assert problem["errors"][0]["field"] == field
        assert not api.telemetry.owners.owners

    api.run(scenario)


def test_owners_have_roles_and_an_audit(api: Api, tmp_path: Path) -> None:
    api.owner_file = tmp_path / "owners.json"
    api.settings = token_settings()

    async def scenario(rest: httpx.AsyncClient) -> None:
        problem_of(await rest.put("/v1/owners/a", json=PAY, headers=bearer(VIEWER_TOKEN)), 403)
        answer = await rest.put("/v1/owners/a", json=PAY, headers=bearer(EDITOR_TOKEN))
        assert answer.json()["changed_by"] == "ed"
        assert (await rest.get("/v1/owners/a", headers=bearer(VIEWER_TOKEN))).status_code == 200

    with structlog.testing.capture_logs() as captured:
        api.run(scenario)
    lines = [line for line in captured if line.get("logger") == "receiver.audit"]
    assert [(line["who"], line["outcome"]) for line in lines] == [("vera", "refused"), ("ed", "changed")]
    assert lines[1]["after"]["match"] == PAY["match"]


def test_without_a_file_no_owner_can_be_put(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        assert "owners.file" in problem_of(await rest.put("/v1/owners/a", json=PAY), 409)["detail"]

    api.run(scenario)


def test_a_file_that_cannot_be_used_is_never_overwritten(api: Api, tmp_path: Path) -> None:
    api.owner_file = tmp_path / "owners.json"
    api.owner_file.write_text("[]")

    async def scenario(rest: httpx.AsyncClient) -> None:
        detail = problem_of(await rest.put("/v1/owners/a", json=PAY), 503)["detail"]
        assert "is not a file of owners: set another owners.file" in detail

    api.run(scenario)
    assert api.owner_file.read_text() == "[]"


def test_owners_are_bounded(api: Api, tmp_path: Path) -> None:
    api.owner_file = tmp_path / "owners.json"
    owners = [
        {"owner": {"team": f"t{number}", "match": {}}, "changed_by": None, "changed_at": None}
        for number in range(MAX_OWNERS)
    ]
    document = {"content": "kafka-telemetry-owners", "version": 1, "owners": owners}
    api.owner_file.write_text(json.dumps(document))

    async def scenario(rest: httpx.AsyncClient) -> None:
        detail = problem_of(await rest.put("/v1/owners/one-more", json=PAY), 422)["detail"]
        assert f"keep at most {MAX_OWNERS}" in detail
        assert (await rest.delete("/v1/owners/t0")).status_code == 204
        assert (await rest.put("/v1/owners/one-more", json=PAY)).status_code == 201

    api.run(scenario)
