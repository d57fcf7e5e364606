"""The primitive types: valid values, bounds and errors."""

from __future__ import annotations

import struct
from collections.abc import Callable
from struct import Struct

import pytest

from receiver.wire.errors import WireError
from receiver.wire.primitives import Reader
from receiver.wire.uuid import Uuid
from receiver.wire.writer import Writer

Read = Callable[[Reader], object]

GOOD: list[tuple[str, Read, bytes, object]] = [
    ("int16", lambda r: r.int16(), b"\xff\xfe", -2),
    ("int32", lambda r: r.int32(), b"\x7f\xff\xff\xff", 2**31 - 1),
    ("int64", lambda r: r.int64(), b"\x80" + bytes(7), -(2**63)),
    ("uuid", lambda r: r.uuid(), bytes(range(16)), Uuid(bytes(range(16)))),
    ("varint of one byte", lambda r: r.unsigned_varint(), b"\x7f", 127),
    ("varint of two bytes", lambda r: r.unsigned_varint(), b"\x80\x01", 128),
    ("varint padded", lambda r: r.unsigned_varint(), b"\x81\x80\x00", 1),
    ("varint at its most", lambda r: r.unsigned_varint(), b"\xff\xff\xff\xff\x0f", 2**32 - 1),
    ("string", lambda r: r.string(), b"\x00\x02\xc3\xa9", "é"),
    ("null string", lambda r: r.nullable_string(), b"\xff\xff", None),
    ("nullable string", lambda r: r.nullable_string(), b"\x00\x00", ""),
    ("compact string", lambda r: r.compact_string(), b"\x03ab", "ab"),
    ("null compact string", lambda r: r.compact_nullable_string(), b"\x00", None),
    ("compact nullable string", lambda r: r.compact_nullable_string(), b"\x01", ""),
    ("bytes", lambda r: r.bytes_view(), b"\x00\x00\x00\x01x", b"x"),
    ("compact bytes", lambda r: r.compact_bytes_view(), b"\x02x", b"x"),
    ("null compact bytes", lambda r: r.compact_nullable_bytes_view(), b"\x00", None),
    ("compact nullable bytes", lambda r: r.compact_nullable_bytes_view(), b"\x01", b""),
    ("empty array", lambda r: r.array_length("Topics", item_size=4), bytes(4), 0),
    ("null array", lambda r: r.nullable_array_length("Topics"), b"\xff\xff\xff\xff", None),
    ("empty compact array", lambda r: r.compact_array_length("Topics", item_size=4), b"\x01", 0),
    ("null compact array", lambda r: r.compact_nullable_array_length("Topics"), b"\x00", None),
    ("no tagged fields", lambda r: r.tagged_fields(), b"\x00", ()),
    ("tagged fields", lambda r: r.tagged_fields(), b"\x02\x00\x00\x81\x01\x02xy", ((0, b""), (129, b"xy"))),
    (
        "tagged fields out of order",
        lambda r: r.tagged_fields(),
        b"\x02\x05\x00\x01\x00",
        ((5, b""), (1, b"")),
    ),
    ("fixed fields", lambda r: r.fixed(Struct(">hb")), b"\x00\x01\xff", (1, -1)),
]


@pytest.mark.parametrize(("read", "data", "value"), [g[1:] for g in GOOD], ids=[g[0] for g in GOOD])
def test_reads(read: Read, data: bytes, value: object) -> None:
    reader = Reader(data)
    assert read(reader) == value
    assert reader.offset == len(data)
    assert reader.remaining == 0
    reader.expect_end()


@pytest.mark.parametrize(("read", "data", "value"), [g[1:] for g in GOOD], ids=[g[0] for g in GOOD])
def test_reads_in_the_midst_of_a_buffer(read: Read, data: bytes, value: object) -> None:
    for buffer in (b"\x01\x02" + data + b"\x03", bytearray(b"\x01\x02" + data + b"\x03")):
        reader = Reader(buffer, 2)
        assert read(reader) == value
        assert reader.remaining == 1


@pytest.mark.parametrize(("read", "data", "value"), [g[1:] for g in GOOD], ids=[g[0] for g in GOOD])
def test_never_reads_past_the_end(read: Read, data: bytes, value: object) -> None:
    for length in range(len(data)):
        for reader in (Reader(data[:length]), Reader(data, 0, length)):
            with pytest.raises(WireError) as caught:
                read(reader)
            assert 0 <= caught.value.offset <= length


