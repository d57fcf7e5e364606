"""Restarts of the sidecar or the broker cost a producer no record and no telemetry."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.integration.gateway.support import GatewaySidecar
from tests.testbed.broker import KafkaBroker
from tests.testbed.ports import free_port
from tests.testbed.sidecar import config_for

_TOPIC = "restarts"
_RECORD_S = 0.01
_WITHIN_S = 120.0
_WAITING = 10


@pytest.fixture
def own_broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(advertised_client_port=free_port()) as started:
        started.create_topic(_TOPIC)
        yield started


class Traffic:
    """A producer that sends a hundred records a second until it is stopped."""

    def __init__(self, sidecar: GatewaySidecar) -> None:
        self.errors: list[KafkaError] = []
        self.sent = self.delivered = 0
        self._sidecar = sidecar
        self._producer = Producer(
            {
                "bootstrap.servers": sidecar.bootstrap(),
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def until_waiting(self) -> None:
        """Send until records wait in the producer."""
        self._until(lambda: len(self._producer) > _WAITING)

    def until_pushed(self, times: int = 1) -> None:
        """Send until the sidecar that runs now has taken so many pushes."""
        self._until(lambda: sum(self._sidecar.series("pushes_total").values()) >= times)

    def end(self) -> None:
        """Wait for the records in flight."""
        assert self._producer.flush(_WITHIN_S) == 0

    def _until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _WITHIN_S
        while not done():
            assert time.monotonic() < deadline
            self._producer.produce(_TOPIC, b"record", on_delivery=self._reported)
            self._producer.poll(_RECORD_S)
            self.sent += 1

    def _reported(self, error: KafkaError | None, _: Message) -> None:
        self.delivered += 1
        self.errors.extend([error] if error else [])


def outcomes(sidecar: GatewaySidecar) -> set[str]:
    return {dict(labels)["outcome"] for labels in sidecar.series("pushes_total")}


def test_restarts_cost_a_producer_no_record_and_no_telemetry(own_broker: KafkaBroker) -> None:
    with GatewaySidecar(config_for(own_broker)) as sidecar:
        sidecar.put_subscription("all", ["*"], 1_000)
        traffic = Traffic(sidecar)
        traffic.until_pushed()
        assert sidecar.terminate() == 0
        traffic.until_waiting()
        sidecar.start()
        # The subscription's id is computed, so the client goes on under it where nobody remembers
        # the client.
        traffic.until_pushed()
        assert outcomes(sidecar) == {"NONE"}
        own_broker.stop()
        traffic.until_waiting()
        own_broker.start()
        traffic.until_pushed(3)
        assert outcomes(sidecar) == {"NONE"}
        traffic.end()
    assert traffic.errors == []
    assert traffic.delivered == traffic.sent
