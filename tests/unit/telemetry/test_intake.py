"""Metrics that come without a PushTelemetry request, as from a broker's plugin."""

from __future__ import annotations

from typing import Any

import pytest

from receiver.settings.limits import LimitsSettings, PeerLimitsSettings
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.client_state import ClientState, state_of
from receiver.telemetry.compression import sniff
from receiver.telemetry.control.limits import Exceeded, LimitName
from receiver.telemetry.errors import (
    InvalidInstanceError,
    InvalidMetricsError,
    TooLargeError,
    UnknownCodecError,
)
from receiver.telemetry.identity import Via
from receiver.telemetry.outcomes import PushOutcome
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
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
    client: Client,
    now: float,
    metrics: Any = SMALL,
    instance: Uuid = INSTANCE,
    *,
    codec: int = 0,
    terminating: bool = False,
    **options: Any,
) -> PushOutcome:
    request = PushTelemetryRequest(
        client_instance_id=instance, terminating=terminating, compression_type=codec, metrics=metrics
    )
    options = {"received_at_ns": RECEIVED_AT_NS, "checked_by_broker": False} | options
    return client.telemetry.accept(client.identity, request, now=now, **options)


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


def test_only_a_push_without_data_points_takes_the_id_of_the_way_that_it_came() -> None:
    client = Client()
    repeats = [arrive(client, 0, metrics=b"", empty_push_id="7").push for _ in range(2)]
    assert [push and push.payload.push_id for push in repeats] == ["7", "7"]
    by_content = [arrive(client, 0, empty_push_id=text).push for text in "12"]
    assert len({push and push.payload.push_id for push in by_content}) == 1


def test_what_a_broker_has_checked_is_not_checked_again() -> None:
    settings = TelemetrySettings(max_bytes=1024, compression=("zstd",))
    client = Client(settings=settings)
    assert isinstance(arrive(client, 0).refusal, TooLargeError)
    assert arrive(client, 0, checked_by_broker=True).refusal is None
    gzip = COMPRESSED[1](SMALL)
    assert isinstance(arrive(client, 0, gzip, codec=1).refusal, UnknownCodecError)
    assert arrive(client, 0, gzip, codec=1, checked_by_broker=True).refusal is None
    bomb = COMPRESSED[1](bytes(2**22))
    assert isinstance(arrive(client, 0, bomb, codec=1, checked_by_broker=True).refusal, TooLargeError)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_lost_compression_type_shows_in_the_first_bytes(codec: int) -> None:
    assert sniff(COMPRESSED[codec](SMALL)) == codec


def test_a_client_of_a_bridge_ends_by_the_interval_that_the_broker_says() -> None:
    client = Client(subscription(interval_ms=1000), connected=connection(via=Via.BRIDGE))
    arrive(client, 0, interval_ms=60_000)
    (instance,) = client.telemetry.instances
    assert (instance.push_interval_ms, instance.lifetime_s) == (60_000, 180)
    assert state_of(instance, 89) is ClientState.PUSHING
    assert state_of(instance, 91) is ClientState.SILENT
    assert client.telemetry.instances.look_up(INSTANCE, 179) is instance
    assert client.telemetry.instances.look_up(INSTANCE, 180) is None


def test_a_client_of_a_bridge_is_in_no_state_that_a_bridge_cannot_see() -> None:
    client = Client(connected=connection(via=Via.BRIDGE))
    arrive(client, 0)
    arrive(client, 1, b"\xff")
    (instance,) = client.telemetry.instances
    assert state_of(instance, 1) is ClientState.PUSHING
    arrive(client, 2, terminating=True)
    assert state_of(instance, 2) is ClientState.TERMINATED


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