BAD: list[tuple[str, Read, bytes, str]] = [
    (
        "varint of six bytes",
        lambda r: r.unsigned_varint("N"),
        b"\xff" * 5 + b"\x01",
        "expected N (unsigned varint of",
    ),
    (
        "varint of 33 bits",
        lambda r: r.unsigned_varint("N"),
        b"\xff\xff\xff\xff\x1f",
        "at offset 0, found a longer one",
    ),
    (
        "null string",
        lambda r: r.string("Name"),
        b"\xff\xff",
        "expected Name (string) at offset 0, found null",
    ),
    (
        "null compact string",
        lambda r: r.compact_string("Name"),
        b"\x00",
        "Name (compact string) at offset 0, found null",
    ),
    ("string of length -2", lambda r: r.nullable_string("Name"), b"\xff\xfe", "found a length of -2"),
    (
        "null bytes",
        lambda r: r.bytes_view("Token"),
        b"\xff" * 4,
        "expected Token (bytes) at offset 0, found null",
    ),
    (
        "null compact bytes",
        lambda r: r.compact_bytes_view("Token"),
        b"\x00",
        "(compact bytes) at offset 0, found null",
    ),
    (
        "bytes of 2 GiB",
        lambda r: r.bytes_view("Token"),
        b"\x7f\xff\xff\xff..",
        "found a length of 2147483647",
    ),
    (
        "compact bytes of 4 GiB",
        lambda r: r.compact_bytes_view("T"),
        b"\xff\xff\xff\xff\x0f",
        "a length of 4294967294",
    ),
    (
        "negative bytes",
        lambda r: r.bytes_view("Token"),
        b"\x80\x00\x00\x00",
        "found a length of -2147483648",
    ),
    (
        "null array",
        lambda r: r.array_length("Items"),
        b"\xff" * 4,
        "expected Items (array) at offset 0, found null",
    ),
    (
        "null compact array",
        lambda r: r.compact_array_length("Items"),
        b"\x00",
        "(compact array) at offset 0, found null",
    ),
    (
        "negative array",
        lambda r: r.nullable_array_length("Items"),
        b"\xff\xff\xff\xf0",
        "found a count of -16",
    ),
    (
        "array longer than the rest",
        lambda r: r.array_length("Items", item_size=4),
        b"\x00\x00\x00\x03" + bytes(11),
        "expected Items (a count of at most 2 items, as 11 bytes left) at offset 0, found a count of 3",
    ),
    (
        "compact array longer than the rest",
        lambda r: r.compact_array_length("Items"),
        b"\x03.",
        "a count of 2",
    ),
    (
        "tagged fields beyond the rest",
        lambda r: r.tagged_fields("T"),
        b"\xff\x01\x00\x00",
        "found a count of 255",
    ),
    (
        "tagged field longer than the rest",
        lambda r: r.tagged_fields("T"),
        b"\x01\x00\x05abcd",
        "found a length of 5",
    ),
    (
        "string that is no UTF-8",
        lambda r: r.string("Name"),
        b"\x00\x03ab\xff",
        "expected Name (UTF-8) at offset 4",
    ),
    (
        "surrogate in a string",
        lambda r: r.compact_string("Name"),
        b"\x04\xed\xa0\x80",
        "expected Name (UTF-8) at offset 1",
    ),
    (
        "compact string over Kafka's limit",
        lambda r: r.compact_string("Name"),
        b"\x81\x80\x02" + bytes(0x8000),
        "expected Name (a string of at most 32767 bytes) at offset 0, found a length of 32768",
    ),
    (
        "too short",
        lambda r: r.int32("NodeId"),
        b"abc",
        "expected NodeId (int32) at offset 0, found 3 bytes left",
    ),
    (
        "one byte short",
        lambda r: r.fixed(Struct(">hh"), "Range"),
        b".",
        "Range (4 bytes) at offset 0, found 1 byte left",
    ),
    (
        "bytes left",
        lambda r: r.expect_end("request"),
        b"..",
        "expected the end of the request at offset 0, found 2 more",
    ),
]


