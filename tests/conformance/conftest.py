"""Starts the two peers of the suite; it does not share them, because cases change subscriptions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.peer import KafkaPeer, ReceiverPeer
from tests.conformance.sasl import BROKER_PROPERTIES
from tests.testbed.broker import KafkaBroker, Listener
from tests.testbed.ports import free_port
from tests.testbed.sidecar import Sidecar, config_for


@pytest.fixture(scope="package")
def kafka() -> Iterator[KafkaPeer]:
    """A real broker with a telemetry plugin."""
    sasl = Listener(name="SASL", security_protocol="SASL_PLAINTEXT")
    with KafkaBroker(telemetry_plugin=True, listeners=[sasl], properties=BROKER_PROPERTIES) as broker:
        broker.create_topic(KafkaPeer.topic)
        peer = KafkaPeer(broker)
        peer.subscribe_all()
        yield peer


@pytest.fixture(scope="package")
def receiver() -> Iterator[ReceiverPeer]:
    """The receiver in front of a real broker without one."""
    sasl = Listener(name="SASL", security_protocol="SASL_PLAINTEXT", advertised_port=free_port())
    with KafkaBroker(
        advertised_client_port=free_port(), listeners=[sasl], properties=BROKER_PROPERTIES
    ) as broker:
        broker.create_topic(ReceiverPeer.topic)
        # Kafka's own interval of a client that no subscription matches.
        telemetry = {"default_interval_ms": 300_000}
        with Sidecar({**config_for(broker), "telemetry": telemetry}) as sidecar:
            peer = ReceiverPeer(sidecar)
            peer.subscribe_all()
            yield peer
