"""A session that replaces addresses: no response shows one of the broker's."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from receiver.peers.pending_work import PendingWork
from receiver.session.effects import Flooded
from receiver.session.exchanges.addresses import MAX_KEPT_BYTES
from receiver.wire import api_keys
from receiver.wire.broker_addresses import BrokerAddress
from receiver.wire.frame_rewriter import BrokenStreamError, frame
from receiver.wire.headers import RequestHeader, encode_request_header
from receiver.wire.writer import Writer
from tests.testbed.scripted_broker import NODE_ID, RANGES, split
from tests.unit.session.support import Wire, api_versions, listed_ranges, read_api_versions, sasl_handshake

#: The gateway's host is two bytes shorter, as a tagged field without bytes.
SECRET = "b-1.internal"
GATEWAY = "gw.example"

#: Bytes of records: the first response is kept as a whole, the second is not.
SHORT, LONG = 1000, 3 * MAX_KEPT_BYTES


@pytest.fixture
def found() -> list[BrokerAddress]:
    return []


@pytest.fixture
def wire(wiring: Callable[..., Wire], found: list[BrokerAddress]) -> Wire:
    def replace(broker: BrokerAddress) -> tuple[str, int]:
        found.append(broker)
        return GATEWAY, 29100 + broker.node_id

    return wiring(replace_address=replace)


def _request(key: int, version: int, body: bytes, correlation_id: int = 5) -> bytes:
    header = RequestHeader(api_key=key, api_version=version, correlation_id=correlation_id, client_id="c")
    return frame(encode_request_header(header), body)


def _produce(acks: int, correlation_id: int = 5, transactional_id: str | None = "t" * 300) -> bytes:
    writer = Writer()
    writer.compact_nullable_string(transactional_id)
    writer.int16(acks)
    return _request(api_keys.PRODUCE, 12, writer.take() + bytes(400), correlation_id)


def _metadata(host: str, port: int) -> bytes:
    writer = Writer()
    writer.int32(0)
    writer.compact_array_length(1)
    writer.int32(NODE_ID)
    writer.compact_string(host)
    writer.int32(port)
    writer.compact_nullable_string(None)
    writer.tagged_fields(())
    return writer.take() + b"\x00\x00\x00\x00\x01\x01\x00"


def _fetch(host: str, port: int, records: int, *, padding: int | None = None) -> bytes:
    """Write a Fetch response with one partition and one moved leader."""
    writer = Writer()
    writer.raw(bytes(10))
    writer.compact_array_length(1)
    writer.raw(bytes(16))
    writer.compact_array_length(1)
    writer.raw(bytes(30))
    writer.compact_array_length(None)
    writer.int32(-1)
    writer.unsigned_varint(records + 1)
    writer.raw(b"r" * records)
    writer.tagged_fields(())
    writer.tagged_fields(())
    endpoints = Writer()
    endpoints.compact_array_length(1)
    endpoints.int32(4)
    endpoints.compact_string(host)
    endpoints.int32(port)
    endpoints.compact_nullable_string(None)
    endpoints.tagged_fields(())
    padded = () if padding is None else ((127, bytes(padding)),)
    writer.tagged_fields(((0, endpoints.take()), *padded))
    return writer.take()


def _respond(wire: Wire, body: bytes, *, flexible: bool = True) -> int:
    """Answer the broker's one request; return the correlation id that it had."""
    (request,) = split(bytes(wire.to_broker))[-1:]
    wire.to_broker.clear()
    correlation_id: int = struct.unpack_from(">i", request, 4)[0]
    wire.receive(frame(struct.pack(">i", correlation_id), bytes(flexible), body))
    return correlation_id


def _start(wire: Wire) -> None:
    """Have the first request decide about KIP-1313, and forget it."""
    wire.exchange(api_versions(3))


def test_metadata_gets_the_gateways_address(wire: Wire, found: list[BrokerAddress]) -> None:
    _start(wire)
    wire.send(_request(api_keys.METADATA, 12, bytes(20)))
    wire.to_broker = bytearray(_first(wire))
    assert _respond(wire, _metadata(SECRET, 9092)) < 0
    (answer,) = wire.received()
    assert answer == struct.pack(">i", 5) + b"\0" + _metadata(GATEWAY, 29100 + NODE_ID)
    assert found == [BrokerAddress(NODE_ID, SECRET, 9092)]


def _first(wire: Wire) -> bytes:
    """Return the first request that the broker got, as a frame; others only follow."""
    return frame(split(bytes(wire.to_broker))[0])


