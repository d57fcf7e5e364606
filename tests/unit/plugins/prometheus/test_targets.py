"""A client instance as labels: no word of a client's takes the place of what the receiver vouches for."""

from __future__ import annotations

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from plugins.prometheus.targets import TargetLabels, target_labels
from tests.unit.plugins.cumulative.support import attributes
from tests.unit.plugins.prometheus.support import LABELS, RESOURCE

NAMES = ("client_id", "client_instance_id", "principal", "group_id")


def labels(**changes: str | int) -> TargetLabels:
    return of({**RESOURCE, **changes})


def of(resource: dict[str, str | int]) -> TargetLabels:
    encoded = Resource(attributes=attributes(resource)).SerializeToString()
    return target_labels(encoded, names=NAMES, job="kafka_clients")


def test_some_attributes_are_labels_and_the_others_are_information() -> None:
    made = labels()
    assert dict(made.series) == LABELS
    assert dict(made.info) == {
        "client_source_port": "40000",
        "group_member_id": "m-1",
        "instance": LABELS["instance"],
        "job": "kafka_clients",
    }
    assert list(made.series) == sorted(made.series)


def test_an_empty_value_is_no_label() -> None:
    assert "client_id" not in dict(labels(client_id="").series)


def test_a_service_is_the_job() -> None:
    assert dict(of({**RESOURCE, "service.name": "shop"}).series)["job"] == "shop"
    both = of({**RESOURCE, "service.name": "shop", "service.namespace": "eu"})
    assert dict(both.series)["job"] == dict(both.info)["job"] == "eu/shop"
    assert "service_name" not in dict(both.info)


def test_the_instance_is_the_client_instance_whatever_the_client_says() -> None:
    made = of({"service.instance.id": "forged", "instance": "forged", "job": "forged", **RESOURCE})
    assert dict(made.series) == LABELS
    assert dict(made.info)["instance"] == LABELS["instance"]
    assert dict(made.info)["job"] == "kafka_clients"
    assert dict(made.info)["service_instance_id"] == "forged"


def test_an_attribute_whose_name_becomes_a_label_does_not_replace_or_join_it() -> None:
    made = of({"client.id": "forged", "client-source-port": "1", **RESOURCE, "principal.": "forged"})
    assert dict(made.series) == LABELS
    assert dict(made.info)["client_source_port"] == "40000"
    assert "client_id" not in dict(made.info)


def test_long_values_are_cut() -> None:
    made = of({**RESOURCE, "service.name": "s" * 5_000, "host.name": "h" * 5_000})
    assert dict(made.series) == {**LABELS, "job": "s" * 1_024}
    assert dict(made.info)["host_name"] == "h" * 1_024
