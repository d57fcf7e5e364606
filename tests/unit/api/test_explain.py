"""Dry runs of subscriptions, and why a client is asked for what it is."""

from __future__ import annotations

import gzip
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from receiver.telemetry.compression import CODECS
from receiver.telemetry.identity import Via
from receiver.telemetry.selectors import REVEALED_SELECTORS
from receiver.telemetry.subscription import Subscription
from receiver.telemetry.subscription_checks import Temporality
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import uuid_to_text
from tests.unit.api.conftest import (
    EDITOR_TOKEN,
    VIEWER_TOKEN,
    Api,
    ask,
    bearer,
    connection,
    instance_id,
    problem_of,
    telemetry_core,
    token_settings,
)
from tests.unit.telemetry.otlp_parts import gauge, push, resource_metrics


def push_metrics(api: Api, number: int, names: list[str], *, points: int = 2, **facts: Any) -> int:
    """Push metrics with so many points each; return the size of what plugins get."""
    asked = ask(api.telemetry, number, api.clock.now, **facts).response
    request = PushTelemetryRequest(
        client_instance_id=instance_id(number),
        subscription_id=asked.subscription_id,
        metrics=push(resource_metrics(*(gauge(name, *[1.0] * points) for name in names), group_id="g")),
    )
    outcome = api.telemetry.push_telemetry(
        connection(number, **facts), request, now=api.clock.now, received_at_ns=1
    )
    assert outcome.push is not None
    return len(outcome.push.payload.data)


