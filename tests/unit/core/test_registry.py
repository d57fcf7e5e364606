"""The registry of connections: one identity for each, as session and core learn it."""

from __future__ import annotations

from dataclasses import replace

from receiver.core.registry import ConnectionRegistry
from receiver.wire.uuid import Uuid
from tests.unit.telemetry.parts import INSTANCE, connection

OTHER = Uuid(bytes(15) + b"\x09")


def test_entries_are_replaced_in_their_order() -> None:
    registry = ConnectionRegistry()
    one, two = connection(id="1"), connection(id="2")
    registry.add(one)
    registry.add(two)
    changed = replace(one, principal="User:alice")
    registry.changed(changed)
    assert registry.snapshot() == [changed, two]
    assert registry.find("1") is changed
    registry.remove("1")
    registry.remove("1")
    assert (registry.snapshot(), len(registry), registry.find("1")) == ([two], 1, None)


def test_the_core_knows_the_instance_and_the_session_the_rest() -> None:
    registry = ConnectionRegistry()
    one = connection(id="1")
    registry.add(one)
    registry.instance_learned(replace(one, client_instance_id=INSTANCE))
    registry.changed(replace(one, client_id="late"))
    assert registry.find("1") == replace(one, client_id="late", client_instance_id=INSTANCE)
    registry.instance_learned(replace(one, client_instance_id=OTHER))
    assert registry.find("1") == replace(one, client_id="late", client_instance_id=OTHER)


def test_the_id_of_a_header_holds_until_a_telemetry_request() -> None:
    registry = ConnectionRegistry()
    one = connection(id="1")
    registry.add(one)
    registry.changed(replace(one, client_instance_id=INSTANCE))
    entry = registry.find("1")
    assert entry is not None
    assert entry.client_instance_id == INSTANCE


def test_a_closed_connection_does_not_return() -> None:
    registry = ConnectionRegistry()
    gone = connection(id="1")
    registry.add(gone)
    registry.remove("1")
    registry.changed(gone)
    registry.instance_learned(gone)
    assert len(registry) == 0
