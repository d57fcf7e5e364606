"""Clients whose connection ended and that are not back: what plugins get, and when."""

from __future__ import annotations

from dataclasses import replace

from receiver.telemetry.departures import Departures
from receiver.telemetry.instance import ClientInstance
from receiver.wire.uuid import Uuid
from tests.unit.telemetry.parts import Client, connection, payload, ready

SMALL = payload("ck-producer-star-01")
#: Its push interval is 10 s.
LIFETIME_S = 60


def pushed(*, terminating: bool = False) -> Client:
    client = ready()
    assert client.push(1, SMALL, terminating=terminating).push is not None
    return client


def end(client: Client, now: float) -> None:
    client.telemetry.disconnected(client.identity.id, now=now, now_ns=int(now * 1e9))


def test_a_client_that_does_not_come_back_within_its_lifetime_is_disconnected() -> None:
    client = ready()
    before = client.push(1, SMALL).push
    assert before is not None
    end(client, 5)
    assert client.telemetry.take_departed(5 + LIFETIME_S - 1) == []
    (departed,) = client.telemetry.take_departed(5 + LIFETIME_S)
    assert departed.payload.disconnected
    assert not before.payload.disconnected
    assert (departed.payload.data, departed.payload.terminating) == (b"", False)
    assert departed.payload.client_instance_id == before.payload.client_instance_id
    assert departed.payload.push_id != before.payload.push_id
    assert departed.context == replace(
        before.context, received_at_ns=5_000_000_000, request_version=None, correlation_id=None
    )
    assert client.telemetry.take_departed(1000) == []


def test_a_client_that_is_back_was_never_gone() -> None:
    client = pushed()
    end(client, 5)
    client.identity = replace(client.identity, id="another connection")
    assert client.push(20, SMALL).push is not None
    assert client.telemetry.take_departed(1000) == []
    end(client, 1000)
    assert len(client.telemetry.take_departed(1000 + LIFETIME_S)) == 1


def test_the_end_of_a_client_that_said_so_or_never_pushed_is_not_reported() -> None:
    for client in (pushed(terminating=True), ready()):
        end(client, 5)
        assert client.telemetry.take_departed(1000) == []


def instance(number: int) -> ClientInstance:
    made = ClientInstance(Uuid(number.to_bytes(16, "big")), connection(), 0)
    made.accept_push(0, terminating=False)
    made.lifetime_s = 60.0 if number % 2 else 90.0
    return made


def test_a_call_takes_a_part_and_the_oldest_go_early_at_the_bound() -> None:
    departures = Departures(100)
    for number in range(100):
        departures.add(instance(number), 0, 0)
    assert departures.take(1) == []
    departures.add(instance(100), 1, 0)
    assert [departed.instance.id for departed in departures.take(1)] == [instance(0).id]
    taken = [len(departures.take(1000)) for _ in range(8)]
    assert (sum(taken), len(departures)) == (100, 0)
    assert max(taken) < 100


def test_an_instance_that_leaves_twice_counts_from_the_last_time() -> None:
    departures = Departures(100)
    for now in (0, 30):
        departures.add(instance(1), now, now)
    assert departures.take(60) == []
    ((_, since, since_ns),) = departures.take(90)
    assert (since, since_ns) == (30, 30)
