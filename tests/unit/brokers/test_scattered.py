"""Whether Kafka's tools change the subscriptions of one sidecar alone."""

from __future__ import annotations

from typing import Any

import pytest

from receiver.brokers.listener_broker import KnownBroker, ListenerBroker
from receiver.brokers.listener_state import ListenerState
from receiver.brokers.scattered import brokers_elsewhere, scattered_subscriptions
from receiver.settings.listeners import ListenerSettings
from receiver.settings.subscriptions import SubscriptionStoreSettings
from receiver.telemetry.identity import Broker
from receiver.wire.broker_addresses import BrokerAddress
from receiver.wire.k03_metadata import Cluster


def state(number: int, known: KnownBroker, **settings: Any) -> ListenerState:
    listener = ListenerSettings.model_validate(
        {"name": f"L{number}", "bind": f"127.0.0.1:{9000 + number}", "upstream": f"127.0.0.1:{9100 + number}"}
        | settings
    )
    return ListenerState(settings=listener, known=known, connections=0)


def broker(node: int | None, *nodes: int, keeps: bool | None = False) -> KnownBroker:
    return KnownBroker(broker=Broker(id=node), keeps_resources=keeps, nodes=nodes)


def problem(*known: KnownBroker, has_members: bool = False, **store: Any) -> str | None:
    states = [state(number, each) for number, each in enumerate(known)]
    return scattered_subscriptions(
        SubscriptionStoreSettings.model_validate(store), states, has_members=has_members
    )


ONE_OF_THREE = broker(1, 1, 2, 3)


def test_one_sidecar_of_several_on_older_brokers_is_told() -> None:
    found = problem(ONE_OF_THREE)
    assert found is not None
    assert "brokers that are not behind this sidecar" in found
    assert "set subscriptions.store to kafka" in found


def test_a_sidecar_with_other_members_is_told() -> None:
    found = problem(broker(1, 1), has_members=True)
    assert found is not None
    assert "cluster names other receivers" in found


@pytest.mark.parametrize(
    "store",
    [
        {"store": "kafka", "kafka": {"bootstrap_servers": "127.0.0.1:9092"}},
        {"store": "file", "path": "subscriptions.d"},
        {"kafka_tools": False},
    ],
    ids=["kafka", "file", "no tools"],
)
def test_a_store_that_does_not_scatter_is_not(store: dict[str, Any]) -> None:
    assert problem(ONE_OF_THREE, has_members=True, **store) is None


@pytest.mark.parametrize(
    "known",
    [
        [broker(1, 1, 2, 3, keeps=True)],
        [broker(1, 1, 2, 3, keeps=None)],
        [broker(1, 1)],
        [broker(1)],
        [broker(None, 1)],
        [broker(1, 1, 2), broker(2, 1, 2)],
        [broker(None, 1, 2), broker(1, 1, 2)],
    ],
    ids=["newer", "unknown", "only broker", "no cluster", "only broker, unproven", "all", "all, unproven"],
)
def test_what_does_not_scatter_is_not(known: list[KnownBroker]) -> None:
    assert problem(*known) is None


def test_one_older_broker_among_newer_ones_is_enough() -> None:
    assert problem(broker(1, 1, 2, 3, keeps=True), broker(2, 1, 2, 3)) is not None


def test_a_listener_that_rewrites_is_in_front_of_all() -> None:
    rewriting = state(
        1,
        broker(None, 1, 2, 3),
        addresses="rewrite",
        rewrite={"host": "gw.example", "first_port": 29100, "nodes": 3},
    )
    assert brokers_elsewhere([(rewriting.settings, rewriting.known)]) == 0
    store = SubscriptionStoreSettings()
    assert scattered_subscriptions(store, [rewriting], has_members=False) is None
    assert scattered_subscriptions(store, [rewriting], has_members=True) is not None


def test_the_cluster_of_a_broker_and_what_it_keeps_become_known() -> None:
    learning = ListenerBroker(Broker(), ("kafka", 9092), 9092)
    brokers = tuple(BrokerAddress(node, "kafka", 9092) for node in (3, 1, 2))
    learning.record_cluster(Cluster(id="cluster", brokers=brokers))
    learning.record_node_id(2)
    learning.record_telemetry(takes_telemetry=False, unread_resources=0, keeps_resources=False)
    assert learning.known.nodes == (1, 2, 3)
    assert problem(learning.known) is not None
    # After an upgrade the broker answers the tools itself.
    learning.record_telemetry(takes_telemetry=False, unread_resources=0, keeps_resources=True)
    assert problem(learning.known) is None
