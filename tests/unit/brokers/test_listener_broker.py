"""What evidence says of the broker behind a listener."""

from __future__ import annotations

import pytest

from receiver.brokers.listener_broker import KnownBroker, ListenerBroker
from receiver.telemetry.identity import Broker
from receiver.wire.broker_addresses import BrokerAddress
from receiver.wire.k03_metadata import Cluster

UPSTREAM = ("kafka-2", 9092)


def cluster(*node_ids: int, cluster_id: str | None = "one") -> Cluster:
    return Cluster(cluster_id, tuple(BrokerAddress(number, f"kafka-{number}", 9092) for number in node_ids))


def broker(node_id: int | None = None, cluster_id: str | None = None) -> ListenerBroker:
    return ListenerBroker(Broker(id=node_id, cluster_id=cluster_id), UPSTREAM, 19092)


@pytest.mark.parametrize(
    ("configured", "seen", "asked", "known", "proven"),
    [
        (None, cluster(1, 3), None, None, False),
        (None, cluster(1), None, 1, False),  # the only one
        (None, cluster(1, 2, 3), None, 2, False),  # the one at the upstream's address
        (None, cluster(1, 2, 3), 3, 3, True),
        (None, Cluster("one", (BrokerAddress(4, "a", 9092), BrokerAddress(5, "b", 19092))), None, 5, False),
        (7, cluster(1, 2, 3), None, 7, False),
        (7, cluster(1, 2, 3), 3, 3, True),
        (3, cluster(1, 2, 3), 3, 3, True),
    ],
)
def test_the_strongest_evidence_counts(
    configured: int | None, seen: Cluster, asked: int | None, known: int | None, proven: bool
) -> None:
    one = broker(configured)
    one.record_cluster(seen)
    one.record_node_id(asked)
    assert (one.known.broker, one.known.proven) == (Broker(id=known, cluster_id="one"), proven)
    address = [f"{each.host}:{each.port}" for each in seen.brokers if each.node_id == known]
    assert one.known.advertised == (address[0] if address else None)
    assert (one.problem is None) == (not proven or configured in {None, asked})


def test_nothing_is_misrouted_before_the_broker_is_proven() -> None:
    one = broker(7, "one")
    assert not one.is_misrouted("one", 8)
    one.record_cluster(cluster(1, 2, 3))
    assert not one.is_misrouted("one", 8)
    one.record_node_id(3)
    assert not one.is_misrouted("one", 3)
    assert one.is_misrouted("one", 7)
    assert one.is_misrouted("two", 3)
    one.mark_away()
    assert not one.is_misrouted("two", 7)


def test_another_cluster_is_known_without_a_proof_of_the_node() -> None:
    """Behind SASL without a login of its own, the sidecar sees the cluster in markers' answers."""
    one = broker()
    one.record_cluster(cluster(1, 2, 3))
    assert one.is_misrouted("two", 2)
    assert not one.is_misrouted("one", 9)
    one.mark_away()
    assert not one.is_misrouted("two", 2)
    one.record_cluster(cluster(1, 2, 3, cluster_id=None))
    assert not one.is_misrouted("two", 2)


def test_a_broker_that_went_is_asked_again_and_keeps_its_label() -> None:
    one = broker()
    one.record_cluster(cluster(1, 2, 3))
    one.record_node_id(2)
    before = one.wants_cluster
    one.mark_away()
    assert (before, one.wants_cluster) == (False, True)
    assert one.known == KnownBroker(
        broker=Broker(id=2, cluster_id="one"), advertised="kafka-2:9092", nodes=(1, 2, 3)
    )
    assert one.candidates() == [2, 1, 3]
    one.record_node_id(3)
    one.mark_away()
    assert one.candidates()[0] == 3


def test_candidates_are_likely_ones_first_and_bounded() -> None:
    assert broker(7).candidates() == []
    one = broker(7)
    one.record_cluster(cluster(1, 2, 3))
    assert one.candidates() == [7, 2, 1, 3]
    one.record_cluster(cluster(-1, *range(10_000)))
    assert one.candidates()[:3] == [7, 2, 0]
    assert len(one.candidates()) == 64


def test_the_node_whose_address_begins_with_the_pods_name_is_likely() -> None:
    in_a_pod = ListenerBroker(Broker(), ("127.0.0.1", 19092), 9092, machine="kafka-2")
    addresses = [BrokerAddress(number, f"kafka-{number}.kafka.prod.svc", 9092) for number in (1, 2, 20)]
    in_a_pod.record_cluster(Cluster("one", tuple(addresses)))
    assert in_a_pod.candidates() == [2, 1, 20]


def test_another_relays_proof_counts_until_there_is_an_own_one() -> None:
    one = broker()
    changes: list[KnownBroker] = []
    one.on_change = lambda: changes.append(one.known)
    told = KnownBroker(broker=Broker(id=2, cluster_id="one"), proven=True)
    one.adopt(KnownBroker(broker=Broker(id=1)))
    assert changes == []
    one.adopt(told)
    assert changes == [told]
    one.adopt(KnownBroker(broker=Broker(id=5), proven=True))
    assert one.known == told
    one.record_node_id(5)
    assert one.known.broker.id == 5


def test_a_cluster_that_is_not_the_configured_one_is_a_problem() -> None:
    one = broker(None, "one")
    one.record_cluster(cluster(1, cluster_id="two"))
    assert one.problem == (
        "broker.cluster_id is one, but the broker's cluster is two; set broker.cluster_id to two or null, or "
        "correct the upstream"
    )
    one.record_cluster(cluster(1, cluster_id=None))
    assert one.problem is None
