"""Fuzzes the editing of a list of coordinators, which reads in place and while bytes arrive.

An input's first byte is the size of the pieces, and the rest is a FindCoordinator response body. A
second implementation, with the wire's own reader, says what must come out.
"""

from __future__ import annotations

from receiver.wire.broker_addresses import BrokerAddress, copy_address, copy_fields
from receiver.wire.errors import WireError
from receiver.wire.k10_find_coordinator import CoordinatorsEdit
from receiver.wire.primitives import Reader
from receiver.wire.writer import Writer
from tests.fuzz.target import Target, require
from tests.unit.wire.corpus import decode_header, load

_HOST = "gateway.example"
_PORT = 29_100
_AT = b"head."

#: The longest text of an error, whatever the bytes are.
_MAX_ERROR_CHARACTERS = 300

_FIND_COORDINATOR = 10
_FIRST_WITH_LIST = 4


def _replace(broker: BrokerAddress) -> tuple[str, int]:
    require(broker.node_id >= 0, "no broker has a negative id")
    return _HOST, _PORT


def _is_the_gateway(broker: BrokerAddress) -> tuple[str, int]:
    require((broker.host, broker.port) == (_HOST, _PORT), f"the answer still names {broker}")
    return _HOST, _PORT


def _read(body: bytes) -> bytes:
    """Edit a body field by field.

    Raises:
        WireError: It is malformed, or a text of it is not UTF-8.
    """
    reader, writer = Reader(body), Writer()
    copy_fields(reader, writer, lambda fields: fields.int32("ThrottleTimeMs"))
    start = reader.offset
    count = max(reader.unsigned_varint("Coordinators") - 1, 0)
    writer.raw(reader.since(start))
    for _ in range(count):
        copy_fields(reader, writer, lambda fields: fields.compact_nullable_string("Key"))
        copy_address(reader, writer, _replace, flexible=True)
        copy_fields(reader, writer, _after_address)
    writer.raw(reader.rest_view())
    return writer.take()


def _after_address(reader: Reader) -> None:
    reader.int16("ErrorCode")
    reader.compact_nullable_string("ErrorMessage")
    reader.tagged_fields("tagged fields")


def _edited(body: bytes, piece: int) -> bytes | None:
    """Edit a body that arrives in pieces; None if it is malformed."""
    response = _AT + body
    edit = CoordinatorsEdit(len(_AT), _replace)
    try:
        for end in range(piece, len(response), piece):
            edit.feed(memoryview(response)[:end])
            require(0 <= edit.held_bytes <= end, "more is edited than has arrived")
        return edit.finish(response)
    except WireError as error:
        require(len(str(error)) <= _MAX_ERROR_CHARACTERS, "an error as long as the bytes allow")
        return None


def _run(data: bytes) -> None:
    if not data:
        return
    piece, body = 1 + data[0], data[1:]
    whole = _edited(body, len(body) + len(_AT) + 1)
    require(_edited(body, piece) == whole, "in pieces it becomes something else")
    try:
        read = _read(body)
    except WireError:
        read = None
    if read is not None:
        require(read == whole, "read field by field it becomes something else")
    if whole is not None:
        again = CoordinatorsEdit(0, _is_the_gateway).finish(whole)
        require(again == whole, "edited again it differs")


def _body(count: int, *, key: str = "group", message: str | None = None, tags: int = 0) -> bytes:
    writer = Writer()
    writer.int32(0)
    writer.compact_array_length(count)
    for number in range(count):
        writer.compact_string(f"{key}{number}")
        writer.int32(number - 1)
        writer.compact_string(f"broker-{number}")
        writer.int32(9092)
        writer.int16(0)
        writer.compact_nullable_string(message)
        writer.tagged_fields(tuple((tag, bytes(tag)) for tag in range(tags)))
    writer.tagged_fields(())
    return writer.take()


def _seeds() -> list[bytes]:
    bodies = [
        _body(0),
        _body(1),
        _body(3, message="not there", tags=2),
        _body(2, key="k" * 200),
        _body(2, tags=65),
        bytes(4) + b"\0\0",
        bytes(4) + b"\x82\x80\x01",
    ]
    for found in load():
        if not found.is_request and found.key == _FIND_COORDINATOR and found.version >= _FIRST_WITH_LIST:
            reader = Reader(found.data)
            decode_header(reader, found)
            bodies.append(found.data[reader.offset :])
    return [bytes([piece]) + body for body in bodies for piece in (0, 6, 200)]


TARGET = Target(
    name="coordinators",
    run=_run,
    seeds=_seeds,
    tokens=(b"\x80\x01", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80", bytes(8)),
    max_bytes=2048,
    max_memory=8 << 20,
    brief=20_000,
)
