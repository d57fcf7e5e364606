"""The exception that malformed bytes raise.

Its text must never contain payload bytes, because they may hold passwords and tokens
(SaslAuthenticate). It names fields, lengths and integers only.
"""

from __future__ import annotations


class WireError(Exception):
    """The peer sent bytes that are not a valid message of the Kafka protocol.

    Attributes:
        expected: What the schema requires at this place, with the field's name if there is one.
        offset: Where it was expected, in bytes from the start of the buffer.
        found: What is there instead: a length, a kind or an integer, never payload bytes.

    Source: the Kafka protocol guide, "Protocol Primitive Types".
    """

    def __init__(self, *, expected: str, offset: int, found: str) -> None:
        super().__init__(expected, offset, found)
        self.expected = expected
        self.offset = offset
        self.found = found

    def __str__(self) -> str:
        return f"expected {self.expected} at offset {self.offset}, found {self.found}"


class BoundError(WireError):
    """The message is well-formed so far, and has more items than the receiver reads.

    Source: :mod:`receiver.wire.bounds`.
    """
