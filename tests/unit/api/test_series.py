"""The use of series budgets, and reduced clients, over REST."""

from __future__ import annotations

from typing import Any

import httpx

from receiver.telemetry.subscription import Subscription
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import uuid_to_text
from tests.unit.api.conftest import Api, ask, connection, instance_id, problem_of, telemetry_core


def use(api: Api, number: int, series: int, overflowed: int, **facts: Any) -> None:
    """Record a push of a client instance."""
    ask(api.telemetry, number, api.clock.now, **facts)
    api.telemetry.series.record_push(
        instance_id(number),
        principal=facts.get("principal", "User:ANONYMOUS"),
        client_id="folded",
        block="10.0.0.1",
        series=series,
        overflowed=overflowed,
        now=api.clock.now,
    )


def test_the_clients_that_use_most_series(api: Api) -> None:
    use(api, 5, 40, 0, client_id="steady")
    use(api, 6, 30, 12, client_id="orders-1", principal="User:alice")
    api.clock.now += 2.5
    use(api, 7, 20, 13, client_id="orders-2", principal="User:alice")
    # It pushed, and is gone.
    api.telemetry.series.record_push(
        instance_id(8),
        principal="User:bob",
        client_id="gone",
        block="10.0.0.1",
        series=1,
        overflowed=99,
        now=0.0,
    )
    alices = {"instances": 2, "series": 50, "overflowed": 25, "over_for_s": 2.5}

    async def scenario(rest: httpx.AsyncClient) -> None:
        shown = (await rest.get("/v1/series?limit=2")).json()
        assert shown == {
            "budgets": {"max_per_client": 10_000, "max_per_principal": 200_000, "max_total": 1_000_000},
            "total": {"instances": 4, "series": 91, "overflowed": 124, "over_for_s": 2.5},
            "clients": [
                {
                    "client_instance_id": uuid_to_text(instance_id(7)),
                    "client_id": "orders-2",
                    "principal": "User:alice",
                    "series": 20,
                    "overflowed": 13,
                    "over_for_s": 0.0,
                }
            ],
            "client_ids": [
                {"client_id": "gone", "instances": 1, "series": 1, "overflowed": 99, "over_for_s": 1002.5},
                {"client_id": "folded", "instances": 3, "series": 90, "overflowed": 25, "over_for_s": 2.5},
            ],
            "principals": [
                {
                    "principal": "User:bob",
                    "instances": 1,
                    "series": 1,
                    "overflowed": 99,
                    "over_for_s": 1002.5,
                },
                {"principal": "User:alice", **alices},
            ],
        }
        worst = (await rest.get("/v1/series")).json()["clients"]
        assert [item["client_id"] for item in worst] == ["orders-2", "orders-1", "steady"]

    api.run(scenario)


def test_series_without_clients(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        shown = (await rest.get("/v1/series")).json()
        assert shown["total"] == {"instances": 0, "series": 0, "overflowed": 0, "over_for_s": None}
        assert (shown["clients"], shown["client_ids"], shown["principals"]) == ([], [], [])
        for limit in ("0", "1001", "many"):
            (error,) = problem_of(await rest.get(f"/v1/series?limit={limit}"), 422)["errors"]
            assert error["field"] == "limit"

    api.run(scenario)


def test_a_reduced_client(api: Api) -> None:
    api.telemetry = telemetry_core(
        max_bytes=1024,
        backpressure={"enabled": True, "step_s": 1, "offenders": {"max_too_large": 1, "relax_after_s": 100}},
    )
    api.store.put(Subscription(name="all", metrics=("org.apache.kafka.consumer.",), interval_ms=10_000))
    text = uuid_to_text(instance_id(5))

    async def scenario(rest: httpx.AsyncClient) -> None:
        answer = ask(api.telemetry, 5, api.clock.now).response
        push = PushTelemetryRequest(
            client_instance_id=instance_id(5), subscription_id=answer.subscription_id, metrics=bytes(2000)
        )
        api.telemetry.push_telemetry(connection(5), push, now=api.clock.now, received_at_ns=1)
        for now in (0.0, 1.0, 2.0):
            api.telemetry.backpressure.observe({"otlp": 100.0}, now)
        api.clock.now += 10
        ask(api.telemetry, 5, api.clock.now)
        shown = (await rest.get(f"/v1/clients/{text}")).json()
        assert (shown["interval_factor"], shown["plugin_behind"]) == (4, "otlp")
        assert shown["push_interval_ms"] == 40_000
        assert shown["reduced"] == {"to": "standard_metrics", "offence": "too_large", "relaxes_in_s": 90.0}
        assert len(shown["requested_metrics"]) == 13

    api.run(scenario)
