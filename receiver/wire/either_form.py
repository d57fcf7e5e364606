"""Reads and writes fields in the plain or the compact form.

Source: KIP-482. From a message's first flexible version on, lengths are varints and structures end
with tagged fields.
"""

from __future__ import annotations

from receiver.wire.header_versions import FIRST_FLEXIBLE
from receiver.wire.primitives import Reader
from receiver.wire.writer import Buffer, Writer


def is_flexible(api_key: int, api_version: int) -> bool:
    """Return whether a message has the compact form (KIP-482)."""
    return api_version >= FIRST_FLEXIBLE[api_key]


class EitherReader(Reader):
    """A reader whose methods below read the form that was chosen."""

    __slots__ = ("flexible",)

    def __init__(self, buffer: Buffer, *, flexible: bool, offset: int = 0) -> None:
        super().__init__(buffer, offset)
        self.flexible = flexible

    def text(self, field: str) -> str:
        """Read a string."""
        return self.compact_string(field) if self.flexible else self.string(field)

    def nullable_text(self, field: str) -> str | None:
        """Read a string or null."""
        return self.compact_nullable_string(field) if self.flexible else self.nullable_string(field)

    def skip_text(self, field: str) -> None:
        """Skip a string or null, whose bytes are not checked."""
        length = self.unsigned_varint(field) - 1 if self.flexible else self.int16(field)
        if length > 0:
            self.skip(length, field)

    def boolean(self, field: str) -> bool:
        """Read a boolean; each byte but zero is true, as in Kafka."""
        return self.int8(field) != 0

    def count(self, field: str, *, item_size: int) -> int:
        """Read the length of an array; see :meth:`array_length`."""
        if self.flexible:
            return self.compact_array_length(field, item_size=item_size)
        return self.array_length(field, item_size=item_size)

    def nullable_count(self, field: str, *, item_size: int) -> int | None:
        """Read the length of an array, or null; see :meth:`array_length`."""
        if self.flexible:
            return self.compact_nullable_array_length(field, item_size=item_size)
        return self.nullable_array_length(field, item_size=item_size)

    def tags(self, field: str) -> None:
        """Skip the tagged fields of a structure, if the form has them."""
        if self.flexible:
            self.tagged_fields(field)


class EitherWriter(Writer):
    """A writer whose methods below write the form that was chosen."""

    __slots__ = ("flexible",)

    def __init__(self, *, flexible: bool) -> None:
        super().__init__()
        self.flexible = flexible

    def text(self, value: str) -> None:
        """Append a string."""
        if self.flexible:
            self.compact_string(value)
        else:
            self.string(value)

    def nullable_text(self, value: str | None) -> None:
        """Append a string or null."""
        if self.flexible:
            self.compact_nullable_string(value)
        else:
            self.nullable_string(value)

    def count(self, length: int | None) -> None:
        """Append the length of an array, or null."""
        if self.flexible:
            self.compact_array_length(length)
        else:
            self.array_length(length)

    def tags(self) -> None:
        """Append no tagged fields, if the form has them."""
        if self.flexible:
            self.unsigned_varint(0)
