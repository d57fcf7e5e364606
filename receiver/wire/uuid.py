"""Kafka's uuids: sixteen bytes on the wire, 22 characters of url-safe base64 in text.

This module owns their text form, the reserved ones and how a new one is made. It must not take randomness
from anywhere: the source of random bytes is an argument.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import NewType

__all__ = ["ONE_UUID", "RESERVED_UUIDS", "ZERO_UUID", "Uuid", "random_uuid", "uuid_from_text", "uuid_to_text"]

#: The sixteen bytes of a Kafka uuid, most significant first.
Uuid = NewType("Uuid", bytes)

#: "No id": what a client sends before it has one (KIP-714, "Client instance id").
ZERO_UUID = Uuid(bytes(16))

#: The id of KRaft's metadata topic: never the id of anything else.
ONE_UUID = Uuid(bytes(15) + b"\x01")

#: The ids that are never given to a client; a push under one is INVALID_REQUEST.
RESERVED_UUIDS = frozenset({ZERO_UUID, ONE_UUID})

_TEXT = re.compile(r"[A-Za-z0-9_\-]{22}(?:==)?")
_SHOWN = 40  # characters of a wrong value that an error repeats
_VERSION_4 = 0x40
_VARIANT_2 = 0x80


def uuid_to_text(uuid: Uuid) -> str:
    """Write a uuid as Kafka prints it.

    Args:
        uuid: Sixteen bytes.

    Returns:
        22 characters of url-safe base64 without padding.

    Source: Kafka's ``org.apache.kafka.common.Uuid``; KIP-714, "Client instance id".
    """
    return base64.urlsafe_b64encode(uuid)[:22].decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """Read a uuid from the text that Kafka prints.

    Args:
        text: 22 characters of url-safe base64, with or without the padding.

    Returns:
        The sixteen bytes.

    Raises:
        ValueError: The text is anything else; the message repeats it.

    Source: Kafka's ``org.apache.kafka.common.Uuid``.
    """
    if _TEXT.fullmatch(text):
        uuid = Uuid(base64.urlsafe_b64decode(text[:22] + "=="))
        # The 22nd character holds 2 bits of the id; other bits in it would be a second spelling of one id.
        if uuid_to_text(uuid) == text[:22]:
            return uuid
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    raise ValueError(f"{shown!r} is no Kafka uuid: 22 characters of url-safe base64 are expected")


def random_uuid(random_bytes: Callable[[int], bytes]) -> Uuid:
    """Make a new uuid: version 4, never reserved, and with no text that begins with a dash.

    A text with a dash in front would be taken for an option by command-line tools, so Kafka gives out none.

    Args:
        random_bytes: Gives so many random bytes, as ``os.urandom`` does.

    Returns:
        The new uuid.

    Source: Kafka's ``Uuid.randomUuid``; RFC 9562, section 5.4.
    """
    while True:
        drawn = bytearray(random_bytes(16))
        drawn[6] = (drawn[6] & 0x0F) | _VERSION_4
        drawn[8] = (drawn[8] & 0x3F) | _VARIANT_2
        # The first character shows the six highest bits; 62 of them is the dash. The version bits alone
        # already keep the result apart from the reserved uuids.
        if drawn[0] >> 2 != 0b111110:
            return Uuid(bytes(drawn))
