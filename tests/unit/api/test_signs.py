"""What the latest pushes of clients show to be wrong."""

from __future__ import annotations

import httpx
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Gauge,
    Metric,
    NumberDataPoint,
    Sum,
)

from receiver.catalogue import CATALOGUE
from receiver.telemetry.signs import RULES, Sign, SignKind, signs
from receiver.telemetry.subscription import Subscription
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from tests.unit.api.conftest import Api, ask, connection, instance_id
from tests.unit.telemetry.otlp_parts import push, resource_metrics

PREFIX = "org.apache.kafka."
THROTTLE = f"{PREFIX}producer.produce.throttle.time.max"
ERRORS = f"{PREFIX}producer.record.error.total"
DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def gauge(name: str, *values: float) -> Metric:
    return Metric(name=name, gauge=Gauge(data_points=[NumberDataPoint(as_double=value) for value in values]))


def total(name: str, value: int, temporality: int) -> Metric:
    points = [NumberDataPoint(as_int=value)]
    return Metric(name=name, sum=Sum(aggregation_temporality=temporality, data_points=points))  # type: ignore[arg-type]


def test_each_rule_is_about_standard_metrics() -> None:
    assert RULES.keys() == set(SignKind)
    for rule in RULES.values():
        assert all(CATALOGUE.metric(PREFIX + name) is not None for name in rule.metrics)


@pytest.mark.parametrize("kind", RULES)
def test_a_value_beyond_the_bound_is_a_sign_and_the_bound_is_none(kind: SignKind) -> None:
    rule_ = RULES[kind]
    name = PREFIX + rule_.metrics[0]
    below = rule_.passes(0.0, 1.0)
    beyond, furthest = (rule_.bound * 0.5, 0.0) if below else (rule_.bound + 1, rule_.bound + 2)
    data = push(resource_metrics(gauge(name, rule_.bound, beyond, furthest, beyond)))
    assert signs(data) == (Sign(kind=kind, metric=name, value=furthest),)
    assert signs(push(resource_metrics(gauge(name, rule_.bound, float("nan"))))) == ()


def test_a_sum_counts_as_a_delta_only() -> None:
    assert signs(push(resource_metrics(total(ERRORS, 3, CUMULATIVE)))) == ()
    (sign,) = signs(push(resource_metrics(total(ERRORS, 3, DELTA))))
    assert (sign.kind, sign.value) == (SignKind.FAILING_RECORDS, 3.0)


def test_throttling_explains_slow_requests() -> None:
    slow = gauge(f"{PREFIX}producer.request.latency.avg", 5000.0)
    assert [sign.kind for sign in signs(push(resource_metrics(slow)))] == [SignKind.SLOW_REQUESTS]
    assert [sign.kind for sign in signs(push(resource_metrics(slow, gauge(THROTTLE, 7.0))))] == [
        SignKind.THROTTLED
    ]


def test_the_clients_that_are_throttled(api: Api) -> None:
    api.store.put(Subscription("all", ("*",), 60_000))

    def push_throttled(number: int, milliseconds: float, at_s: int) -> None:
        asked = ask(api.telemetry, number, api.clock.now, client_id=f"orders-{number}").response
        request = PushTelemetryRequest(
            client_instance_id=instance_id(number),
            subscription_id=asked.subscription_id,
            metrics=push(resource_metrics(gauge(THROTTLE, milliseconds), group_id="g")),
        )
        accepted = api.telemetry.push_telemetry(
            connection(number, client_id=f"orders-{number}"),
            request,
            now=api.clock.now,
            received_at_ns=at_s * 10**9,
        )
        assert accepted.push is not None

    async def scenario(rest: httpx.AsyncClient) -> None:
        for number, milliseconds in ((5, 0.0), (6, 250.0)):
            push_throttled(number, milliseconds, 1_700_000_000)
        ask(api.telemetry, 7, api.clock.now)
        shown = (await rest.get("/v1/signs")).json()
        assert (shown["read"], shown["clients"]) == (2, 3)
        (sign,) = shown["items"]
        assert {
            field: sign[field] for field in ("kind", "client_id", "metric", "value", "unit", "since")
        } == {
            "kind": "throttled",
            "client_id": "orders-6",
            "metric": THROTTLE,
            "value": 250.0,
            "unit": "ms",
            "since": "2023-11-14T22:13:20Z",
        }
        assert "quota" in sign["advice"]
        assert (await rest.get("/v1/signs?limit=1")).json()["items"] == [sign]

        api.clock.now += 60
        push_throttled(6, 100.0, 1_700_000_060)
        (again,) = (await rest.get("/v1/signs")).json()["items"]
        assert (again["since"], again["value"]) == (sign["since"], 100.0)
        assert again["received_at"] == "2023-11-14T22:14:20Z"

        api.clock.now += 60
        push_throttled(6, 0.0, 1_700_000_120)
        assert (await rest.get("/v1/signs")).json()["items"] == []
        api.clock.now += 60
        push_throttled(6, 5.0, 1_700_000_180)
        (later,) = (await rest.get("/v1/signs")).json()["items"]
        assert later["since"] == "2023-11-14T22:16:20Z"

    api.run(scenario)
