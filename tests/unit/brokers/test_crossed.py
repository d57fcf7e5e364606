"""Whether each listener's upstream is the broker that advertises the listener."""

from __future__ import annotations

from typing import Any

import pytest

from receiver.brokers.crossed import crossed_upstreams
from receiver.brokers.listener_broker import KnownBroker, ListenerBroker
from receiver.brokers.listener_state import ListenerState
from receiver.settings.listeners import ListenerSettings
from receiver.telemetry.identity import Broker
from receiver.wire.broker_addresses import BrokerAddress
from receiver.wire.k03_metadata import Cluster

#: Ports of listeners and of the brokers behind them, by node id.
BIND = {1: 19_001, 2: 19_002, 3: 19_003}
UPSTREAM = {1: 29_001, 2: 29_002, 3: 29_003}


def listener(bound: int, upstream: int, **settings: Any) -> ListenerSettings:
    return ListenerSettings.model_validate(
        {
            "name": f"L{bound}",
            "bind": f"0.0.0.0:{BIND[bound]}",
            "upstream": f"127.0.0.1:{UPSTREAM[upstream]}",
            **settings,
        }
    )


def states(upstreams: dict[int, int], advertised: dict[int, str] | None = None) -> list[ListenerState]:
    """Listeners in front of these nodes, which were asked and said who they are."""
    at = {node_id: f"kafka-{node_id}:{port}" for node_id, port in BIND.items()} | (advertised or {})
    brokers = [
        BrokerAddress(node_id, host, int(port))
        for node_id, (host, _, port) in ((node_id, item.partition(":")) for node_id, item in at.items())
    ]
    found = []
    for bound, node_id in upstreams.items():
        learned = ListenerBroker(Broker(), ("127.0.0.1", UPSTREAM[node_id]), BIND[bound])
        learned.record_cluster(Cluster("c", tuple(brokers)))
        learned.record_node_id(node_id)
        assert learned.known.proven
        found.append(ListenerState(settings=listener(bound, node_id), known=learned.known, connections=0))
    return found


@pytest.mark.parametrize(
    ("upstreams", "right"),
    [
        ({1: 1, 2: 2, 3: 3}, {}),
        ({1: 2, 2: 1}, {"L1": "127.0.0.1:29001", "L2": "127.0.0.1:29002"}),
        ({1: 2, 2: 1, 3: 3}, {"L1": "127.0.0.1:29001", "L2": "127.0.0.1:29002"}),
        ({1: 2, 2: 3, 3: 1}, {"L1": "127.0.0.1:29001", "L2": "127.0.0.1:29002", "L3": "127.0.0.1:29003"}),
        # Both in front of one broker: nobody knows the right one.
        ({1: 2, 2: 2}, {"L1": "the broker that advertises port 19001"}),
        ({1: 2}, {}),  # no listener has the port that the broker advertises
    ],
)
def test_a_crossed_upstream_is_told_with_the_right_one(
    upstreams: dict[int, int], right: dict[str, str]
) -> None:
    found = crossed_upstreams(states(upstreams))
    assert found.keys() == right.keys()
    for name, address in right.items():
        assert f": set upstream of listener {name} to {address}" in found[name]


def test_the_problem_names_node_address_and_both_listeners() -> None:
    assert crossed_upstreams(states({1: 2, 2: 1}))["L1"] == (
        "the broker behind listener L1 at 127.0.0.1:29002 is node 2, which advertises kafka-2:19002, the "
        "port of listener L2, so clients of L1 reach the wrong broker: set upstream of listener L1 to "
        "127.0.0.1:29001"
    )


def test_the_ports_of_a_load_balancer_say_nothing() -> None:
    ports = {1: "lb:9001", 2: "lb:9002", 3: "lb:9003"}
    assert crossed_upstreams(states({1: 2, 2: 1}, ports)) == {}
    # Nor do those that the operator says are right, though another listener has them here.
    mapped = states({1: 1, 2: 2}, {1: "lb:19002", 2: "lb:19001"})
    assert len(crossed_upstreams(mapped)) == 2
    said = [
        ListenerState(
            settings=listener(number, number, advertised=item.known.advertised),
            known=item.known,
            connections=0,
        )
        for number, item in enumerate(mapped, 1)
    ]
    assert crossed_upstreams(said) == {}


def test_brokers_of_two_clusters_are_told_apart() -> None:
    def in_front_of(bound: int, broker: Broker, advertised: str) -> ListenerState:
        known = KnownBroker(broker=broker, proven=True, advertised=advertised)
        return ListenerState(settings=listener(bound, bound), known=known, connections=0)

    one, two = Broker(id=1, cluster_id="one"), Broker(id=1, cluster_id="two")
    crossed = [in_front_of(1, one, "a:19002"), in_front_of(2, two, "b:19001")]
    assert crossed_upstreams(crossed).keys() == {"L1", "L2"}
    # Two listeners of one broker, whose clients go on to the other one, reach the right broker.
    same = [in_front_of(1, one, "a:19002"), in_front_of(2, one, "a:19002")]
    assert crossed_upstreams(same) == {}
    unknown = [in_front_of(1, one, "a:19002"), in_front_of(2, Broker(), "b:19001")]
    assert crossed_upstreams(unknown) == {}
