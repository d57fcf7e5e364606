"""Subscriptions over REST: the outer contract, durability, conditions, and wrong requests."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from receiver.api.bodies import MAX_BODY_BYTES
from receiver.store.files import FileSubscriptionStore
from receiver.store.sqlite import SqliteSubscriptionStore
from receiver.telemetry.subscription import Subscription
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire.error_codes import ErrorCode
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from tests.unit.api.conftest import Api, ask, connection, instance_id, problem_of, whole
from tests.unit.telemetry.otlp_parts import gauge, push, resource_metrics

BODY = {
    "metrics": ["org.apache.kafka.producer."],
    "interval_ms": 60000,
    "match": {"client_software_name": "apache-kafka-java"},
}


def push_metric(telemetry: ClientTelemetry, name: str) -> None:
    asked = ask(telemetry, 9, 3000.0).response
    request = PushTelemetryRequest(
        client_instance_id=instance_id(9),
        subscription_id=asked.subscription_id,
        metrics=push(resource_metrics(gauge(name, 1.0))),
    )
    outcome = telemetry.push_telemetry(connection(9), request, now=3001.0, received_at_ns=1)
    assert outcome.push is not None


def test_the_outer_contract(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        assert (await rest.get("/v1/subscriptions")).json() == {"items": [], "next": None}
        answer = await rest.put("/v1/subscriptions/producers", json=BODY)
        assert answer.status_code == 201
        assert answer.json() == whole("producers", BODY)
        answer = await rest.put("/v1/subscriptions/producers", json=BODY)
        assert answer.status_code == 200
        answer = await rest.get("/v1/subscriptions/producers")
        assert answer.status_code == 200
        assert answer.json() == whole("producers", BODY)
        assert (await rest.get("/v1/subscriptions")).json()["items"] == [whole("producers", BODY)]
        answer = await rest.delete("/v1/subscriptions/producers")
        assert (answer.status_code, answer.content) == (204, b"")
        problem_of(await rest.get("/v1/subscriptions/producers"), 404)
        problem_of(await rest.delete("/v1/subscriptions/producers"), 404)

    api.run(scenario)


def test_every_field_is_kept(api: Api) -> None:
    body = {
        "metrics": ["*"],
        "interval_ms": 1000,
        "match": {"client_id!": "x"},
        "enabled": False,
        "expires_at": "2030-01-31T13:00:00.5+01:00",
        "temporality": "cumulative",
        "labels": {"team": "orders"},
        "description": "two\nlines",
    }

    async def scenario(rest: httpx.AsyncClient) -> None:
        answer = await rest.put("/v1/subscriptions/s", json=body)
        kept = {**body, "expires_at": "2030-01-31T12:00:00.500Z"}
        assert answer.json() == whole("s", kept, state="disabled")
        assert (await rest.get("/v1/subscriptions/s")).json() == answer.json()
        tag = answer.headers["etag"]
        api.wall_ns += 10**9
        again = await rest.put("/v1/subscriptions/s", json=answer.json())
        assert (again.status_code, again.headers["etag"]) == (200, tag)
        assert again.json() == answer.json(), "nothing has changed, so changed_at stays"

    api.run(scenario)


def test_a_put_without_an_interval_keeps_the_existing_one(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        await rest.put("/v1/subscriptions/s", json={"metrics": ["*"], "interval_ms": 1000, "enabled": False})
        answer = await rest.put("/v1/subscriptions/s", json={"metrics": ["org.apache.kafka."]})
        assert (answer.json()["interval_ms"], answer.json()["enabled"]) == (1000, True)

    api.run(scenario)


def test_an_expired_subscription_is_accepted_with_a_warning(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        body = {"metrics": ["*"], "expires_at": "2020-01-01T00:00:00Z"}
        answer = await rest.put("/v1/subscriptions/s", json=body)
        assert (answer.json()["state"], answer.json()["warnings"]) == (
            "expired",
            ["expires_at is over, so it applies to no client"],
        )

    api.run(scenario)


def test_patch_changes_parts(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        path = "/v1/subscriptions/s"
        problem_of(await rest.patch(path, json={"enabled": False}), 404)
        first = await rest.put(path, json=BODY)
        api.wall_ns += 10**9
        added = await rest.patch(path, json={"add_metrics": ["org.apache.kafka.consumer."]})
        assert added.status_code == 200
        expected = {**BODY, "metrics": ["org.apache.kafka.producer.", "org.apache.kafka.consumer."]}
        assert added.json() == whole("s", expected, changed_at="2026-11-21T09:57:05.788Z")
        assert added.headers["etag"] != first.headers["etag"]
        assert "kafka-telemetry-asked-within-ms" in added.headers
        merge = {"content-type": "application/merge-patch+json"}
        removed = await rest.patch(
            path, content=b'{"remove_metrics": ["org.apache.kafka.consumer.", "no."]}', headers=merge
        )
        assert removed.json()["metrics"] == BODY["metrics"]
        assert removed.json()["warnings"] == ["there is no prefix 'no.' to remove"]
        problem_of(await rest.patch(path, json={"enabled": False}, headers={"if-match": '"x"'}), 412)
        tag = {"if-match": removed.headers["etag"]}
        assert (await rest.patch(path, json={"enabled": False}, headers=tag)).json()["state"] == "disabled"
        problem = problem_of(await rest.patch(path, json={"metric": [], "interval_ms": 1}), 422)
        assert {error["field"] for error in problem["errors"]} == {"metric", "interval_ms"}
        (stored,) = api.store.load_all()
        assert not stored.enabled

    api.run(scenario)


def test_patches_at_the_same_time_do_not_undo_each_other(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        await rest.put("/v1/subscriptions/s", json={"metrics": []})
        answers = await asyncio.gather(
            *(rest.patch("/v1/subscriptions/s", json={"add_metrics": [f"m{n}."]}) for n in range(8))
        )
        assert {answer.status_code for answer in answers} == {200}
        shown = (await rest.get("/v1/subscriptions/s")).json()
        assert sorted(shown["metrics"]) == [f"m{n}." for n in range(8)]

    api.run(scenario)


def test_a_prefix_that_no_known_metric_has_is_accepted_with_a_warning(api: Api) -> None:
    async def put(rest: httpx.AsyncClient, *metrics: str) -> list[str]:
        answer = await rest.put("/v1/subscriptions/one", json={"metrics": metrics})
        assert answer.is_success
        warnings: list[str] = answer.json().get("warnings", [])
        return warnings

    async def scenario(rest: httpx.AsyncClient) -> None:
        assert await put(rest, "org.apache.kafka.consumer.", "org.apache.kafka.producer.node.") == []
        assert await put(rest, "*") == []
        assert await put(rest, "producer.node.", "org.apache.kafka.producers.", "zzz") == [
            "no known metric begins with 'producer.node.'; did you mean 'org.apache.kafka.producer.node.'?",
            "no known metric begins with 'org.apache.kafka.producers.'; did you mean "
            "'org.apache.kafka.producer.'?",
            "no known metric begins with 'zzz'",
        ]
        assert "warnings" not in (await rest.get("/v1/subscriptions/one")).json()
        # A metric of the client's own (KIP-1076) is known once it was pushed.
        assert await put(rest, "my.application.") != []
        push_metric(api.telemetry, "my.application.orders")
        assert await put(rest, "my.application.") == []

    api.run(scenario)


def test_a_put_says_when_connected_clients_are_asked(api: Api) -> None:
    async def within_ms(rest: httpx.AsyncClient, interval_ms: int) -> int:
        answer = await rest.put("/v1/subscriptions/one", json={"metrics": ["*"], "interval_ms": interval_ms})
        return int(answer.headers["kafka-telemetry-asked-within-ms"])

    async def scenario(rest: httpx.AsyncClient) -> None:
        assert await within_ms(rest, 10_000) == 0  # nobody is connected
        ask(api.telemetry, 2, 1000.0)
        assert await within_ms(rest, 60_000) == 15_000
        ask(api.telemetry, 2, 2000.0)
        assert await within_ms(rest, 1_000) == 90_000

    api.run(scenario)


def test_a_put_is_in_the_store_and_in_force_for_the_next_request_when_it_is_answered(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        first = ask(api.telemetry, 2, 1000.0).response
        assert (first.requested_metrics, first.push_interval_ms) == ((), 300_000)
        await rest.put("/v1/subscriptions/producers", json=BODY)
        assert [item.name for item in api.store.load_all()] == ["producers"]
        # Long before the client's interval is over: what it was asked before counts no more.
        second = ask(api.telemetry, 2, 1001.0).response
        assert second.error_code == ErrorCode.NONE
        assert (second.requested_metrics, second.push_interval_ms) == (
            ("org.apache.kafka.producer.",),
            60_000,
        )
        other = ask(api.telemetry, 3, 1001.0, client_software_name="kgo").response
        assert other.requested_metrics == ()
        await rest.delete("/v1/subscriptions/producers")
        assert api.store.load_all() == ()
        assert ask(api.telemetry, 2, 1002.0).response.requested_metrics == ()

    api.run(scenario)


def test_a_shown_subscription_can_be_put_back(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        await rest.put("/v1/subscriptions/all", json={"metrics": ["*"]})
        shown = (await rest.get("/v1/subscriptions/all")).json()
        assert shown == whole("all", {"metrics": ["*"]})
        assert (await rest.put("/v1/subscriptions/all", json=shown)).status_code == 200
        problem = problem_of(await rest.put("/v1/subscriptions/other", json=shown), 422)
        assert problem["errors"] == [
            {
                "field": "name",
                "value": "all",
                "detail": "is not the subscription's name; omit it, or give 'other' as in the path",
            }
        ]

    api.run(scenario)


@pytest.mark.parametrize("name", ["a b", "ümlaut", "with/slash", "100%", "q?x#y", "a.b-c_d"])
def test_any_name_that_kafka_allows(api: Api, name: str) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        quoted = "/" + quote(name)
        assert (await rest.put(f"/v1/subscriptions{quoted}", json=BODY)).json()["name"] == name
        assert (await rest.get(f"/v1/subscriptions{quoted}")).json()["name"] == name
        assert (await rest.delete(f"/v1/subscriptions{quoted}")).status_code == 204

    api.run(scenario)


@pytest.mark.parametrize(
    ("change", "field", "value", "detail"),
    [
        ({"metrics": None}, "metrics", None, "is required; give a list of prefixes"),
        ({"metrics": "*"}, "metrics", "*", "is not a list; give a list of prefixes"),
        ({"metrics": [5]}, "metrics[0]", 5, "is no prefix of a metric name"),
        ({"metrics": ["a.*"]}, "metrics[0]", "a.*", "is no prefix of a metric name"),
        ({"interval_ms": "60000"}, "interval_ms", "60000", "is not a whole number; give milliseconds"),
        ({"interval_ms": True}, "interval_ms", True, "is not a whole number"),
        ({"interval_ms": 99}, "interval_ms", 99, "100 to 3600000"),
        ({"match": {"colour": "red"}}, "match.colour", "red", "client_software_name"),
        ({"match": {"client_id": "("}}, "match.client_id", "(", "regular expression"),
        ({"match": {"client_id": 5}}, "match.client_id", 5, "is not a text; give a pattern"),
        ({"match": []}, "match", [], "is not a mapping; give patterns by selector"),
        ({"interval": 5}, "interval", 5, "is an unknown field; did you mean interval_ms?"),
        ({"interval_ms": "9" * 300}, "interval_ms", "9" * 200 + "...", "is not a whole number"),
        ({"match": ["x" * 300]}, "match", None, "is not a mapping"),
    ],
)
def test_a_wrong_field_is_named(
    api: Api, change: dict[str, Any], field: str, value: Any, detail: str
) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        problem = problem_of(await rest.put("/v1/subscriptions/s", json={**BODY, **change}), 422)
        (error,) = problem["errors"]
        assert (error["field"], error["value"]) == (field, value)
        assert detail in error["detail"]
        assert field in problem["detail"]
        assert api.store.load_all() == ()

    api.run(scenario)


def test_every_wrong_field_is_named(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        wrong = {
            "interval_ms": "x",
            "nonsense": 1,
            "match": {"colour": "red", "client_id": "(", "group_id!": 5},
            "enabled": "yes",
            "expires_at": "tomorrow",
            "temporality": "both",
            "labels": {"": "x", "team": "a\nb"},
            "description": 7,
        }
        problem = problem_of(await rest.put("/v1/subscriptions/s", json=wrong), 422)
        assert [error["field"] for error in problem["errors"]] == [
            "nonsense",
            "metrics",
            "expires_at",
            "interval_ms",
            "match.colour",
            "match.client_id",
            "match.group_id!",
            "enabled",
            "temporality",
            "labels.",
            "labels.team",
            "description",
        ]
        values = {error["field"]: error["value"] for error in problem["errors"]}
        assert (values["match.group_id!"], values["labels.team"], values["enabled"]) == (5, "a\nb", "yes")

    api.run(scenario)


def test_a_wrong_name_is_named(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        (error,) = problem_of(await rest.put(f"/v1/subscriptions/{'x' * 300}", json=BODY), 422)["errors"]
        assert error["field"] == "name"
        (error,) = problem_of(await rest.put("/v1/subscriptions/a%07b", json=BODY), 422)["errors"]
        assert (error["field"], error["value"]) == ("name", "a\x07b")

    api.run(scenario)


@pytest.mark.parametrize(
    ("content", "status", "detail"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
        (b'{"metrics": [], "metrics": ["*"]}', 400, "'metrics' is given twice"),
        (b'{"metrics": [], "interval_ms": NaN}', 400, "NaN is not a JSON number"),
        (b'{"metrics": [], "interval_ms": 1e999}', 422, "interval_ms: is not a whole number"),
        (b"[" * 60000, 400, "not JSON"),
        (b"[]", 422, "is not a mapping; give the subscription's fields"),
        (b"5", 422, "is not a mapping"),
        (b'"\\ud800"', 400, "not JSON"),
        (b'{"metrics": ["\\ud800"]}', 400, "not JSON"),
        (b" " * (MAX_BODY_BYTES + 1), 413, str(MAX_BODY_BYTES)),
    ],
)
def test_an_invalid_body_is_refused(api: Api, content: bytes, status: int, detail: str) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        headers = {"content-type": "application/json"}
        answer = await rest.put("/v1/subscriptions/s", content=content, headers=headers)
        assert detail in problem_of(answer, status)["detail"]

    api.run(scenario)


def test_a_body_of_unknown_length_is_read_up_to_the_limit(api: Api) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 10_000
            yield b" " * 10_000

    async def scenario(rest: httpx.AsyncClient) -> None:
        headers = {"content-type": "application/json"}
        answer = await rest.put("/v1/subscriptions/s", content=endless(), headers=headers)
        problem_of(answer, 413)
        assert answer.headers["connection"] == "close"
        assert sent <= MAX_BODY_BYTES + 20_000

    api.run(scenario)


def test_a_body_that_stalls_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receiver.api.bodies._BODY_TIMEOUT_S", 0.05)

    async def stalled() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async def scenario(rest: httpx.AsyncClient) -> None:
        headers = {"content-type": "application/json"}
        answer = await rest.put("/v1/subscriptions/s", content=stalled(), headers=headers)
        problem_of(answer, 408)
        assert answer.headers["connection"] == "close"

    api.run(scenario)


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_another_content_type_is_refused(api: Api, content_type: str) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        headers = {"content-type": content_type}
        answer = await rest.put("/v1/subscriptions/s", content=json.dumps(BODY), headers=headers)
        assert "application/json" in problem_of(answer, 415)["detail"]

    api.run(scenario)


def test_a_content_type_may_have_parameters(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        headers = {"content-type": "Application/JSON; charset=utf-8"}
        answer = await rest.put("/v1/subscriptions/s", content=json.dumps(BODY), headers=headers)
        assert answer.status_code == 201

    api.run(scenario)


def test_pages(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        for number in range(5):
            await rest.put(f"/v1/subscriptions/s{number}", json=BODY)
        names: list[str] = []
        parameters: dict[str, str | int] = {"limit": 2}
        for _ in range(3):
            page = (await rest.get("/v1/subscriptions", params=parameters)).json()
            names += [item["name"] for item in page["items"]]
            if page["next"] is None:
                break
            parameters["after"] = page["next"]
        assert names == [f"s{number}" for number in range(5)]
        assert page["next"] is None
        for wrong in ("0", "1001", "x"):
            (error,) = problem_of(await rest.get("/v1/subscriptions", params={"limit": wrong}), 422)["errors"]
            assert (error["field"], error["value"]) == ("limit", wrong)

    api.run(scenario)


def test_a_change_that_depends_on_the_content_knows_what_others_wrote(api: Api, tmp_path: Path) -> None:
    """As if another sidecar had written: the store has more than what is in force."""

    async def scenario(rest: httpx.AsyncClient) -> None:
        path = "/v1/subscriptions/s"
        tag = (await rest.put(path, json={"metrics": ["a."]})).headers["etag"]
        with contextlib.closing(SqliteSubscriptionStore(tmp_path / "subscriptions.db")) as other:
            other.put(Subscription("s", ("a.", "b.")))
            assert (await rest.put(path, json={"metrics": []}, headers={"if-match": tag})).status_code == 412
            other.put(Subscription("s", ("a.", "b.", "c.")))
            patched = await rest.patch(path, json={"add_metrics": ["d."]})
            assert patched.json()["metrics"] == ["a.", "b.", "c.", "d."]
            other.put(Subscription("s", ("e.",)))
            tag = patched.headers["etag"]
            assert (await rest.delete(path, headers={"if-match": tag})).status_code == 412
            other.put(Subscription("new", ("e.",)))
            refused = await rest.put(
                "/v1/subscriptions/new", json={"metrics": []}, headers={"if-none-match": "*"}
            )
            assert refused.status_code == 412

    api.run(scenario)


def test_conditions(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        path = "/v1/subscriptions/s"
        problem = problem_of(await rest.put(path, json=BODY, headers={"if-match": "*"}), 412)
        assert problem["detail"] == "there is no subscription named 's' to change: list the subscriptions"
        answer = await rest.put(path, json=BODY, headers={"if-none-match": "*"})
        assert answer.status_code == 201
        first = answer.headers["etag"]
        assert (await rest.get(path)).headers["etag"] == first
        problem = problem_of(await rest.put(path, json=BODY, headers={"if-none-match": "*"}), 412)
        assert problem["detail"] == (
            "the subscription 's' exists: choose another name, or omit If-None-Match to replace it"
        )
        problem_of(await rest.put(path, json=BODY, headers={"if-none-match": first}), 422)
        changed = {**BODY, "interval_ms": 1000}
        answer = await rest.put(path, json=changed, headers={"if-match": f'"x", {first}'})
        assert answer.status_code == 200
        assert answer.headers["etag"] != first
        problem = problem_of(await rest.put(path, json=BODY, headers={"if-match": first}), 412)
        assert problem["detail"] == "the subscription 's' has changed: read it again and repeat the change"
        problem_of(await rest.delete(path, headers={"if-match": first}), 412)
        assert (await rest.get(path)).json()["interval_ms"] == 1000
        answer = await rest.delete(path, headers={"if-match": answer.headers["etag"]})
        assert answer.status_code == 204

    api.run(scenario)


def test_subscriptions_from_files_are_read_only(api: Api, tmp_path: Path) -> None:
    api.store.close()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "several.yaml").write_text("- {name: s, metrics: []}\n")
    api.store = FileSubscriptionStore(tmp_path / "d")

    async def scenario(rest: httpx.AsyncClient) -> None:
        assert [item["name"] for item in (await rest.get("/v1/subscriptions")).json()["items"]] == ["s"]
        for method in ("PUT", "DELETE"):
            problem = problem_of(await rest.request(method, "/v1/subscriptions/s", json=BODY), 409)
            assert problem["detail"].startswith(f"{tmp_path}/d/several.yaml: the subscription 's' comes from")
        problem = problem_of(await rest.put("/v1/subscriptions/t", json=BODY), 409)
        assert problem["detail"].startswith(f"{tmp_path}/d: the subscription 't' comes from files")
        problem_of(await rest.delete("/v1/subscriptions/t"), 404)

    api.run(scenario)


def test_a_failing_store_is_reported_and_nothing_changes(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        await rest.put("/v1/subscriptions/s", json=BODY)
        api.store.close()
        problem = problem_of(await rest.put("/v1/subscriptions/t", json=BODY), 503)
        assert "nothing has changed" in problem["detail"]
        problem_of(await rest.delete("/v1/subscriptions/s"), 503)
        assert [item["name"] for item in (await rest.get("/v1/subscriptions")).json()["items"]] == ["s"]

    api.run(scenario)
