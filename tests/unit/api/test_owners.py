"""Owners in the REST API: a field, a filter, and who is absent."""

import httpx

from receiver.telemetry.owners import Owner, Owners
from tests.unit.api.conftest import Api, ask, connection
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
