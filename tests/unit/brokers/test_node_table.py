"""The nodes behind a rewriting listener: which are known, and what clients are told."""

from __future__ import annotations

import pytest

from receiver.brokers.node_table import NodeTable
from receiver.settings.hostport import HostPort
from receiver.settings.listeners import ListenerSettings
from receiver.wire.broker_addresses import BrokerAddress

LISTENER = ListenerSettings.model_validate(
    {
        "name": "ALL",
        "bind": "127.0.0.1:29092",
        "upstream": "kafka:9092",
        "addresses": "rewrite",
        "rewrite": {"host": "gw.example", "first_port": 29100, "nodes": 4},
    }
)


@pytest.fixture
def changes() -> list[tuple[int, HostPort]]:
    return []


@pytest.fixture
def hidden() -> list[BrokerAddress]:
    return []


@pytest.fixture
def table(changes: list[tuple[int, HostPort]], hidden: list[BrokerAddress]) -> NodeTable:
    return NodeTable(
        LISTENER,
        on_change=lambda node_id, address: changes.append((node_id, address)),
        on_hidden=hidden.append,
    )


def test_a_node_has_a_port(table: NodeTable, changes: list[tuple[int, HostPort]]) -> None:
    assert table.name(BrokerAddress(2, "b-2", 9092)) == ("gw.example", 29102)
    assert table.addresses[2] == HostPort(host="b-2", port=9092)
    assert table.name(BrokerAddress(2, "b-2", 9092)) == ("gw.example", 29102)
    assert changes == [(2, HostPort(host="b-2", port=9092))]


def test_a_node_moves(table: NodeTable, changes: list[tuple[int, HostPort]]) -> None:
    table.name(BrokerAddress(0, "b-0", 9092))
    table.name(BrokerAddress(0, "fd00::1", 9093))
    assert table.addresses[0] == HostPort(host="fd00::1", port=9093)
    assert [node_id for node_id, _ in changes] == [0, 0]


@pytest.mark.parametrize(
    "broker",
    [
        BrokerAddress(4, "b-4", 9092),
        BrokerAddress(2_147_483_647, "b", 9092),
        BrokerAddress(1, "", 9092),
        BrokerAddress(1, "not a host", 9092),
        BrokerAddress(1, "b-1", 0),
        BrokerAddress(1, "b-1", 65_536),
        BrokerAddress(1, "b-1", -1),
    ],
)
def test_a_node_without_a_port_or_address_is_hidden(
    table: NodeTable, hidden: list[BrokerAddress], broker: BrokerAddress
) -> None:
    assert table.name(broker) == ("gw.example", 29092)
    assert table.addresses == {}
    assert hidden == [broker]


def test_another_process_learned_a_node(table: NodeTable, changes: list[tuple[int, HostPort]]) -> None:
    assert table.learn(3, HostPort(host="b-3", port=9092))
    assert not table.learn(3, HostPort(host="b-3", port=9092))
    assert not table.learn(9, HostPort(host="b-9", port=9092))
    assert table.addresses == {3: HostPort(host="b-3", port=9092)}
    assert changes == []


def test_a_node_that_is_missing_three_times_is_forgotten(table: NodeTable) -> None:
    for node_id in (0, 1):
        table.learn(node_id, HostPort(host=f"b-{node_id}", port=9092))
    assert table.record_nodes({0}) == []
    assert table.record_nodes({0}) == []
    assert table.record_nodes({0, 1}) == []  # it is back
    assert [table.record_nodes({0}) for _ in range(3)] == [[], [], [1]]
    assert list(table.addresses) == [0]
