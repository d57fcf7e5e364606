"""The nodes of a rewriting listener: which have a listener, on which socket, and for how long."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from receiver.gateway.listeners.nodes import Nodes
from receiver.settings.hostport import HostPort
from receiver.wire.broker_addresses import BrokerAddress
from receiver.wire.k03_metadata import Cluster
from tests.testbed.ports import LOOPBACK, free_port
from tests.unit.gateway.support import listener_settings, on_loop

FIRST_PORT = 20_000


class Serving:
    """A node's listener: its port answers from ``open`` on.

    Attributes:
        bind: Where its clients connect to.
    """

    def __init__(self, node_id: int, address: HostPort, listening: socket.socket | None) -> None:
        self.node_id = node_id
        self.address = address
        self.connections = 0
        self.empty = False
        self.traffic = (0, 0)
        self.drained_at: float | None = None
        self._listening = listening
        if listening is not None:
            host, port = listening.getsockname()
            self.bind = HostPort(host=host, port=port)

    def open(self) -> None:
        if self._listening is not None:
            self._listening.listen()

    def close_port(self) -> None:
        if self._listening is not None:
            self._listening.shutdown(socket.SHUT_RDWR)

    def stop_accepting(self) -> None:
        if self._listening is not None:
            self._listening.close()

    async def drain(self, deadline: float) -> None:
        self.drained_at = deadline


class Known:
    """Nodes with two ports, and what they told."""

    def __init__(self) -> None:
        rewrite = {"host": "gateway.example", "first_port": FIRST_PORT, "nodes": 2}
        self.new: list[tuple[int, HostPort]] = []
        self.hidden = 0
        self.nodes: Nodes[Serving] = Nodes(
            listener_settings(free_port(), addresses="rewrite", rewrite=rewrite),
            {node_id: _bound() for node_id in range(2)},
            make_listener=Serving,
            on_new=lambda node_id, address: self.new.append((node_id, address)),
            on_hidden=self._count_hidden,
        )

    def _count_hidden(self) -> None:
        self.hidden += 1


def _bound() -> socket.socket:
    bound = socket.socket()
    bound.bind((LOOPBACK, 0))
    return bound


@pytest.fixture
def known() -> Iterator[Known]:
    made = Known()
    yield made
    made.nodes.stop_accepting()


def broker(node_id: int, host: str = "broker.example") -> BrokerAddress:
    return BrokerAddress(node_id, host, 9092)


def answers(listener: Serving) -> bool:
    with socket.socket() as client:
        return client.connect_ex((listener.bind.host, listener.bind.port)) == 0


def test_a_nodes_port_answers_once_a_response_has_named_it(known: Known) -> None:
    assert known.nodes.replace(broker(1)) == ("gateway.example", FIRST_PORT + 1)
    assert known.new == [(1, HostPort(host="broker.example", port=9092))]
    listener = known.nodes.listeners[1]
    assert not answers(listener)  # clients are accepted from the same moment on at all ports
    known.nodes.open()
    assert answers(listener)
    known.nodes.replace(broker(0))
    assert answers(known.nodes.listeners[0])
    known.nodes.replace(broker(1))
    assert known.nodes.listeners[1] is listener
    assert len(known.new) == 2


def test_what_another_relay_has_learnt_is_not_told_again(known: Known) -> None:
    known.nodes.learn(0, HostPort(host="broker.example", port=9092))
    known.nodes.learn(0, HostPort(host="broker.example", port=9092))
    assert list(known.nodes.listeners) == [0]
    assert known.new == []


def test_a_node_that_moves_keeps_its_port_and_its_open_connections(known: Known) -> None:
    known.nodes.open()
    known.nodes.replace(broker(0))
    before = known.nodes.listeners[0]
    before.traffic = (5, 7)
    known.nodes.replace(broker(0, "moved.example"))
    after = known.nodes.listeners[0]
    after.traffic = (1, 1)
    assert (after.bind, after.address.host) == (before.bind, "moved.example")
    assert answers(after)
    assert known.nodes.all_listeners == [after, before]
    assert known.nodes.traffic == (6, 8)
    before.empty = True
    assert known.nodes.traffic == (6, 8)
    assert known.nodes.all_listeners == [after]


def test_the_port_of_a_node_that_has_left_refuses_clients(known: Known) -> None:
    known.nodes.open()
    known.nodes.saw(Cluster(id="c", brokers=(broker(0), broker(1))))
    left = known.nodes.listeners[1]
    for _ in range(2):  # a broker that has just restarted may not know all others
        known.nodes.saw(Cluster(id="c", brokers=(broker(0),)))
    assert answers(left)
    known.nodes.saw(Cluster(id="c", brokers=(broker(0),)))
    assert list(known.nodes.listeners) == [0]
    assert left in known.nodes.all_listeners
    assert not answers(left)


def test_a_node_without_a_port_is_hidden(known: Known) -> None:
    settings = known.nodes.replace(broker(2))
    assert settings[0] == "gateway.example"
    assert settings[1] not in {9092, FIRST_PORT + 2}
    assert known.hidden == 1
    assert not known.nodes.listeners


def test_nothing_is_opened_after_the_end(known: Known) -> None:
    known.nodes.open()
    known.nodes.replace(broker(0))
    on_loop(known.nodes.drain(3.0))
    assert known.nodes.listeners[0].drained_at == 3.0
    known.nodes.stop_accepting()
    known.nodes.replace(broker(1))
    assert list(known.nodes.listeners) == [0]
    assert not answers(known.nodes.listeners[0])