def test_a_short_fetch_is_rewritten_exactly(wire: Wire) -> None:
    _start(wire)
    wire.send(_request(api_keys.FETCH, 17, bytes(60)))
    wire.to_broker = bytearray(_first(wire))
    _respond(wire, _fetch(SECRET, 9092, SHORT))
    (answer,) = wire.received()
    assert answer == struct.pack(">i", 5) + b"\0" + _fetch(GATEWAY, 29104, SHORT)


def test_a_long_fetch_keeps_its_length(wire: Wire) -> None:
    _start(wire)
    body = _fetch(SECRET, 9092, LONG)
    for _ in range(2):
        wire.send(_request(api_keys.FETCH, 17, bytes(60)))
        wire.to_broker = bytearray(_first(wire))
        _respond(wire, body)
        (answer,) = wire.received()
        assert len(answer) == len(body) + 5
        assert answer == struct.pack(">i", 5) + b"\0" + _fetch(GATEWAY, 29104, LONG, padding=0)
        assert wire.session.responses.due == 0
        assert not wire.awaits()


def test_a_long_response_that_ends_too_early_closes(wire: Wire) -> None:
    _start(wire)
    wire.send(_request(api_keys.FETCH, 17, bytes(60)))
    wire.to_broker = bytearray(_first(wire))
    body = _fetch(SECRET, 9092, LONG)
    with pytest.raises(BrokenStreamError):
        _respond(wire, body[:-70])
    assert SECRET.encode() not in wire.to_client


@pytest.mark.parametrize("transactional_id", [None, "", "t" * 126, "t" * 300])
def test_only_produce_without_acknowledgements_is_not_expected(
    wire: Wire, transactional_id: str | None
) -> None:
    _start(wire)
    unacknowledged = _produce(0, transactional_id=transactional_id)
    wire.send(unacknowledged)
    assert _first(wire) == unacknowledged
    assert not wire.awaits()
    wire.to_broker.clear()
    wire.send(_produce(-1, transactional_id=transactional_id))
    assert wire.awaits()
    assert _first(wire) != _produce(-1, transactional_id=transactional_id)


def test_a_repeated_correlation_id_gets_no_address(wire: Wire) -> None:
    _start(wire)
    wire.send(_request(api_keys.METADATA, 12, bytes(20)) + _request(12, 4, bytes(20)))
    metadata, heartbeat = split(bytes(wire.to_broker))[:2]
    assert struct.unpack_from(">i", heartbeat, 4) == (5,)
    wire.to_broker.clear()
    wire.receive(frame(metadata[4:8], b"\0", _metadata(SECRET, 9092)) + frame(heartbeat[4:8], b"\0beat"))
    first, second = wire.received()
    assert SECRET.encode() not in first
    assert second == struct.pack(">i", 5) + b"\0beat"


def test_offered_versions_are_known(wiring: Callable[..., Wire]) -> None:
    ranges = {**RANGES, api_keys.FETCH: (4, 99), 52: (0, 2), 17: (0, 1), 700: (0, 1)}
    wire = wiring(ranges=ranges, replace_address=lambda _: (GATEWAY, 1))
    offered = listed_ranges(read_api_versions(wire.exchange(api_versions(3)), 3))
    assert offered[api_keys.FETCH] == (4, 18)
    assert offered[api_keys.SASL_HANDSHAKE] == (1, 1)
    assert not {52, 700} & offered.keys()
    assert offered[api_keys.PUSH_TELEMETRY]


@pytest.mark.parametrize("key_version", [(api_keys.FETCH, 19), (52, 1), (700, 0), (82, 0)])
def test_a_request_that_is_not_offered_closes(wire: Wire, key_version: tuple[int, int]) -> None:
    _start(wire)
    with pytest.raises(BrokenStreamError, match="an API key and version that the gateway offers"):
        wire.send(_request(*key_version, bytes(20)))


def test_a_handshake_that_ends_inspection_closes(wire: Wire) -> None:
    with pytest.raises(BrokenStreamError, match="SaslHandshake version 1"):
        wire.send(sasl_handshake(0))


def _plain_fetch(records: int) -> bytes:
    """Write a Fetch response in which no leader has moved."""
    with_endpoint = _fetch("", 0, records)
    return with_endpoint[: with_endpoint.rindex(b"r") + 3] + b"\0" if records else b""


def _pending_ids(wire: Wire) -> list[bytes]:
    """Take the correlation ids under which the broker got the requests of the test."""
    ids = [data[4:8] for data in split(bytes(wire.to_broker)) if data[4] & 0x80]
    wire.to_broker.clear()
    return ids


