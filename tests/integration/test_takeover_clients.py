"""`serve --take-over` under load from real producers and consumers of three libraries."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.integration.gateway.support import TIMEOUT_S, GatewaySidecar, taking_over
from tests.testbed.broker import KafkaBroker
from tests.testbed.clients import Client, FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.ports import free_port
from tests.testbed.process import wait_until
from tests.testbed.sidecar import config_for

pytestmark = pytest.mark.full

_TOPIC = "taken-over"
_LIBRARIES: tuple[type[Client], ...] = (JavaClient, LibrdkafkaClient, FranzClient)
_RATE = 50.0

#: Records that each client moves before the take-over, and again after it.
_RECORDS = 150


@pytest.fixture
def own_broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(advertised_client_port=free_port()) as started:
        started.create_topic(_TOPIC)
        yield started


def wait_for_more(clients: list[Client]) -> None:
    """Wait until every client has moved more records than now."""
    for client, count in [(client, client.records) for client in clients]:
        client.wait_for_records(count + _RECORDS, timeout_s=TIMEOUT_S)


def failures(client: Client) -> list[str]:
    """Return the errors that `client` reported, without the one that says it reconnects.

    librdkafka reports `_ALL_BROKERS_DOWN` when its only connection was closed. It connects again by
    itself: no send and no poll has failed.
    """
    return [error for error in client.errors if "_ALL_BROKERS_DOWN" not in error]


# The old relays keep their connections until they end, or close them at the end of a request.
@pytest.mark.parametrize("drain_s", [300, 2])
def test_no_send_and_no_poll_fails_while_a_new_version_takes_over(
    own_broker: KafkaBroker, drain_s: int
) -> None:
    settings = {
        **config_for(own_broker),
        "gateway": {"relays": 2, "control": "./control"},
        "drain": {"timeout_s": drain_s},
        "plugins": [{"type": "console"}],
    }
    with GatewaySidecar(settings) as sidecar, contextlib.ExitStack() as stack:
        sidecar.put_subscription("all", ["*"], 1_000)
        wait_until((sidecar._folder() / "control").is_socket, timeout_s=TIMEOUT_S, what="the control socket")
        producers: list[Client] = []
        consumers: list[Client] = []
        for library in _LIBRARIES:
            for mode, those in ((Mode.PRODUCER, producers), (Mode.CONSUMER, consumers)):
                client = library(mode, bootstrap=sidecar.bootstrap(), topic=_TOPIC, rate=_RATE)
                those.append(stack.enter_context(client))
        clients = [*producers, *consumers]
        wait_for_more(clients)
        with taking_over(sidecar) as new:
            sidecar.wait_for_log("a new version has taken over")
            wait_for_more(clients)
            if drain_s == 2:
                assert sidecar.wait() == 0  # every client is connected to the new version
                wait_for_more(clients)
            wait_until(sidecar.is_ready, timeout_s=TIMEOUT_S, what="readiness of the new version")
            for producer in producers:
                producer.stop()
            produced = sum(producer.records for producer in producers)
            for consumer in consumers:
                consumer.wait_for_records(produced, timeout_s=TIMEOUT_S)
            assert {client.client_id: failed for client in clients if (failed := failures(client))} == {}
            assert {consumer.records for consumer in consumers} == {produced}
            for consumer in consumers:
                consumer.stop()
            assert new.running
