"""The normal form of attributes of all clients."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint

from receiver.telemetry.steps.attributes import node, rewrite
from receiver.telemetry.steps.counts import StepCounts


def value(of: Any) -> AnyValue:
    return AnyValue(int_value=of) if isinstance(of, int) else AnyValue(string_value=of)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        # Java: node-ID; librdkafka and franz-go: ID as a number.
        ("node-1", ("1", "broker")),
        (1, ("1", "broker")),
        ("1", ("1", "broker")),
        ("node-0", ("0", "broker")),
        ("node-01", ("1", "broker")),
        # Connections of Java and librdkafka to bootstrap servers, whose ids are unknown.
        ("node--1", ("-1", "bootstrap")),
        ("bootstrap", ("-1", "bootstrap")),
        ("node-bootstrap", None),
        ("node--3", ("-3", "bootstrap")),
        (-1, ("-1", "bootstrap")),
        # Java's connection to the group's coordinator: 2^31 - 1 - ID before 4.4, +ID since.
        ("node-2147483646", ("1", "coordinator")),
        ("node-2147483647", ("0", "coordinator")),
        (2_147_483_646, ("1", "coordinator")),
        ("node-+1", ("1", "coordinator")),
        ("node-1073741823", ("1073741823", "broker")),
        ("node-1073741824", ("1073741823", "coordinator")),
        # Not a node id.
        ("node-", None),
        ("node-one", None),
        ("", None),
        ("node-2147483648", None),
        ("node-99999999999", None),
        ("1 ", None),
        ("\u0661", None),
        (-(2**63), None),
    ],
)
def test_a_node_id_of_any_client(sent: int | str, expected: tuple[str, str] | None) -> None:
    assert node(value(sent)) == expected


@pytest.mark.parametrize("sent", [AnyValue(), AnyValue(double_value=1.0), AnyValue(bool_value=True)])
def test_a_node_id_of_another_type_is_ignored(sent: AnyValue) -> None:
    assert node(sent) is None


def normalized(**sent: int | str) -> list[tuple[str, str]]:
    point = NumberDataPoint(
        attributes=[KeyValue(key=key.replace("__", "."), value=value(of)) for key, of in sent.items()]
    )
    rewrite(point.attributes, normalize=True, privacy=None, counts=StepCounts())
    return [
        (attribute.key, attribute.value.string_value or str(attribute.value.int_value))
        for attribute in point.attributes
    ]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"node__id": 1}, [("node_id", "1"), ("node_role", "broker")]),
        ({"node_id": "node-+2"}, [("node_id", "2"), ("node_role", "coordinator")]),
        (
            {"a": "x", "node_id": 1, "b": "y"},
            [("a", "x"), ("node_id", "1"), ("node_role", "broker"), ("b", "y")],
        ),
        ({"member_id": "m"}, [("group_member_id", "m")]),
        ({"node__id": "what"}, [("node__id".replace("__", "."), "what")]),
        # An attribute is not renamed to an existing key.
        ({"node__id": 1, "node_id": 2}, [("node.id", "1"), ("node_id", "2"), ("node_role", "broker")]),
        ({"node_id": 1, "node_role": "mine"}, [("node_id", "1"), ("node_role", "mine")]),
        ({"member_id": "m", "group_member_id": "g"}, [("member_id", "m"), ("group_member_id", "g")]),
    ],
)
def test_attributes_get_one_name_and_form(
    sent: dict[str, int | str], expected: list[tuple[str, str]]
) -> None:
    assert normalized(**sent) == expected


def test_normal_attributes_are_unchanged() -> None:
    point = NumberDataPoint(attributes=[KeyValue(key="topic", value=value("t"))])
    assert not rewrite(point.attributes, normalize=True, privacy=None, counts=StepCounts())
