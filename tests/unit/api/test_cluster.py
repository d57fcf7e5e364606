"""`scope=cluster`: real receivers on sockets answer for each other."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from receiver.api import Cluster
from receiver.cluster.members import Members
from receiver.cluster.rest_client import RestFilesError
from receiver.settings.cluster import ClusterSettings
from receiver.settings.rest import RestSettings
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import uuid_to_text
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.ports import free_port, listening_on
from tests.unit.api.conftest import (
    VIEWER_TOKEN,
    Api,
    ask,
    bearer,
    connection,
    instance_id,
    problem_of,
    token_settings,
)
from tests.unit.telemetry.otlp_parts import gauge, resource_metrics
from tests.unit.telemetry.otlp_parts import push as otlp_push

THROTTLE = "org.apache.kafka.producer.produce.throttle.time.max"
#: Far more than a busy machine needs.
PATIENT = {"connect_timeout_ms": 10_000, "timeout_ms": 20_000}


@asynccontextmanager
async def cluster_of(
    apis: Sequence[Api], *others: str, **keys: Any
) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Serve each of them, with all of them and ``others`` as members; yields a client of each."""
    ports = [free_port() for _ in apis]
    async with AsyncExitStack() as stack:
        clients = []
        scheme = "http" if apis[0].settings.tls is None else "https"
        urls = [f"{scheme}://127.0.0.1:{port}" for port in ports]
        settings = ClusterSettings.model_validate({"members": [*urls, *others], **PATIENT, **keys})
        for number, (api, port, url) in enumerate(zip(apis, ports, urls, strict=True), 1):
            receiver = f"receiver-{number}"
            members = Members(settings, receiver, api.clock)
            stack.push_async_callback(members.close)
            api.cluster = Cluster(receiver_id=receiver, members=members)
            facts = {**api.settings.model_dump(), "bind": f"127.0.0.1:{port}"}
            api.settings = RestSettings.model_validate(facts)
            await stack.enter_async_context(api.serving())
            clients.append(
                await stack.enter_async_context(
                    httpx.AsyncClient(base_url=url, trust_env=False, timeout=120, verify=False)
                )
            )
        yield clients


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def answered(page: dict[str, Any]) -> dict[str | None, bool]:
    return {member["receiver"]: member["answered"] for member in page["members"]}