async def dry_run(rest: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await rest.post("/v1/explain", json=body)
    assert answer.status_code == 200, answer.text
    document = answer.json()
    assert list(document) == [
        "matched",
        "examples",
        "clients",
        "series",
        "bytes_per_second",
        "asked_within_ms",
        "warnings",
    ]
    assert isinstance(document, dict)
    return document


def test_a_dry_run_estimates_from_what_such_clients_have_pushed(api: Api) -> None:
    api.store.put(Subscription("all", ("*",), 10_000))
    producer = "org.apache.kafka.producer."

    async def scenario(rest: httpx.AsyncClient) -> None:
        size = push_metrics(api, 2, [f"{producer}a", f"{producer}b", "org.apache.kafka.consumer.c"])
        for number in (3, 4, 5):
            ask(api.telemetry, number, api.clock.now, client_id="billing")
        before = list(api.store.load_all())
        whole = await dry_run(rest, metrics=["*"], interval_ms=20_000)
        assert (whole["matched"], whole["clients"], whole["series"]) == (4, 4, 24)
        assert len(whole["examples"]) == 4
        assert whole["examples"][0].keys() == {"client_instance_id", "client_id"}
        assert whole["bytes_per_second"] == pytest.approx(4 * size / 20, rel=0.01)
        assert whole["asked_within_ms"] == 15_000
        part = await dry_run(rest, metrics=[producer], interval_ms=10_000, match={"client_id": "billing"})
        assert (part["matched"], part["clients"], part["series"]) == (3, 4, 12)
        assert part["bytes_per_second"] < 3 * size / 10
        # Nothing is stored.
        assert list(api.store.load_all()) == before

    api.run(scenario)


def test_a_metric_counts_as_often_as_it_is_pushed(api: Api) -> None:
    api.store.put(Subscription("all", ("*",), 10_000))

    async def scenario(rest: httpx.AsyncClient) -> None:
        push_metrics(api, 2, ["a.x"], points=3)
        api.clock.now += 2
        push_metrics(api, 3, ["b.y"], points=1)
        result = await dry_run(rest, metrics=["a.", "b."])
        assert (result["matched"], result["series"]) == (2, 4)
        assert (await dry_run(rest, metrics=["a."]))["series"] == 3

    api.run(scenario)


def test_other_software_counts_as_the_average(api: Api) -> None:
    api.store.put(Subscription("all", ("*",), 10_000))

    async def scenario(rest: httpx.AsyncClient) -> None:
        push_metrics(api, 2, ["a.x"], points=3)
        ask(api.telemetry, 3, api.clock.now, client_software_name="librdkafka")
        assert (await dry_run(rest, metrics=["a."]))["series"] == 6
        unknown = await dry_run(rest, metrics=["a."], match={"client_software_name": "librdkafka"})
        assert (unknown["matched"], unknown["series"], unknown["bytes_per_second"]) == (1, None, None)
        assert unknown["warnings"] == ["no client like these has pushed yet, so series and bytes are unknown"]

    api.run(scenario)


def test_warnings_name_what_is_probably_wrong(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        async def warnings(**body: Any) -> list[str]:
            found: list[str] = (await dry_run(rest, **{"metrics": [], **body}))["warnings"]
            return found

        assert await warnings() == ["no client is known yet"]
        ask(api.telemetry, 2, api.clock.now, client_id="orders-1")
        ask(api.telemetry, 3, api.clock.now, client_id="billing-1", principal="User:a")
        assert await warnings() == []
        assert (await warnings(metrics=["org.apache.kafka.producers."]))[0] == (
            "no known metric begins with 'org.apache.kafka.producers.'; did you mean "
            "'org.apache.kafka.producer.'?"
        )
        assert await warnings(match={"client_id": "order-.*"}) == [
            "match.client_id: 'order-.*' matches the client_id of no known client; the nearest of 2 is "
            "'orders-1'"
        ]
        assert await warnings(match={"client_id!": ".*-1"}) == [
            "match.client_id!: '.*-1' matches the client_id of every client"
        ]
        assert await warnings(match={"client_id": "orders-1", "principal": "User:a"}) == [
            "each selector matches some client, but no client meets all of them"
        ]
        assert await warnings(match={"group_id": "g"}) == [
            "match.group_id: 'g' matches the group_id of no known client",
            "group_id is unknown of 2 clients: only a push reveals it",
        ]
        assert await warnings(enabled=False) == ["enabled is false, so it applies to no client"]
        assert await warnings(expires_at="2020-01-01T00:00:00Z") == [
            "expires_at is over, so it applies to no client"
        ]

    api.run(scenario)


def test_a_dry_run_of_an_existing_name_is_a_replacement(api: Api) -> None:
    api.store.put(Subscription("s", tuple(f"m{n}." for n in range(250)), 1_000))

    async def scenario(rest: httpx.AsyncClient) -> None:
        for name in ("t", "u", "v"):
            api.store.put(Subscription(name, tuple(f"{name}{n}." for n in range(250))))
        await rest.put("/v1/subscriptions/s", json={"metrics": [f"m{n}." for n in range(250)]})
        for name in ("t", "u", "v"):
            await rest.put(f"/v1/subscriptions/{name}", json={"metrics": [f"{name}{n}." for n in range(250)]})
        await dry_run(rest, name="s", metrics=["other."])
        answer = await rest.post("/v1/explain", json={"metrics": ["other."]})
        assert "1001 different prefixes" in answer.text or answer.status_code == 422
        problem_of(answer, 422)
        wrong = {"metrics": "x", "interval_ms": 1, "colour": 1}
        problem = problem_of(await rest.post("/v1/explain", json=wrong), 422)
        assert {error["field"] for error in problem["errors"]} == {"metrics", "interval_ms", "colour"}

    api.run(scenario)


def test_a_viewer_may_explain_and_nobody_else(api: Api) -> None:
    api.settings = token_settings()

    async def scenario(rest: httpx.AsyncClient) -> None:
        for token in (VIEWER_TOKEN, EDITOR_TOKEN):
            answer = await rest.post("/v1/explain", json={"metrics": []}, headers=bearer(token))
            assert answer.status_code == 200
        assert (await rest.post("/v1/explain", json={"metrics": []})).status_code == 401
        answer = await rest.post("/v1/subscriptions", json={}, headers=bearer(VIEWER_TOKEN))
        assert answer.status_code == 403

    api.run(scenario)


def test_the_explanation_of_a_client(api: Api) -> None:
    for item in (
        Subscription("a", ("x.",), 60_000, {"client_id": "orders"}, temporality="cumulative"),  # type: ignore[arg-type]
        Subscription("b", ("x.", "y."), 30_000),
        Subscription("c", ("z.",), 1_000, {"client_id": "billing-.*", "principal!": "User:.*"}),
        Subscription("d", ("z.",), 1_000, {"group_id": "g"}),
        Subscription("e", ("z.",), 1_000, enabled=False),
    ):
        api.store.put(item)

    async def scenario(rest: httpx.AsyncClient) -> None:
        path = f"/v1/clients/{uuid_to_text(instance_id(2))}/explain"
        problem_of(await rest.get(path), 404)
        answer = ask(api.telemetry, 2, api.clock.now).response
        api.clock.now += 5
        shown = (await rest.get(path)).json()
        assert shown == {
            "client_instance_id": uuid_to_text(instance_id(2)),
            "client_id": "orders",
            "via": "gateway",
            "state": "waiting",
            "subscription_id": answer.subscription_id,
            "requested_metrics": ["x.", "y."],
            "push_interval_ms": 30_000,
            "temporality": "cumulative",
            "in_effect": True,
            "differs": [],
            "asked_within_ms": 40_000,
            "metrics_from": [
                {"prefix": "x.", "subscriptions": ["a", "b"]},
                {"prefix": "y.", "subscriptions": ["b"]},
            ],
            "interval_from": {
                "origin": "subscription",
                "subscriptions": ["b"],
                "wanted_ms": 30_000,
                "factor": 1,
            },
            "temporality_from": {"origin": "subscription", "subscriptions": ["a"]},
            "reduced": None,
            "quirks": [],
            "revealed": dict.fromkeys(REVEALED_SELECTORS),
            "subscriptions": [
                {"name": "a", "state": "active", "matches": True, "reasons": []},
                {"name": "b", "state": "active", "matches": True, "reasons": []},
                {
                    "name": "c",
                    "state": "active",
                    "matches": False,
                    "reasons": [
                        "client_id is 'orders', which 'billing-.*' does not match",
                        "principal is 'User:ANONYMOUS', which 'User:.*' must not match",
                    ],
                },
                {
                    "name": "d",
                    "state": "active",
                    "matches": False,
                    "reasons": ["group_id is unknown: no push has revealed it"],
                },
                {"name": "e", "state": "disabled", "matches": False, "reasons": ["it is disabled"]},
            ],
        }
        api.telemetry.subscriptions.set_has_plugins(False)
        shown = (await rest.get(path)).json()
        assert shown["requested_metrics"] == []
        assert shown["subscriptions"][0]["reasons"] == [
            "there is no plugin, so clients are asked for nothing"
        ]
        api.telemetry.subscriptions.set_has_plugins(True)
        # A change is explained before the client learns of it.
        for name in ("a", "b"):
            assert (await rest.delete(f"/v1/subscriptions/{name}")).status_code == 204
        shown = (await rest.get(path)).json()
        assert (shown["requested_metrics"], shown["in_effect"]) == ([], False)
        assert shown["interval_from"] == {
            "origin": "default",
            "subscriptions": [],
            "wanted_ms": 300_000,
            "factor": 1,
        }
        assert shown["temporality_from"] == {"origin": "default", "subscriptions": []}

    api.run(scenario)


def test_the_explanation_says_what_the_broker_of_a_bridge_does_otherwise(api: Api) -> None:
    over = datetime.fromtimestamp(api.wall_ns / 1e9 - 1, UTC)
    for item in (
        Subscription("a", ("x.",), 60_000, {"client_id": "orders"}, temporality=Temporality.CUMULATIVE),
        Subscription("b", ("x.",), 60_000, {"client_id": "o{1,2}rders", "principal": "User:.*"}),
        Subscription("c", ("x.",), 60_000, {"principal": "User:nobody"}),
        Subscription("d", ("x.",), 60_000, {"client_id": "billing"}, expires_at=over),
        Subscription("e", ("x.",), 60_000, {"client_id": "orders"}, expires_at=over),
        Subscription("f", ("x.",), 60_000, {"principal": "User:.*"}, expires_at=over),
        Subscription("g", ("x.",), 60_000, enabled=False),
    ):
        api.store.put(item)
    offenders = {"max_too_large": 1, "relax_after_s": 100}
    api.telemetry = telemetry_core(
        max_bytes=1024, backpressure={"enabled": True, "step_s": 1, "behind_s": 5, "offenders": offenders}
    )

    async def scenario(rest: httpx.AsyncClient) -> None:
        path = f"/v1/clients/{uuid_to_text(instance_id(2))}/explain"
        client = connection(2, via=Via.BRIDGE)
        pushed = PushTelemetryRequest(client_instance_id=instance_id(2))
        now = api.clock.now
        api.telemetry.accept(client, pushed, now=now, received_at_ns=1, interval_ms=60_000)
        assert (await rest.get(path)).json()["differs"] == [
            "the broker does not read the store sqlite: it has the subscriptions of kafka-client-metrics.sh",
            "the broker asks for deltas",
        ]
        api.store_name = "kafka"
        assert (await rest.get(path)).json()["differs"] == [
            "subscription b: a broker can't read match.client_id, match.principal, so it asks no client "
            "for it",
            "subscription e: a broker does not know expires_at, so it asks for it until it is deleted",
            "the broker asks for deltas",
        ]
        api.telemetry.subscriptions.set_has_plugins(False)
        assert (await rest.get(path)).json()["differs"][1:] == [
            "the broker asks for metrics though no plugin takes them here",
            "the broker asks for a push every 60 s",
        ]
        api.telemetry.subscriptions.set_has_plugins(True)
        for late in (0, 1):
            api.telemetry.backpressure.observe({"otlp": 100.0}, now + late)
        client = replace(client, client_software_name="librdkafka", client_software_version="2.16.0")
        too_large = replace(pushed, compression_type=CODECS["gzip"], metrics=gzip.compress(bytes(2**22)))
        api.telemetry.accept(client, too_large, now=now, received_at_ns=1, interval_ms=60_000)
        assert (await rest.get(path)).json()["differs"][2:] == [
            "the broker asks for a push every 60 s",
            "the broker asks for deltas",
            "the broker has no workaround for what is listed as quirks",
            "the broker does not ask it for less, though it pushes too much",
            "the broker does not ask less often while a plugin is behind",
        ]

    api.run(scenario)


def test_the_explanation_names_a_quirk(api: Api) -> None:
    api.store.put(Subscription("s", ("*",), 3_600_000))

    async def scenario(rest: httpx.AsyncClient) -> None:
        facts = {"client_software_name": "librdkafka", "client_software_version": "2.16.0"}
        ask(api.telemetry, 2, api.clock.now, **facts)
        shown = (await rest.get(f"/v1/clients/{uuid_to_text(instance_id(2))}/explain")).json()
        assert shown["push_interval_ms"] == 1_431_000
        assert shown["interval_from"] == {
            "origin": "quirk",
            "subscriptions": ["s"],
            "wanted_ms": 3_600_000,
            "factor": 1,
        }
        assert shown["metrics_from"] == [{"prefix": "*", "subscriptions": ["s"]}]
        assert "overflows" in " ".join(shown["quirks"])

    api.run(scenario)
