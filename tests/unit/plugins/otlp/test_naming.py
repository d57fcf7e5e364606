"""OpenTelemetry's names of attributes in exports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from plugins.otlp.naming import renamed
from tests.unit.host.support import push
from tests.unit.plugins.destinations import HttpDestination
from tests.unit.plugins.support import client_push, started

RESOURCE = {
    "client_id": "orders",
    "client_instance_id": "AAAAAAAAAAAAAAAAAAAAAA",
    "client_source_address": "10.0.0.1",
    "group_id": "billing",
    "principal": "User:alice",
}
OTEL = {
    "messaging.client.id": "orders",
    "service.instance.id": "AAAAAAAAAAAAAAAAAAAAAA",
    "client.address": "10.0.0.1",
    "messaging.consumer.group.name": "billing",
    "messaging.system": "kafka",
}
POINT = {"topic": "t", "partition": "7", "node_id": "1"}
OTEL_POINT = {"messaging.destination.name": "t", "messaging.destination.partition.id": "7"}


def texts(attributes: Iterable[Any]) -> dict[str, str]:
    found = [(attribute.key, attribute.value.string_value) for attribute in attributes]
    assert len(dict(found)) == len(found), "no key is there twice"
    return dict(found)


def pushed(resource: dict[str, str], point: dict[str, str]) -> bytes:
    data = MetricsData()
    added = data.resource_metrics.add()
    for key, text in resource.items():
        added.resource.attributes.add(key=key).value.string_value = text
    metrics = added.scope_metrics.add().metrics
    kinds: list[Any] = [
        metrics.add(name="g").gauge,
        metrics.add(name="s").sum,
        metrics.add(name="h").histogram,
    ]
    for kind in kinds:
        added_point = kind.data_points.add()
        for key, text in point.items():
            added_point.attributes.add(key=key).value.string_value = text
    metrics.add(name="without data")
    return data.SerializeToString()


def names(data: bytes) -> tuple[dict[str, str], list[dict[str, str]]]:
    (resource_metrics,) = MetricsData.FromString(data).resource_metrics
    points = [
        texts(point.attributes)
        for metric in resource_metrics.scope_metrics[0].metrics
        for kind in (metric.gauge, metric.sum, metric.histogram)
        for point in kind.data_points
    ]
    return texts(resource_metrics.resource.attributes), points


@pytest.mark.parametrize("both", [False, True])
def test_kafkas_names_become_opentelemetrys(both: bool) -> None:
    resource, points = names(renamed(pushed(RESOURCE, POINT), both=both))
    kept = {key: text for key, text in RESOURCE.items() if both or key == "principal"}
    assert resource == OTEL | kept
    assert points == [OTEL_POINT | {"node_id": "1"} | (POINT if both else {})] * 3


@pytest.mark.parametrize("both", [False, True])
def test_a_client_cannot_forge_what_the_receiver_says(both: bool) -> None:
    forged = dict.fromkeys(OTEL, "forged")
    point = {"messaging.destination.name": "forged", "topic": "t"}
    resource, points = names(renamed(pushed(forged | {"client_id": "orders"}, point), both=both))
    assert {key: text for key, text in resource.items() if key in OTEL} == {
        "messaging.client.id": "orders",
        "messaging.system": "kafka",
    }
    assert {point["messaging.destination.name"] for point in points} == {"t"}


@pytest.mark.parametrize("temporality", ["as_received", "cumulative"])
def test_an_export_has_the_names_that_are_asked_for(http_server: HttpDestination, temporality: str) -> None:
    url = f"http://127.0.0.1:{http_server.port}"
    data = MetricsData.FromString(client_push().payload.data)
    for resource_metrics in data.resource_metrics:
        for key, text in RESOURCE.items():
            resource_metrics.resource.attributes.add(key=key).value.string_value = text
    one = push(data=data.SerializeToString())
    for naming in ("kafka", "otel"):
        with started(endpoint=url, protocol="http", naming=naming, temporality=temporality) as plugin:
            plugin.export(one.context, one.payload)
    kafka, otel = (
        {
            attribute.key
            for resource_metrics in MetricsData.FromString(body).resource_metrics
            for attribute in resource_metrics.resource.attributes
        }
        for body in http_server.bodies
    )
    assert "client_id" in kafka
    assert "messaging.system" not in kafka
    assert otel >= {"messaging.client.id", "messaging.system", "principal"}
    assert "client_id" not in otel