async def everything(client: httpx.AsyncClient, path: str, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    parameters = {"scope": "cluster", **query}
    while True:
        page = (await client.get(path, params=parameters)).json()
        found += page["items"]
        if page["next"] is None:
            return found
        parameters["after"] = page["next"]


def test_any_receiver_lists_the_connections_of_all(apis: list[Api]) -> None:
    # Of two receivers, connections may have the same id and time.
    for number in range(12):
        apis[number % 3].connections.append(connection(number // 2, source_port=number + 1))

    async def scenario() -> None:
        async with cluster_of(apis) as clients:
            for client in clients:
                for limit in (1, 5, 1000):
                    items = await everything(client, "/v1/connections", limit=limit)
                    assert sorted(item["source_port"] for item in items) == list(range(1, 13))
                    assert [item["since"] for item in items] == sorted(item["since"] for item in items)
                    for item in items:
                        assert item["receiver"] == f"receiver-{(item['source_port'] - 1) % 3 + 1}"
            own = (await clients[0].get("/v1/connections")).json()
            assert own.keys() == {"items", "next"}
            assert len(own["items"]) == 4
            assert "receiver" not in own["items"][0]

    run(scenario)


def test_filters_hold_in_the_cluster(apis: list[Api]) -> None:
    for number in range(6):
        principal = "User:a" if number < 4 else "User:b"
        apis[number % 3].connections.append(connection(number, principal=principal))

    async def scenario() -> None:
        async with cluster_of(apis) as (client, *_):
            items = await everything(client, "/v1/connections", principal="User:a", limit=3)
            assert [item["source_port"] for item in items] == [40_000, 40_001, 40_002, 40_003]

    run(scenario)


def test_one_that_does_not_answer_is_named(apis: list[Api]) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    apis[1].connections.append(connection(7))

    async def scenario() -> None:
        async with cluster_of(apis, dead) as (client, *_):
            page = (await client.get("/v1/connections?scope=cluster")).json()
            assert [item["receiver"] for item in page["items"]] == ["receiver-2"]
            assert answered(page) == {
                "receiver-1": True, "receiver-2": True, "receiver-3": True, None: False,
            }  # fmt: skip
            (missing,) = [member for member in page["members"] if not member["answered"]]
            assert missing == {
                "url": dead,
                "receiver": None,
                "answered": False,
                "itself": False,
                "problem": "nothing listens there",
            }
            problem = problem_of(
                await client.get(f"/v1/clients/{uuid_to_text(instance_id(9))}?scope=cluster"), 404
            )
            assert f"not all receivers answered: {dead}: nothing listens there" in problem["detail"]

    run(scenario)


def test_one_that_hangs_is_named_after_its_deadline(apis: list[Api]) -> None:
    async def scenario() -> None:
        silent = listening_on("127.0.0.1", 0)  # the kernel accepts, and nobody reads
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        settings = ClusterSettings.model_validate({"members": [url], "timeout_ms": 50})
        members = Members(settings, "receiver-1")
        try:
            (answer,) = await members.ask("/v1/connections", {})
        finally:
            await members.close()
            silent.close()
        assert (answer.url, answer.document) == (url, None)
        assert answer.problem == "no answer within 50 ms"

    run(scenario)


def test_a_member_that_is_listed_twice_counts_once(apis: list[Api]) -> None:
    apis[0].connections.append(connection(1))
    apis[1].connections.append(connection(2))

    async def scenario() -> None:
        async with cluster_of(apis[:2]) as (client, other):
            twice = str(other.base_url).replace("127.0.0.1", "localhost")
            settings = ClusterSettings.model_validate({"members": [twice, str(other.base_url)], **PATIENT})
            # The application reads the members with each request.
            members = apis[0].cluster.members
            assert members is not None
            members.settings = settings  # type: ignore[misc]
            page = (await client.get("/v1/connections?scope=cluster")).json()
            assert [item["receiver"] for item in page["items"]] == ["receiver-1", "receiver-2"]
            assert [(member["url"], member["itself"]) for member in page["members"]] == [
                (None, True), (twice.rstrip("/"), False), (str(other.base_url).rstrip("/"), False),
            ]  # fmt: skip

    run(scenario)


def test_a_receiver_that_is_asked_by_another_asks_nobody(apis: list[Api]) -> None:
    async def scenario() -> None:
        async with cluster_of(apis[:1]) as (client,):
            asked = {"kafka-telemetry-asked-by": "receiver-9"}
            answer = await client.get("/v1/connections?scope=cluster", headers=asked)
            assert "asks it for scope=receiver" in problem_of(answer, 422)["detail"]
            answer = await client.get("/v1/connections", headers=asked)
            assert (answer.status_code, answer.headers["kafka-telemetry-receiver"]) == (200, "receiver-1")
            asked = {"kafka-telemetry-asked-by": "receiver-1"}
            assert (await client.get("/v1/connections", headers=asked)).status_code == 204

    run(scenario)


def test_a_receiver_that_knows_its_own_url_does_not_ask_it(
    apis: list[Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with cluster_of(apis[:1]) as (client,):
            first = (await client.get("/v1/connections?scope=cluster")).json()
            members = apis[0].cluster.members
            monkeypatch.setattr(members, "_answer", None)
            assert (await client.get("/v1/connections?scope=cluster")).json() == first
            assert [(member["itself"], member["answered"]) for member in first["members"]] == [(True, True)]

    run(scenario)


def test_without_members_the_cluster_is_this_receiver(api: Api) -> None:
    api.connections.append(connection(1))

    async def scenario(rest: httpx.AsyncClient) -> None:
        page = (await rest.get("/v1/connections?scope=cluster")).json()
        assert [item["receiver"] for item in page["items"]] == ["receiver-1"]
        assert answered(page) == {"receiver-1": True}

    api.run(scenario)


def test_a_client_of_several_receivers_is_one(apis: list[Api]) -> None:
    text = uuid_to_text(instance_id(5))
    for number, api in enumerate(apis[:2]):
        ask(api.telemetry, 5, api.clock.now, source_address=f"10.0.0.{number}")
        push = PushTelemetryRequest(client_instance_id=instance_id(5))
        identity = connection(5, source_address=f"10.0.0.{number}")
        api.telemetry.accept(identity, push, now=api.clock.now, received_at_ns=1)
    ask(apis[0].telemetry, 6, apis[0].clock.now)
    # The first receiver has not heard of the client since; it went on at the second.
    apis[0].clock.now += 500

    async def scenario() -> None:
        async with cluster_of(apis) as (client, *_):
            items = await everything(client, "/v1/clients")
            assert [item["client_instance_id"] for item in items] == [text, uuid_to_text(instance_id(6))]
            for shown in (items[0], (await client.get(f"/v1/clients/{text}?scope=cluster")).json()):
                assert (shown["receiver"], shown["state"]) == ("receiver-2", "unsubscribed")
                assert (shown["pushes"], shown["pushed_minutes"]) == (2, "000000000000201")
                assert [
                    (seen["receiver"], seen["source_address"], seen["state"]) for seen in shown["connections"]
                ] == [("receiver-2", "10.0.0.1", "unsubscribed"), ("receiver-1", "10.0.0.0", "silent")]
            silent = await everything(client, "/v1/clients", state="silent", limit=1)
            assert [item["client_instance_id"] for item in silent] == [uuid_to_text(instance_id(6))]

    run(scenario)


def push_throttled(api: Api, number: int, milliseconds: float, at_ns: int) -> None:
    """Let a client push how long the brokers throttled it."""
    data = otlp_push(resource_metrics(gauge(THROTTLE, milliseconds)))
    request = PushTelemetryRequest(client_instance_id=instance_id(number), metrics=data)
    api.telemetry.accept(connection(number), request, now=api.clock.now, received_at_ns=at_ns)


def test_signs_and_values_of_all_receivers(apis: list[Api]) -> None:
    second = 1_000_000_000
    push_throttled(apis[0], 5, 10.0, 100 * second)
    # The client went on at another receiver.
    push_throttled(apis[1], 5, 20.0, 160 * second + second // 2)
    push_throttled(apis[2], 6, 30.0, 130 * second)
    push_throttled(apis[2], 7, 0.0, 130 * second)
    text = uuid_to_text(instance_id(5))
    dead = f"http://127.0.0.1:{free_port()}"

    async def scenario() -> None:
        async with cluster_of(apis, dead) as clients:
            for client in clients:
                shown = (await client.get("/v1/signs?scope=cluster")).json()
                assert (shown["read"], shown["clients"]) == (4, 4)
                assert [(sign["value"], sign["receiver"]) for sign in shown["items"]] == [
                    (30.0, "receiver-3"), (20.0, "receiver-2"),
                ]  # fmt: skip
                assert answered(shown)[None] is False
                assert len((await client.get("/v1/signs?scope=cluster&limit=1")).json()["items"]) == 1
                path = f"/v1/clients/{text}/values?scope=cluster"
                values = (await client.get(path)).json()
                found = [push["metrics"][0]["points"][0]["value"] for push in values["items"]]
                assert (found, values["next"]) == ([10.0, 20.0], str(160 * second + second // 2))
                assert answered(values)[None] is False
                later = (await client.get(f"{path}&after={100 * second}")).json()
                assert len(later["items"]) == 1
            assert "receiver" not in (await clients[0].get("/v1/signs")).json()["items"][0]
            problem_of(await clients[2].get(f"/v1/clients/{text}/values"), 404)
            problem_of(
                await clients[2].get(f"/v1/clients/{uuid_to_text(instance_id(9))}/values?scope=cluster"), 404
            )
            problem_of(await clients[2].get("/v1/clients/nobody/values?scope=cluster"), 422)

    run(scenario)


def test_the_state_of_each_receiver(apis: list[Api]) -> None:
    for number, api in enumerate(apis):
        api.warnings.append(f"warning {number}")
        for client in range(number + 1):
            ask(api.telemetry, 5 + client, api.clock.now)
    apis[2].telemetry.disconnected(connection(5).id, now=apis[2].clock.now, now_ns=1)
    dead = f"http://127.0.0.1:{free_port()}"

    async def scenario() -> None:
        async with cluster_of(apis, dead) as clients:
            own = (await clients[1].get("/v1/receivers")).json()
            status = (await clients[1].get("/v1/status")).json()
            assert own == {"items": [{"receiver": "receiver-2", "status": status}], "members": []}
            shown = (await clients[1].get("/v1/receivers?scope=cluster")).json()
            assert [item["receiver"] for item in shown["items"]] == ["receiver-2", "receiver-1", "receiver-3"]
            for item in shown["items"]:
                number = int(item["receiver"][-1]) - 1
                assert item["status"]["warnings"] == [f"warning {number}"]
                known = number + 1 if number < 2 else 2
                assert item["status"]["clients"]["versions"] == [
                    {
                        "client_software_name": "apache-kafka-java",
                        "client_software_version": "4.4.0",
                        "clients": known,
                    }
                ]
                assert item["status"]["clients"]["disconnected"] == (number == 2)
            assert answered(shown)[None] is False

    run(scenario)


def test_members_show_their_own_token_over_tls(apis: list[Api], tmp_path: Path) -> None:
    authority = CertificateAuthority("the cluster")
    files = authority.issue().write(tmp_path)
    trust = tmp_path / "trust.pem"
    trust.write_text(authority.ca_pem)
    token = tmp_path / "token"
    token.write_text(f"{VIEWER_TOKEN}\n")
    for number, api in enumerate(apis):
        api.settings = token_settings(tls={"cert_file": files.chain, "key_file": files.key})
        api.connections.append(connection(number))
    keys = {"token": {"file": token}, "tls": {"ca_file": trust}}

    async def scenario() -> None:
        async with cluster_of(apis, **keys) as (client, *_):
            path = "/v1/connections?scope=cluster"
            problem_of(await client.get(path), 401)
            page = (await client.get(path, headers=bearer(VIEWER_TOKEN))).json()
            assert len(page["items"]) == 3
            token.write_text("not-known-to-the-others")
            assert len((await client.get(path, headers=bearer(VIEWER_TOKEN))).json()["items"]) == 3
            apis[0].clock.now += 1  # files are looked at once a second
            page = (await client.get(path, headers=bearer(VIEWER_TOKEN))).json()
            assert len(page["items"]) == 1
            problems = {member["problem"] for member in page["members"] if not member["answered"]}
            assert problems == {
                "it does not know the token or certificate: set cluster.token, and its rest.tokens"
            }
            token.unlink()
            apis[0].clock.now += 1
            page = (await client.get(path, headers=bearer(VIEWER_TOKEN))).json()
            assert all("No such file" in str(member["problem"]) for member in page["members"][1:])

    run(scenario)


def test_a_certificate_of_another_authority_is_refused(apis: list[Api], tmp_path: Path) -> None:
    files = CertificateAuthority("one").issue().write(tmp_path)
    trust = tmp_path / "trust.pem"
    trust.write_text(CertificateAuthority("other").ca_pem)
    for api in apis:
        api.settings = token_settings(tls={"cert_file": files.chain, "key_file": files.key})

    async def scenario() -> None:
        async with cluster_of(apis, tls={"ca_file": trust}) as (client, *_):
            page = (await client.get("/v1/clients?scope=cluster", headers=bearer(VIEWER_TOKEN))).json()
            problems = [str(member["problem"]) for member in page["members"] if not member["answered"]]
            assert len(problems) == 3
            assert all(problem.startswith("certificate verify failed") for problem in problems)

    run(scenario)


def test_members_by_name_are_those_at_its_addresses(apis: list[Api]) -> None:
    apis[1].connections.append(connection(1))

    async def scenario() -> None:
        async with cluster_of(apis[:2]) as (client, other):
            members = apis[0].cluster.members
            assert members is not None
            by_name = {"members": f"dns://localhost:{other.base_url.port}", **PATIENT}
            members.settings = ClusterSettings.model_validate(by_name)  # type: ignore[misc]
            page = (await client.get("/v1/connections?scope=cluster")).json()
            assert answered(page).get("receiver-2")
            assert [item["receiver"] for item in page["items"]] == ["receiver-2"]
            by_name["members"] = "dns://no-such-name.invalid:1"
            members.settings = ClusterSettings.model_validate(by_name)  # type: ignore[misc]
            page = (await client.get("/v1/connections?scope=cluster")).json()
            assert answered(page) == {"receiver-1": True, None: False}

    run(scenario)


def test_a_file_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    token = tmp_path / "token"
    settings = ClusterSettings.model_validate({"members": ["http://127.0.0.1:1"], "token": {"file": token}})
    with pytest.raises(RestFilesError, match=r"cluster\.token\.file: .*: No such file"):
        Members(settings, "receiver-1")
    token.write_text("two words")
    with pytest.raises(RestFilesError, match="expected one token") as caught:
        Members(settings, "receiver-1")
    assert "two words" not in str(caught.value)
