"""What of a broker's own telemetry has no effect behind a sidecar."""

from __future__ import annotations

from receiver.brokers.hidden_telemetry import hidden_telemetry, hidden_telemetry_warnings
from receiver.brokers.listener_broker import KnownBroker, ListenerBroker
from receiver.brokers.listener_state import ListenerState
from receiver.settings.listeners import ListenerSettings
from receiver.telemetry.identity import Broker
from receiver.wire.k03_metadata import Cluster


def problem(*, takes_telemetry: bool = False, unread_resources: int = 0) -> str | None:
    known = KnownBroker(broker=Broker(), takes_telemetry=takes_telemetry, unread_resources=unread_resources)
    return hidden_telemetry(known)


def test_a_broker_without_telemetry_hides_nothing() -> None:
    assert problem() is None


def test_a_plugin_and_resources_are_named_with_the_fix() -> None:
    plugin, one, both = (
        problem(takes_telemetry=True),
        problem(unread_resources=1),
        problem(takes_telemetry=True, unread_resources=3),
    )
    assert plugin is not None
    assert "metric.reporters" in plugin
    assert one is not None
    assert "1 client metrics resource, which" in one
    assert "subscriptions.store" in one
    assert both is not None
    assert "takes telemetry itself" in both
    assert "3 client metrics resources" in both


def test_what_a_probe_finds_stays_known() -> None:
    broker = ListenerBroker(Broker(), ("kafka", 9092), 9092)
    changes: list[KnownBroker] = []
    broker.on_change = lambda: changes.append(broker.known)
    broker.record_telemetry(takes_telemetry=True, unread_resources=2)
    broker.record_telemetry(takes_telemetry=True, unread_resources=2)
    assert len(changes) == 1
    broker.record_node_id(7)
    assert (broker.known.broker.id, broker.known.takes_telemetry, broker.known.unread_resources) == (
        7,
        True,
        2,
    )
    broker.record_telemetry(takes_telemetry=False, unread_resources=0)
    assert hidden_telemetry(broker.known) is None


def test_what_another_relay_has_proven_of_its_telemetry_stays_known() -> None:
    broker = ListenerBroker(Broker(), ("kafka", 9092), 9092)
    broker.adopt(KnownBroker(broker=Broker(id=7), proven=True, takes_telemetry=True))
    broker.record_cluster(Cluster(id="cluster", brokers=()))
    assert broker.known.takes_telemetry


def test_each_problem_is_one_warning_that_names_the_listeners() -> None:
    hidden = KnownBroker(broker=Broker(), unread_resources=1)
    settings = [
        ListenerSettings.model_validate(
            {"name": name, "bind": f"127.0.0.1:{port}", "upstream": f"127.0.0.1:{port + 10}"}
        )
        for port, name in enumerate(("A", "B", "C"), 9001)
    ]
    states = [
        ListenerState(settings=settings[0], known=hidden, connections=0, nodes={2: hidden}),
        ListenerState(settings=settings[1], known=KnownBroker(broker=Broker()), connections=0),
        ListenerState(settings=settings[2], known=hidden, connections=0),
    ]
    assert hidden_telemetry_warnings(states) == [f"behind A, C: {hidden_telemetry(hidden)}"]
