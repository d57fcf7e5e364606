"""Kafka's uuids in text, and new ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from receiver.wire.uuid import (
    ONE_UUID,
    RESERVED_UUIDS,
    ZERO_UUID,
    Uuid,
    random_uuid,
    uuid_from_text,
    uuid_to_text,
)


def _draws(*values: bytes) -> Callable[[int], bytes]:
    left = list(values)

    def draw(size: int) -> bytes:
        value = left.pop(0)
        assert size == len(value) == 16
        return value

    return draw


@pytest.mark.parametrize(
    ("uuid", "text"),
    [
        (ZERO_UUID, "AAAAAAAAAAAAAAAAAAAAAA"),
        (ONE_UUID, "AAAAAAAAAAAAAAAAAAAAAQ"),
        (Uuid(bytes.fromhex("e4bea0de74a14fe78c0ad2bef97f3ab3")), "5L6g3nShT-eMCtK--X86sw"),
        (Uuid(b"\xff" * 16), "_____________________w"),
    ],
)
def test_text(uuid: Uuid, text: str) -> None:
    assert uuid_to_text(uuid) == text
    assert uuid_from_text(text) == uuid
    assert uuid_from_text(text + "==") == uuid


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAA=",
        "AAAAAAAAAAAAAAAAAAAAAA\n",
        "+/AAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAB",  # bits beyond the 128
        "00000000-0000-0000-0000-000000000000",
    ],
)
def test_an_invalid_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Kafka uuid: expected 22 characters") as caught:
        uuid_from_text(text)
    assert repr(text) in str(caught.value)


def test_a_long_text_is_not_repeated_whole() -> None:
    with pytest.raises(ValueError, match="is not a Kafka uuid") as caught:
        uuid_from_text("x" * 1000)
    assert len(str(caught.value)) < 150


def test_reserved() -> None:
    assert frozenset({bytes(16), bytes(15) + b"\x01"}) == RESERVED_UUIDS


def test_a_new_one_has_version_4_and_is_never_reserved() -> None:
    assert random_uuid(_draws(bytes(16))).hex() == "00000000000040008000000000000000"
    assert random_uuid(_draws(b"\xff" * 16)).hex() == "ffffffffffff4fffbfffffffffffffff"


@pytest.mark.parametrize("first", [0xF8, 0xF9, 0xFA, 0xFB])
def test_a_new_one_never_begins_with_a_dash(first: int) -> None:
    dashed = bytes([first]) + bytes(15)
    assert uuid_to_text(Uuid(dashed)).startswith("-")
    uuid = random_uuid(_draws(dashed, dashed, b"\xfc" + bytes(15)))
    assert uuid[0] == 0xFC


def test_only_uuids_with_a_leading_dash_are_drawn_again() -> None:
    for first in range(256):
        text = uuid_to_text(random_uuid(_draws(bytes([first]) + bytes(15), bytes(16))))
        assert not text.startswith("-")
        assert text.startswith(uuid_to_text(Uuid(bytes([first]) + bytes(15)))[0]) or 0xF8 <= first <= 0xFB
