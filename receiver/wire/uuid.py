"""Kafka's uuids: 16 bytes on the wire, 22 characters of url-safe base64 as text.

Random bytes come in as an argument, so that this module is pure.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import NewType

#: The sixteen bytes of a Kafka uuid, most significant first.
Uuid = NewType("Uuid", bytes)

#: The id that a client sends before it has one (KIP-714, "Client instance id").
ZERO_UUID = Uuid(bytes(16))

#: The id of KRaft's metadata topic, which nothing else may have.
ONE_UUID = Uuid(bytes(15) + b"\x01")

#: Ids that no client gets. A push with one is answered with INVALID_REQUEST.
RESERVED_UUIDS = frozenset({ZERO_UUID, ONE_UUID})

_TEXT = re.compile(r"[A-Za-z0-9_\-]{22}(?:==)?")
_MAX_SHOWN_CHARS = 40  # of an invalid value in an error
_VERSION_4 = 0x40
_VARIANT_2 = 0x80


def uuid_to_text(uuid: Uuid) -> str:
    """Write a uuid as Kafka prints it: 22 characters of base64 without padding.

    Source: Kafka's ``org.apache.kafka.common.Uuid``; KIP-714, "Client instance id".
    """
    return base64.urlsafe_b64encode(uuid)[:22].decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """Read a uuid from Kafka's text form, with or without padding.

    Raises:
        ValueError: The text is not a uuid. The message repeats the text.

    Source: Kafka's ``org.apache.kafka.common.Uuid``.
    """
    if _TEXT.fullmatch(text):
        uuid = Uuid(base64.urlsafe_b64decode(text[:22] + "=="))
        # The 22nd character holds 2 bits of the id. Other bits in it would be a second spelling.
        if uuid_to_text(uuid) == text[:22]:
            return uuid
    shown = text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "..."
    raise ValueError(f"{shown!r} is not a Kafka uuid: expected 22 characters of url-safe base64")


def random_uuid(random_bytes: Callable[[int], bytes]) -> Uuid:
    """Make a version 4 uuid that is not reserved and has no leading dash.

    Kafka also avoids a leading dash, because command-line tools would read it as an option.

    Args:
        random_bytes: Returns that many random bytes, like ``os.urandom``.

    Source: Kafka's ``Uuid.randomUuid``; RFC 9562, section 5.4.
    """
    while True:
        drawn = bytearray(random_bytes(16))
        drawn[6] = (drawn[6] & 0x0F) | _VERSION_4
        drawn[8] = (drawn[8] & 0x3F) | _VARIANT_2
        # The first character encodes the six highest bits, and 62 is the dash. The version bits
        # make the result differ from the reserved uuids.
        if drawn[0] >> 2 != 0b111110:
            return Uuid(bytes(drawn))
