"""The one error that malformed bytes raise.

This module owns :class:`WireError` and nothing else. It must never carry payload bytes: what arrives may hold
passwords and tokens (SaslAuthenticate), so only kinds, lengths and integers are told.
"""

from __future__ import annotations

__all__ = ["WireError"]


class WireError(Exception):
    """The bytes are no message of the Kafka protocol: the peer must act.

    Attributes:
        expected: What the schema asks for at this place, with the field's name where there is one.
        offset: Where it was expected, in bytes from the start of the buffer that was being read.
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
