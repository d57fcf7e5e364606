"""Metrics that come without a PushTelemetry request, as from a broker's plugin."""

from __future__ import annotations

from typing import Any

import pytest

from receiver.settings.limits import LimitsSettings, PeerLimitsSettings
from receiver.telemetry.control.limits import Exceeded, LimitName
from receiver.telemetry.errors import (
    InvalidInstanceError,
    InvalidMetricsError,
    TooLargeError,
    UnknownCodecError,
)
from receiver.telemetry.intake import Arrival, Taken
from receiver.wire.uuid import ONE_UUID, ZERO_UUID, Uuid
from tests.unit.telemetry.parts import (
    COMPRESSED,
    INSTANCE,
    RECEIVED_AT_NS,
    Client,
    connection,
    labels_of,
    payload,
    ready,
    subscription,
)

SMALL = payload("ck-producer-star-01")


def arrive(
    client: Client, now: float, metrics: Any = SMALL, instance: Uuid = INSTANCE, **changes: Any
) -> Taken:
    arrival = Arrival(metrics=metrics, received_at_ns=RECEIVED_AT_NS, **changes)
    return client.telemetry.accept(client.identity, instance, arrival, now=now)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_metrics_become_the_push_that_a_request_makes(codec: int) -> None:
    requested = ready()
    by_request = requested.push(1, COMPRESSED[codec](SMALL), compression_type=codec).push
    client = Client(subscription(), connected=requested.identity)
    taken = arrive(client, 1, COMPRESSED[codec](SMALL), requested.id, codec=codec)
    assert taken.refusal is None
    assert taken.inflated_bytes == len(SMALL)
    assert taken.push == by_request


def test_neither_interval_nor_subscription_is_checked() -> None:
    client = Client(subscription(interval_ms=60_000))
    pushes = [arrive(client, now).push for now in (0, 0, 1)]
    assert [push and push.payload.sequence for push in pushes] == [1, 2, 3]
    end = arrive(client, 2, b"", terminating=True).push
    assert end is not None
    assert (end.payload.terminating, end.payload.data) == (True, b"")
    (instance,) = client.telemetry.instances
    assert (instance.id, instance.pushes_accepted, instance.terminating) == (INSTANCE, 4, True)
    assert instance.identity.client_instance_id == INSTANCE


def test_whoever_forwards_metrics_may_know_their_push_id() -> None:
    push = arrive(Client(), 0, push_id="known").push
    assert push is not None
    assert push.payload.push_id == "known"


def test_labels_are_those_of_the_identity() -> None:
    client = Client(connected=connection(principal="User:alice", listener="BROKER"))
    push = arrive(client, 0).push
    assert push is not None
    (labels,) = labels_of(push.payload.metrics)
    assert (labels["principal"], labels["listener"]) == ("User:alice", "BROKER")


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"instance": ZERO_UUID}, InvalidInstanceError),
        ({"instance": ONE_UUID}, InvalidInstanceError),
        ({"codec": 9}, UnknownCodecError),
        ({"metrics": b"\xff"}, InvalidMetricsError),
        ({"metrics": bytes(1_048_577)}, TooLargeError),
    ],
)
def test_bad_metrics_are_refused_with_the_reason(changes: dict[str, Any], refusal: type[Exception]) -> None:
    taken = arrive(Client(), 0, **changes)
    assert type(taken.refusal) is refusal
    assert taken.push is None


@pytest.mark.parametrize(
    ("limit", "name", "instances"),
    [
        ("new_instances_per_minute", LimitName.NEW_INSTANCES, [INSTANCE, Uuid(bytes(15) + b"\x09")]),
        ("accepted_bytes_per_minute", LimitName.ACCEPTED_BYTES, [INSTANCE, INSTANCE]),
    ],
)
def test_the_limits_of_peers_hold(limit: str, name: LimitName, instances: list[Uuid]) -> None:
    client = Client(limits=LimitsSettings(source_address=PeerLimitsSettings(**{limit: 1})))
    first, second = (arrive(client, 0, instance=instance) for instance in instances)
    assert first.refusal is None
    assert isinstance(second.refusal, Exceeded)
    assert second.refusal.limit is name
    assert second.push is None