@pytest.mark.parametrize("records", [SHORT, LONG, 200_000])
def test_a_fetch_without_addresses_passes_with_the_clients_id(
    wire: Wire, found: list[BrokerAddress], records: int
) -> None:
    _start(wire)
    before = wire.session.responses.frames
    wire.send(b"".join(_request(api_keys.FETCH, 17, bytes(60), number) for number in (5, 6)))
    ids = _pending_ids(wire)
    assert len(set(ids)) == 2
    wire.receive(b"".join(frame(own, b"\0", _plain_fetch(records)) for own in ids))
    assert wire.received() == [struct.pack(">i", own) + b"\0" + _plain_fetch(records) for own in (5, 6)]
    assert not wire.awaits()
    assert wire.session.responses.frames == before + 2
    assert found == []


def test_a_fetch_without_addresses_is_not_copied(wire: Wire) -> None:
    _start(wire)
    request = memoryview(bytearray(_request(api_keys.FETCH, 17, bytes(60))))
    assert wire.session.requests.feed(request) is request
    response = memoryview(bytearray(frame(bytes(request[8:12]), b"\0", _plain_fetch(LONG))))
    assert wire.session.responses.feed(response) is response
    assert response[4:8] == struct.pack(">i", 5)


def _fetch_in_place(wire: Wire, number: int) -> None:
    """Pass a Fetch request on, as the caller does with bytes that pass."""
    chunk = memoryview(bytearray(_request(api_keys.FETCH, 17, bytes(60), number)))
    assert wire.session.requests.passing(chunk) == len(chunk)
    wire.to_broker += chunk


def test_many_fetches_wait_and_then_the_client_is_read_again(wiring: Callable[..., Wire]) -> None:
    """The caller hears of the memory of many requests, and of the limit."""
    wire = wiring(replace_address=lambda _: (GATEWAY, 1), max_push_bytes=1 << 20)
    _start(wire)
    sent = told = 0
    while not wire.congested():
        _fetch_in_place(wire, sent)
        told += wire.session.take_tracked()
        sent += 1
        assert sent <= 1000
    assert (sent, told) == (512, 8)
    assert wire.session.held_bytes >= 512 * 200
    _fetch_in_place(wire, sent)
    assert wire.session.take_tracked()
    ids = _pending_ids(wire)
    assert len(ids) == sent + 1
    told = 0
    for number, own in enumerate(ids):
        response = memoryview(bytearray(frame(own, b"\0", _plain_fetch(SHORT))))
        assert wire.session.responses.passing(response) == len(response)
        assert response[4:8] == struct.pack(">i", number)
        assert wire.congested() == (number == 0)
        told += wire.session.take_tracked()
    assert told == 1 + 8
    assert not wire.awaits()


def test_a_flood_that_passes_closes_the_connection(wiring: Callable[..., Wire]) -> None:
    wire = wiring(replace_address=lambda _: (GATEWAY, 1))
    _start(wire)
    with pytest.raises(BrokenStreamError, match="at most 8192 requests"):
        wire.session.requests.feed(memoryview(bytearray(_request(api_keys.FETCH, 17, bytes(6)) * 9_000)))
    assert Flooded() in wire.session.take_effects()


def _find_coordinators(count: int, correlation_id: int = 5) -> bytes:
    writer = Writer()
    writer.raw(b"\0")
    writer.compact_array_length(count)
    for number in range(count):
        writer.compact_string(str(number))
    writer.tagged_fields(())
    return _request(api_keys.FIND_COORDINATOR, 4, writer.take(), correlation_id)


def _coordinators(count: int, host: str, port: int) -> bytes:
    writer = Writer()
    writer.int32(0)
    writer.compact_array_length(count)
    for number in range(count):
        writer.compact_string(str(number))
        writer.int32(NODE_ID)
        writer.compact_string(host)
        writer.int32(port)
        writer.int16(0)
        writer.compact_nullable_string(None)
        writer.tagged_fields(())
    writer.tagged_fields(())
    return writer.take()


@pytest.mark.parametrize(("count", "most"), [(1, 16), (200, 9), (1_000, 2), (4_000, 1)])
def test_requests_for_coordinators_weigh_what_they_ask_for(wire: Wire, count: int, most: int) -> None:
    _start(wire)
    sent = 0
    while not wire.congested():
        wire.send(_find_coordinators(count, sent))
        sent += 1
        assert sent <= most
    assert sent == most
    for own in _pending_ids(wire):
        wire.receive(frame(own, b"\0", _coordinators(count, SECRET, 9092)))
    assert not wire.congested()
    expected = _coordinators(count, GATEWAY, 29100 + NODE_ID)
    assert wire.received() == [struct.pack(">i", number) + b"\0" + expected for number in range(sent)]


