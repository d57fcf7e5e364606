"""Fuzzes the bounds of the wire's reader: of lists, of tagged fields, and of whole messages.

An input is a program of up to 32 reads, of a byte each, and the bytes that they read. Zeros follow
them, as many as the byte before the program says, so that long lists fit. A second implementation
of lengths says what each read must return, or how it must fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from receiver.wire.bounds import ARRAYS, MAX_ITEMS, MAX_TAGGED_FIELDS
from receiver.wire.errors import BoundError, WireError
from receiver.wire.primitives import Reader
from receiver.wire.writer import MAX_STRING_BYTES
from tests.fuzz.target import Target, require

_MAX_READS: Final = 32

#: Zeros behind the bytes, for each unit of the first byte.
_ZEROS: Final = 256

_FIELDS: Final = sorted(ARRAYS)
_READS: Final = ("array", "nullable array", "compact array", "compact nullable array", "tags", "text")


class _Malformed(Exception):  # noqa: N818 - an outcome, not an error
    """The model finds that a read must fail with a plain WireError."""


class _TooMany(Exception):  # noqa: N818 - an outcome, not an error
    """The model finds that a read must fail at a bound."""


class _Model:
    """Reads lengths in the plainest way."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.items = 0

    def varint(self) -> int:
        value, weight = 0, 1
        for _ in range(5):
            if self.at == len(self.data):
                raise _Malformed
            byte = self.data[self.at]
            self.at += 1
            value += (byte % 128) * weight
            weight *= 128
            if byte < 128:
                if value >= 1 << 32:
                    raise _Malformed
                return value
        raise _Malformed

    def int32(self) -> int:
        if self.at + 4 > len(self.data):
            raise _Malformed
        self.at += 4
        return int.from_bytes(self.data[self.at - 4 : self.at], signed=True)

    def skip(self, size: int) -> None:
        if size < 0 or self.at + size > len(self.data):
            raise _Malformed
        self.at += size

    def count(self, length: int, size: int, most: int) -> int:
        if length < 0 or length * size > len(self.data) - self.at:
            raise _Malformed
        self.items += length
        if length > most or self.items > MAX_ITEMS:
            raise _TooMany
        return length

    def array(self, field: str, size: int, *, compact: bool, nullable: bool) -> int | None:
        length = self.varint() - 1 if compact else self.int32()
        if length == -1:
            if nullable:
                return None
            raise _Malformed
        return self.count(length, size, ARRAYS[field])

    def tags(self) -> int:
        count = self.varint()
        self.count(count, 2, MAX_TAGGED_FIELDS)
        for _ in range(count):
            self.varint()
            self.skip(self.varint())
        return count

    def text(self) -> int | None:
        begin = self.at
        length = self.varint() - 1
        if length == -1:
            return None
        if length > MAX_STRING_BYTES:
            raise _Malformed
        begin = self.at
        self.skip(length)
        try:
            self.data[begin : self.at].decode()
        except UnicodeDecodeError:
            raise _Malformed from None
        return length


def _expected(model: _Model, read: str, field: str, size: int) -> int | None:
    if read == "tags":
        return model.tags()
    if read == "text":
        return model.text()
    return model.array(field, size, compact="compact" in read, nullable="nullable" in read)


def _found(reader: Reader, read: str, field: str, size: int) -> int | None:
    if read == "tags":
        return len(reader.tagged_fields(field))
    if read == "text":
        text = reader.compact_nullable_string(field)
        return None if text is None else len(text.encode())
    arrays: dict[str, Callable[..., int | None]] = {
        "array": reader.array_length,
        "nullable array": reader.nullable_array_length,
        "compact array": reader.compact_array_length,
        "compact nullable array": reader.compact_nullable_array_length,
    }
    return arrays[read](field, item_size=size)


def _step(model: _Model, reader: Reader, code: int) -> bool:
    """Do one read both ways; return whether reading may go on."""
    read, field = _READS[code % len(_READS)], _FIELDS[code % len(_FIELDS)]
    size = 1 + code % 3
    outcome: object
    try:
        outcome = _expected(model, read, field, size)
    except _Malformed:
        outcome = WireError
    except _TooMany:
        outcome = BoundError
    found: object
    try:
        found = _found(reader, read, field, size)
    except WireError as error:
        found = type(error)
    require(found == outcome, f"{read} of {field} is {found}, not {outcome}")
    if isinstance(found, type):
        return False
    require(reader.offset == model.at, f"{read} of {field} ends at {reader.offset}, not {model.at}")
    require(model.items <= MAX_ITEMS, "more items than a message may have")
    return True


def _run(data: bytes) -> None:
    if len(data) < 2:
        return
    reads, program = 1 + data[1] % _MAX_READS, data[2:]
    body = program[reads:] + bytes(data[0] * _ZEROS)
    model, reader = _Model(body), Reader(body)
    for code in program[:reads]:
        if not _step(model, reader, code):
            return


def _seeds() -> list[bytes]:
    seeds = []
    for code in range(len(_READS) * 4):
        for length in (0, 1, 2, 64, 65, 1_025, 8_193, 16_385):
            compact = bytes([length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14])
            for head in (length.to_bytes(4), compact):
                seeds.append(bytes([255, 0, code]) + head)
                # There is room for so many items of a byte, and not of two.
                seeds.append(bytes([0, 0, code]) + head + bytes(min(length, 400) * 3 // 2))
                # The same again and again, up to the bound of a message.
                seeds.append(bytes([255, 31]) + bytes([code]) * 32 + head * 32)
    return sorted(set(seeds), key=len)


TARGET = Target(
    name="bounds",
    run=_run,
    seeds=_seeds,
    tokens=(b"\xff\xff\xff\xff", b"\x80\x01", b"\x81\x80\x01", b"\x80\x80\x80\x80\x10", bytes(4)),
    max_bytes=512,
    max_memory=8 << 20,
    brief=20_000,
)
