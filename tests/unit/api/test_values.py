"""The values of a client's latest pushes over REST."""

from __future__ import annotations

from typing import Any

import httpx
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)

from receiver.telemetry.subscription import Subscription
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import uuid_to_text
from tests.unit.api.conftest import Api, ask, connection, instance_id, problem_of, telemetry_core
from tests.unit.telemetry.otlp_parts import push, resource_metrics

DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
THROTTLE = "org.apache.kafka.producer.produce.throttle.time.max"
PATH = f"/v1/clients/{uuid_to_text(instance_id(5))}/values"


def attributes(**texts: str) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in texts.items()]


def push_metrics(api: Api, at_ns: int, *metrics: Metric) -> None:
    asked = ask(api.telemetry, 5, api.clock.now).response
    request = PushTelemetryRequest(
        client_instance_id=instance_id(5),
        subscription_id=asked.subscription_id,
        metrics=push(resource_metrics(*metrics)),
    )
    accepted = api.telemetry.push_telemetry(connection(5), request, now=api.clock.now, received_at_ns=at_ns)
    assert accepted.push is not None
    api.clock.now += 60


def throttled(milliseconds: float) -> Metric:
    point = NumberDataPoint(as_double=milliseconds, attributes=attributes(node="1"))
    return Metric(name=THROTTLE, gauge=Gauge(data_points=[point]))


def test_each_kind_of_metric(api: Api) -> None:
    api.store.put(Subscription("all", ("*",), 60_000))

    async def scenario(rest: httpx.AsyncClient) -> None:
        sent = Sum(
            aggregation_temporality=DELTA,
            is_monotonic=True,
            data_points=[NumberDataPoint(as_int=7), NumberDataPoint(as_double=0.5)],
        )
        latency = Histogram(
            aggregation_temporality=DELTA,
            data_points=[HistogramDataPoint(count=2, sum=3.5, bucket_counts=[2])],
        )
        push_metrics(
            api,
            1_700_000_000_000_000_000,
            throttled(250.0),
            Metric(name="example.sent", unit="By", sum=sent),
            Metric(name="example.latency", histogram=latency),
        )
        (shown,) = (await rest.get(PATH)).json()["items"]
        assert shown["received_at"] == "2023-11-14T22:13:20Z"
        assert shown["cut"] is False
        found: dict[str, dict[str, Any]] = {metric["name"]: metric for metric in shown["metrics"]}
        throttle = found[THROTTLE]
        assert (throttle["kind"], throttle["unit"], throttle["delta"]) == ("gauge", "ms", False)
        assert throttle["description"]
        (point,) = throttle["points"]
        assert (point["value"], point["count"], point["attributes"]["node"]) == (250.0, None, "1")
        total = found["example.sent"]
        assert (total["kind"], total["unit"], total["description"], total["delta"]) == (
            "sum",
            "By",
            None,
            True,
        )
        assert [point["value"] for point in total["points"]] == [7.0, 0.5]
        (point,) = found["example.latency"]["points"]
        assert (point["value"], point["count"]) == (3.5, 2)

    api.run(scenario)


def test_it_keeps_several_once_somebody_has_looked(api: Api) -> None:
    api.store.put(Subscription("all", ("*",), 60_000))

    async def scenario(rest: httpx.AsyncClient) -> None:
        ask(api.telemetry, 5, api.clock.now)
        api.clock.now += 60
        assert (await rest.get(PATH)).json() == {"items": [], "next": None}
        values = []
        following = None
        for number in (1, 2, 3):
            push_metrics(api, number, throttled(number))
            answer = (await rest.get(PATH, params={} if following is None else {"after": following})).json()
            following = answer["next"]
            values.append([item["metrics"][0]["points"][0]["value"] for item in answer["items"]])
        assert values == [[1.0], [2.0], [3.0]]
        assert len((await rest.get(PATH)).json()["items"]) == 3
        problem_of(await rest.get("/v1/clients/AAAAAAAAAAAAAAAAAAAABA/values"), 404)
        problem_of(await rest.get(f"{PATH}?colour=red"), 422)

    api.run(scenario)


def test_a_push_of_many_points_is_cut(api: Api) -> None:
    api.store.put(Subscription("all", ("*",), 60_000))

    async def scenario(rest: httpx.AsyncClient) -> None:
        points = [NumberDataPoint(as_int=value) for value in range(1_500)]
        both = [Metric(name=f"example.{name}", gauge=Gauge(data_points=points)) for name in "ab"]
        push_metrics(api, 1, *both, Metric(name="example.c", gauge=Gauge(data_points=points)))
        (shown,) = (await rest.get(PATH)).json()["items"]
        assert shown["cut"] is True
        assert [len(metric["points"]) for metric in shown["metrics"]] == [1_500, 500]

    api.run(scenario)


def test_nothing_is_kept_where_the_setting_says_so(api: Api) -> None:
    api.telemetry = telemetry_core(latest_pushes_bytes=0)
    api.store.put(Subscription("all", ("*",), 60_000))

    async def scenario(rest: httpx.AsyncClient) -> None:
        push_metrics(api, 1, throttled(1.0))
        assert (await rest.get(PATH)).json() == {"items": [], "next": None}

    api.run(scenario)