@pytest.mark.parametrize(("read", "data", "message"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_refuses(read: Read, data: bytes, message: str) -> None:
    with pytest.raises(WireError) as caught:
        read(Reader(data))
    assert message in str(caught.value)
    assert str(caught.value) == (
        f"expected {caught.value.expected} at offset {caught.value.offset}, found {caught.value.found}"
    )


NAMED = [
    "int16",
    "int32",
    "int64",
    "uuid",
    "unsigned_varint",
    "string",
    "nullable_string",
    "nullable_string_of_any_bytes",
    "compact_string",
    "compact_nullable_string",
    "bytes_view",
    "compact_bytes_view",
    "compact_nullable_bytes_view",
    "array_length",
    "nullable_array_length",
    "compact_array_length",
    "compact_nullable_array_length",
    "tagged_fields",
]


@pytest.mark.parametrize("method", NAMED)
def test_every_error_has_the_name_of_the_field_and_a_place(method: str) -> None:
    errors = []
    for data in map(bytes.fromhex, ["", "00", "0101", "0201", "7fff", "fffe", "ffff", "7fffffff", "ff" * 5]):
        try:
            getattr(Reader(data), method)("Topics")
        except WireError as error:
            errors.append(("Topics" in error.expected, error.offset in range(len(data) + 1)))
    assert set(errors) == {(True, True)}


def test_an_error_holds_no_bytes_of_the_message() -> None:
    with pytest.raises(WireError) as caught:
        Reader(b"\x00\x08hunter2\xff").string("Password")
    error = caught.value
    assert "hunter" not in f"{error!r}{error}"
    # Neither does anything that is chained to it: Python's own decoding error would.
    assert error.__cause__ is None
    assert error.__context__ is None


def test_views_are_not_copies() -> None:
    data = bytearray(b"\x02x\x00\x00\x00\x01y")
    reader = Reader(data)
    compact, plain = reader.compact_bytes_view(), reader.bytes_view()
    data[1] = ord("z")
    assert bytes(compact) + bytes(plain) == b"zy"


@pytest.mark.parametrize(("offset", "end"), [(-1, None), (4, None), (0, 4), (2, 1), (0, -1)])
def test_a_reader_stays_in_its_buffer(offset: int, end: int | None) -> None:
    with pytest.raises(ValueError, match="do not lie in a buffer of 3 bytes"):
        Reader(b"abc", offset, end)


Write = Callable[[Writer], None]

WRITTEN: list[tuple[str, Write, bytes]] = [
    ("int8", lambda w: w.int8(-1), b"\xff"),
    ("int16", lambda w: w.int16(-2), b"\xff\xfe"),
    ("int32", lambda w: w.int32(1), b"\x00\x00\x00\x01"),
    ("true", lambda w: w.boolean(value=True), b"\x01"),
    ("false", lambda w: w.boolean(value=False), b"\x00"),
    ("uuid", lambda w: w.uuid(Uuid(bytes(range(16)))), bytes(range(16))),
    ("varint", lambda w: w.unsigned_varint(300), b"\xac\x02"),
    ("greatest varint", lambda w: w.unsigned_varint(2**32 - 1), b"\xff\xff\xff\xff\x0f"),
    ("string", lambda w: w.string("é"), b"\x00\x02\xc3\xa9"),
    ("longest string", lambda w: w.string("x" * 0x7FFF), b"\x7f\xff" + b"x" * 0x7FFF),
    ("null string", lambda w: w.nullable_string(None), b"\xff\xff"),
    ("compact string", lambda w: w.compact_string("ab"), b"\x03ab"),
    ("null compact string", lambda w: w.compact_nullable_string(None), b"\x00"),
    ("array", lambda w: w.array_length(2), b"\x00\x00\x00\x02"),
    ("null array", lambda w: w.array_length(None), b"\xff" * 4),
    ("compact array", lambda w: w.compact_array_length(127), b"\x80\x01"),
    ("null compact array", lambda w: w.compact_array_length(None), b"\x00"),
    ("tagged fields", lambda w: w.tagged_fields(((0, b""), (129, b"xy"))), b"\x02\x00\x00\x81\x01\x02xy"),
]


@pytest.mark.parametrize(("write", "data"), [w[1:] for w in WRITTEN], ids=[w[0] for w in WRITTEN])
def test_writes(write: Write, data: bytes) -> None:
    writer = Writer()
    write(writer)
    assert writer.take() == data
    assert len(writer) == len(data)


UNWRITABLE: list[tuple[str, Write, type[Exception], str]] = [
    ("int8", lambda w: w.int8(128), OverflowError, "too big"),
    ("int16", lambda w: w.int16(2**15), struct.error, "format"),
    ("uuid", lambda w: w.uuid(Uuid(b"abc")), ValueError, "a uuid has 16 bytes, not 3"),
    (
        "negative varint",
        lambda w: w.unsigned_varint(-1),
        ValueError,
        "-1 is not an unsigned integer of 32 bits",
    ),
    ("long varint", lambda w: w.unsigned_varint(2**32), ValueError, "not an unsigned integer of 32 bits"),
    (
        "string",
        lambda w: w.string("x" * 0x8000),
        ValueError,
        "32768 bytes is longer than the protocol's 32767",
    ),
    ("compact string", lambda w: w.compact_string("é" * 0x4000), ValueError, "32768 bytes"),
    ("array", lambda w: w.array_length(-1), ValueError, "-1 is not a valid array length"),
    ("compact array", lambda w: w.compact_array_length(2**31), ValueError, "is not a valid array length"),
]


@pytest.mark.parametrize(
    ("write", "error", "message"), [u[1:] for u in UNWRITABLE], ids=[u[0] for u in UNWRITABLE]
)
def test_writes_nothing_that_the_type_cannot_hold(write: Write, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        write(Writer())
