"""Labels come from the Resource, and no client can forge the receiver's labels."""

from __future__ import annotations

import pytest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from plugins.prometheus.targets import TargetLabels, target_labels
from plugins.prometheus.trust import RECEIVER_LABELS, reserved_labels
from receiver.telemetry.labels import OWNED_LABELS
from tests.unit.plugins._shared.cumulative.support import attributes
from tests.unit.plugins.prometheus.support import LABELS, RESOURCE

NAMES = ("client_id", "client_instance_id", "principal", "group_id")


def labels(**changes: str | int) -> TargetLabels:
    return of({**RESOURCE, **changes})


def of(resource: dict[str, str | int]) -> TargetLabels:
    encoded = Resource(attributes=attributes(resource)).SerializeToString()
    return target_labels(encoded, names=NAMES, job="kafka_clients", reserved=reserved_labels(NAMES))


def test_configured_attributes_are_labels_and_the_others_are_in_target_info() -> None:
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


def test_no_attribute_changes_the_job() -> None:
    both = of({**RESOURCE, "service.name": "shop", "service.namespace": "eu", "job": "prometheus"})
    assert dict(both.series)["job"] == dict(both.info)["job"] == "kafka_clients"
    assert dict(both.info)["service_name"] == "shop"
    assert dict(both.info)["attribute_job"] == "prometheus"


def test_the_receivers_labels_are_known() -> None:
    assert set(OWNED_LABELS) == RECEIVER_LABELS


@pytest.mark.parametrize(
    "key",
    [
        *(name.replace("_", mark) for name in OWNED_LABELS if "_" in name for mark in (".", "-", "__")),
        *("group.id", "job", "instance", "le", "quantile"),
    ],
)
def test_no_attribute_becomes_a_label_of_the_receiver(key: str) -> None:
    """Covers labels that the receiver leaves out: without SASL, or by a privacy rule."""
    made = of({"client_instance_id": "i", key: "forged"})
    (label,) = (label for label, value in (*made.series, *made.info) if value == "forged")
    assert label.startswith("attribute_")


@pytest.mark.parametrize("key", ["exported_job", "exported.instance", "__name__", "__address", "__tenant_id"])
def test_labels_of_prometheus_get_a_prefix(key: str) -> None:
    made = of({**RESOURCE, key: "forged"})
    (label,) = (label for label, value in made.info if value == "forged")
    assert not label.startswith(("__", "exported_"))


def test_the_labels_of_a_target_are_bounded() -> None:
    made = of({**RESOURCE, **{f"k{n}": "v" for n in range(1_000)}, "l" * 1_000: "v"})
    assert len(made.info) < 80
    assert max(len(name) for name, _ in made.info) <= 200


def test_no_attribute_changes_the_instance() -> None:
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
    # Both keys get the same name: the last by key wins.
    assert dict(made.info)["attribute_client_id"] == "forged"
    assert dict(made.info)["attribute_client_source_port"] == "1"


def test_long_values_are_cut() -> None:
    made = of({**RESOURCE, "service.name": "s" * 5_000, "host.name": "h" * 5_000})
    assert dict(made.series) == LABELS
    assert dict(made.info)["service_name"] == "s" * 1_024
    assert dict(made.info)["host_name"] == "h" * 1_024
