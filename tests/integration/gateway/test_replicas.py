"""Replicas of one gateway: each serves all brokers, has its own state, and stands in for others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.integration.gateway.support import (
    TIMEOUT_S,
    GatewaySidecar,
    Raw,
    api_versions,
    config,
    error_of_push,
    get_subscriptions,
    listener,
    push,
    read_get,
    refusal,
)
from tests.testbed.ports import free_port
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import ScriptedBroker

pytestmark = pytest.mark.full

NONE, UNKNOWN_SUBSCRIPTION_ID = 0, 117
ANY = "/readyz?listeners=any"


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


def become(sidecar: GatewaySidecar, path: str, status: int) -> None:
    wait_until(lambda: sidecar.status(path) == status, timeout_s=TIMEOUT_S, what=f"{path} {status}")


def test_a_replica_takes_clients_while_one_of_its_brokers_does(broker: ScriptedBroker) -> None:
    away = free_port()
    settings = config(broker.port)
    settings["listeners"].append({**listener("SECOND", away), "broker": {"id": 2}})
    with GatewaySidecar(settings, wait_for_broker=False) as sidecar:
        become(sidecar, "/readyz", 503)
        assert "listener SECOND" in sidecar.readiness()[1]
        become(sidecar, ANY, 200)
        broker.stop()
        refusal(sidecar.port())  # the sidecar looks at a broker when a connection to it fails
        become(sidecar, ANY, 503)
        assert sidecar.status("/readyz?listeners=some") == 422


def test_a_client_that_moves_between_replicas_asks_again_at_most(broker: ScriptedBroker) -> None:
    with ExitStack() as running:
        first, same, other = (running.enter_context(GatewaySidecar(config(broker.port))) for _ in range(3))
        for replica in (first, same):
            replica.put_subscription("all", ["*"], 100)
        other.put_subscription("all", ["org.apache.kafka.producer."], 100)
        with Raw(first.port()) as raw:
            raw.exchange(api_versions(3))
            error, instance, subscription = read_get(raw.exchange(get_subscriptions()))
            assert error == NONE
            assert error_of_push(raw.exchange(push(instance, subscription))) == NONE
        with Raw(same.port()) as raw:
            raw.exchange(api_versions(3))
            # The subscription's id is computed from its content.
            assert error_of_push(raw.exchange(push(instance, subscription))) == NONE
        with Raw(other.port()) as raw:
            raw.exchange(api_versions(3))
            assert error_of_push(raw.exchange(push(instance, subscription))) == UNKNOWN_SUBSCRIPTION_ID
            error, kept, replaced = read_get(raw.exchange(get_subscriptions(instance)))
            assert (error, kept) == (NONE, instance)
            assert replaced != subscription
            assert error_of_push(raw.exchange(push(instance, replaced))) == NONE
