"""A list of coordinators is edited while it arrives, as it is edited as a whole."""

from __future__ import annotations

from typing import Final

import pytest

from receiver.wire.bounds import ARRAYS, MAX_TAGGED_FIELDS
from receiver.wire.broker_addresses import BrokerAddress
from receiver.wire.errors import BoundError, WireError
from receiver.wire.k10_find_coordinator import CoordinatorsEdit, replace_addresses
from receiver.wire.writer import TaggedFields, Writer

_HEADER: Final = b"head "


def _replace(broker: BrokerAddress) -> tuple[str, int]:
    return f"gateway-{broker.node_id}.example", 29_000


def _body(count: int, host: str, port: int, *, key: str = "group", tags: TaggedFields = ()) -> bytes:
    writer = Writer()
    writer.int32(0)
    writer.compact_array_length(count)
    for number in range(count):
        writer.compact_string(f"{key}-{number}")
        writer.int32(number % 3)
        writer.compact_string(host.format(number % 3))
        writer.int32(port)
        writer.int16(0)
        writer.compact_nullable_string("why" * (number % 50))
        writer.tagged_fields(tags if number % 2 else ())
    writer.tagged_fields(())
    return writer.take()


_BODIES: Final = {
    "none": (0, {}),
    "short": (20, {}),
    "long keys": (20, {"key": "k" * 300}),
    "tagged fields": (20, {"tags": ((5, b"x" * 200), (300, b""))}),
}


@pytest.mark.parametrize("size", [1, 2, 7, 300, 100_000])
@pytest.mark.parametrize("body", _BODIES)
def test_pieces_become_what_the_whole_becomes(body: str, size: int) -> None:
    count, more = _BODIES[body]
    response = _HEADER + _body(count, "broker-{}.internal", 9092, **more)  # type: ignore[arg-type]
    expected = _body(count, "gateway-{}.example", 29_000, **more)  # type: ignore[arg-type]
    edit = CoordinatorsEdit(len(_HEADER), _replace)
    for end in range(size, len(response), size):
        edit.feed(memoryview(response)[:end])
    assert edit.finish(response) == expected
    assert replace_addresses(response[len(_HEADER) :], 4, _replace) == expected


def test_a_piece_costs_what_has_arrived_since_the_last() -> None:
    """Of bytes that are edited already, nothing is looked at again."""
    seen: list[int] = []

    class Response(bytes):
        def __getitem__(self, at: object) -> object:  # type: ignore[override]
            part = super().__getitem__(at)  # type: ignore[call-overload]
            seen.append(len(part))
            return part

    response = _body(1_000, "broker-{}.internal", 9092)
    edit = CoordinatorsEdit(0, _replace)
    for end in range(100, len(response), 100):
        edit.feed(Response(response[:end]))
    assert max(seen) < 1_000
    assert edit.held_bytes > len(response) - 1_000


def test_a_coordinator_that_comes_byte_by_byte_is_not_copied_for_each() -> None:
    copied = 0

    class Response(bytes):
        def __getitem__(self, at: object) -> object:  # type: ignore[override]
            nonlocal copied
            part = super().__getitem__(at)  # type: ignore[call-overload]
            copied += len(part)
            return part

    response = _body(1, "broker-{}.internal", 9092, key="k" * 30_000)
    edit = CoordinatorsEdit(0, _replace)
    for end in range(1, len(response), 10):
        edit.feed(Response(response[:end]))
    assert copied < 4 * len(response)


@pytest.mark.parametrize("cut", [1, 3, 10, 30, 55])
def test_a_response_that_ends_within_a_coordinator_is_refused(cut: int) -> None:
    response = _body(2, "broker-{}.internal", 9092)[:-cut]
    if cut == 1:  # behind the coordinators nothing is read
        replace_addresses(response, 4, _replace)
        return
    with pytest.raises(WireError, match="expected a coordinator"):
        replace_addresses(response, 4, _replace)


def test_too_many_coordinators_are_refused_before_they_arrive() -> None:
    writer = Writer()
    writer.int32(0)
    writer.compact_array_length(ARRAYS["Coordinators"] + 1)
    with pytest.raises(BoundError, match=f"at most {ARRAYS['Coordinators']} Coordinators"):
        CoordinatorsEdit(0, _replace).feed(writer.take())


def test_too_many_tagged_fields_are_refused() -> None:
    tags = tuple((tag, b"") for tag in range(MAX_TAGGED_FIELDS + 1))
    with pytest.raises(BoundError, match=f"at most {MAX_TAGGED_FIELDS} tagged fields"):
        replace_addresses(_body(2, "broker-{}.internal", 9092, tags=tags), 4, _replace)
