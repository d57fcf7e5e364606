"""A session tells each new identity of its client in order with its other effects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from receiver.principal.sasl import UNKNOWN_PRINCIPAL
from receiver.session.call import OpenCall
from receiver.session.effects import ApiVersionsAnswered, IdentityChanged, LoginEnded
from tests.testbed.scripted_broker import request_frame
from tests.unit.session.kip1313.test_kip1313 import MINE, get_v1, translating, v3_frame
from tests.unit.session.support import (
    ARRIVALS,
    Wire,
    api_versions,
    connection,
    get_subscriptions,
    read_subscriptions,
    sasl_handshake,
)
from tests.unit.session.test_login import OK, handshake, plain, wire

METADATA, HEARTBEAT = 3, 12


@pytest.mark.parametrize("arrival", ARRIVALS)
def test_client_id_and_software_come_before_the_answer(arrival: str) -> None:
    made = Wire(arrival=arrival)
    made.exchange(api_versions(3, client_software_name="kgo", client_software_version="1.2"))
    named = replace(connection(), client_id="raw")
    known = replace(named, client_software_name="kgo", client_software_version="1.2")
    *changes, answered = made.effects
    changes = [effect for effect in changes if isinstance(effect, IdentityChanged)]
    assert changes == [IdentityChanged(named), IdentityChanged(known)]
    assert isinstance(answered, ApiVersionsAnswered)
    assert made.session.identity == known


def test_a_login_comes_after_its_principal() -> None:
    made = wire(OK, OK)
    made.exchange(handshake())
    made.effects.clear()
    made.exchange(plain("alice"))
    changed, ended = made.effects
    assert isinstance(changed, IdentityChanged)
    assert (changed.identity.principal, changed.identity.sasl_mechanism) == ("User:alice", "PLAIN")
    assert isinstance(ended, LoginEnded)
    made.effects.clear()
    made.exchange(handshake())
    made.exchange(plain("alice"))
    assert [type(effect) for effect in made.effects] == [LoginEnded], "nothing changed"


def test_bare_tokens_make_the_principal_unknown() -> None:
    made = wire()
    made.send(sasl_handshake(0))
    effect = made.effects[-1]
    assert isinstance(effect, IdentityChanged)
    assert effect.identity.principal == UNKNOWN_PRINCIPAL


def test_the_id_of_a_header_is_told_once_and_before_the_first_call() -> None:
    made = Wire()
    for _ in range(3):
        made.exchange(get_v1(MINE))
        made.clock.now += 10
    changed, *calls = made.effects
    assert isinstance(changed, IdentityChanged)
    assert [isinstance(call, OpenCall) for call in calls] == [True] * 3
    assert made.session.identity == replace(connection(), client_id="raw", client_instance_id=MINE)


def test_an_id_that_the_core_gave_is_not_the_sessions() -> None:
    made = Wire()
    assigned = read_subscriptions(made.exchange(get_subscriptions())).client_instance_id
    made.exchange(api_versions(3))
    assert made.session.identity.client_instance_id is None
    assert made.identity.client_instance_id == assigned, "the registry keeps it"
    assert made.identity.client_software_name == "raw"


def test_a_client_pays_for_a_new_client_id_in_any_header() -> None:
    """Each one is told to the core, so a client must not change it for free."""
    made = translating()
    made.exchange(v3_frame(HEARTBEAT, MINE, client_id="a"))
    made.session.take_worked()
    made.exchange(v3_frame(HEARTBEAT, MINE, client_id="a"))
    assert not made.session.take_worked()
    made.exchange(v3_frame(HEARTBEAT, MINE, client_id="b"))
    assert made.session.take_worked()
    assert made.identity.client_id == "b"


def test_requests_without_a_client_id_change_nothing() -> None:
    made = Wire()
    made.exchange(request_frame(METADATA, 1, 7, bytes(4), client_id="orders"))
    made.effects.clear()
    made.exchange(get_v1(MINE, client_id=None))
    assert made.identity.client_id == "orders"