def test_coordinators_that_arrive_in_pieces_are_edited_as_they_arrive(wire: Wire) -> None:
    _start(wire)
    wire.send(_find_coordinators(2_000))
    (own,) = _pending_ids(wire)
    stream = frame(own, b"\0", _coordinators(2_000, SECRET, 9092))
    responses, out = wire.session.responses, bytearray()
    wire.session.take_worked()
    for begin in range(0, len(stream), 1_000):
        assert not out
        # What is work is read in small pieces, and charged.
        assert responses.idle_bytes == 0
        out += responses.feed(memoryview(bytearray(stream[begin : begin + 1_000])))
        assert wire.session.take_worked()
        arrived = min(begin + 1_000, len(stream))
        assert out or wire.session.held_bytes >= 2 * arrived - 100
    expected = _coordinators(2_000, GATEWAY, 29100 + NODE_ID)
    assert bytes(out) == frame(struct.pack(">i", 5), b"\0", expected)
    assert wire.session.held_bytes == 0


def test_a_source_with_much_pending_work_waits_on_each_of_its_connections(
    wiring: Callable[..., Wire],
) -> None:
    source = PendingWork()
    wires = [wiring(replace_address=lambda _: (GATEWAY, 1), pending_work=source) for _ in range(20)]
    other = wiring(replace_address=lambda _: (GATEWAY, 1))
    for wire in (*wires, other):
        _start(wire)
        assert source.units[0] == 0
    for wire in wires[:-1]:
        for number in range(500):
            _fetch_in_place(wire, number)
    # Of a busy source, a connection with few requests is still read.
    few = wires[-1]
    for number in range(31):
        _fetch_in_place(few, number)
        _fetch_in_place(other, number)
    assert all(wire.congested() for wire in wires[:-1])
    assert not few.congested()
    _fetch_in_place(few, 31)
    _fetch_in_place(other, 31)
    assert few.congested()
    assert not other.congested()
    # A connection that ends, or whose client is gone, has no more pending.
    for wire in wires[:10]:
        wire.session.close()
    assert not few.congested()
    for wire in wires[10:]:
        wire.session.client_is_gone()
    assert source.units[0] == 0


def test_requests_of_a_client_that_is_gone_pass_and_are_not_expected(wire: Wire) -> None:
    _start(wire)
    for number in range(600):
        _fetch_in_place(wire, number)
    assert wire.congested()
    wire.session.client_is_gone()
    assert not wire.congested()
    assert not wire.awaits()
    assert wire.session.held_bytes == 0
    wire.to_broker.clear()
    last = _request(api_keys.FETCH, 17, bytes(60)) + _produce(1) + _find_coordinators(3)
    wire.send(last)
    assert wire.to_broker.startswith(last)
    assert not wire.awaits()


@pytest.mark.parametrize("transactional_id", [None, "", "t" * 126])
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_a_produce_request_in_the_usual_form_is_not_copied(
    wire: Wire, acks: int, transactional_id: str | None
) -> None:
    _start(wire)
    request = memoryview(bytearray(_produce(acks, transactional_id=transactional_id)))
    assert wire.session.requests.feed(request) is request
    assert wire.awaits() == (acks != 0)
    assert (request[8:12] == struct.pack(">i", 5)) == (acks == 0)


@pytest.mark.parametrize("size", [1, 7, 1000, 16_000])
def test_a_long_fetch_without_addresses_arrives_in_pieces(wire: Wire, size: int) -> None:
    _start(wire)
    wire.send(_request(api_keys.FETCH, 17, bytes(60)) + _request(api_keys.FETCH, 17, bytes(60), 6))
    ids = _pending_ids(wire)
    stream = b"".join(frame(own, b"\0", _plain_fetch(LONG)) for own in ids)
    received = bytearray()
    for begin in range(0, len(stream), size):
        received += wire.session.responses.feed(memoryview(bytearray(stream[begin : begin + size])))
    assert split(bytes(received)) == [struct.pack(">i", own) + b"\0" + _plain_fetch(LONG) for own in (5, 6)]
    assert not wire.awaits()
    assert wire.session.responses.due == 0


def test_a_long_fetch_is_copied_only_at_its_end(wire: Wire) -> None:
    _start(wire)
    wire.send(_request(api_keys.FETCH, 17, bytes(60)))
    (own,) = _pending_ids(wire)
    stream = frame(own, b"\0", _fetch(SECRET, 9092, 400_000))
    first, last = (memoryview(bytearray(part)) for part in (stream[:262_144], stream[262_144:]))
    assert wire.session.responses.feed(first) is first
    end = wire.session.responses.feed(last)
    assert SECRET.encode() not in bytes(end)
    assert GATEWAY.encode() in bytes(end)
    assert len(first) + len(end) == len(stream)
