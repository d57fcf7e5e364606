"""Client instance ids in headers, on a connection on which addresses are replaced too."""

from __future__ import annotations

import struct

import pytest

from receiver.wire import api_keys, named_addresses
from receiver.wire.frame_rewriter import BrokenStreamError, frame
from receiver.wire.header_versions import FIRST_WITH_HEADER_V3, LATEST
from receiver.wire.headers import RequestHeader, decode_request_header, encode_request_header
from receiver.wire.primitives import Reader
from receiver.wire.uuid import Uuid
from receiver.wire.writer import Writer
from tests.testbed.scripted_broker import split
from tests.unit.session.support import (
    BYTE_BY_BYTE,
    WHOLE,
    Wire,
    api_versions,
    listed_ranges,
    read_api_versions,
)

#: What Kafka 4.4 speaks, with a request between controllers.
KAFKA_4_4 = {key: (0, latest) for key, latest in LATEST.items()}
HEARTBEAT = 12
MINE = Uuid(bytes(range(16, 32)))
GATEWAY = "gw.example"


def both(arrival: str) -> Wire:
    """A session that translates headers and replaces addresses."""
    return Wire(
        arrival=arrival,
        translates=True,
        replace_address=lambda broker: (GATEWAY, 29_100 + broker.node_id),
        ranges=KAFKA_4_4,
        learned=KAFKA_4_4,
    )


def request(key: int, body: bytes, correlation_id: int = 5) -> bytes:
    """A request in the version that KIP-1313 adds, with an instance id in its header."""
    header = RequestHeader(
        api_key=key,
        api_version=FIRST_WITH_HEADER_V3[key],
        correlation_id=correlation_id,
        client_id="c",
        client_instance_id=MINE,
    )
    return frame(encode_request_header(header, 3), body)


def sent(wire: Wire) -> tuple[RequestHeader, bytes]:
    """Take the first request that the broker got."""
    data = split(bytes(wire.to_broker))[0]
    wire.to_broker.clear()
    reader = Reader(data)
    return decode_request_header(reader), data[reader.offset :]


def metadata(host: str, port: int) -> bytes:
    """A Metadata response with one broker."""
    writer = Writer()
    writer.int32(0)
    writer.compact_array_length(1)
    writer.int32(7)
    writer.compact_string(host)
    writer.int32(port)
    writer.compact_nullable_string(None)
    writer.tagged_fields(())
    return writer.take() + b"\x00\x00\x00\x00\x01\x01\x00"


@pytest.mark.parametrize("arrival", [WHOLE, BYTE_BY_BYTE])
def test_a_request_is_translated_and_its_answer_rewritten(arrival: str) -> None:
    wire = both(arrival)
    for correlation_id in (5, 6):
        wire.send(request(api_keys.METADATA, b"body", correlation_id))
        header, body = sent(wire)
        assert (header.api_version, header.client_instance_id) == (LATEST[api_keys.METADATA], None)
        assert body == b"body"
        assert header.correlation_id < 0
        wire.receive(
            frame(struct.pack(">i", header.correlation_id), b"\0", metadata("broker.internal", 9092))
        )
        (answer,) = wire.received()
        assert answer == struct.pack(">i", correlation_id) + b"\0" + metadata(GATEWAY, 29_107)
    assert wire.identity.client_instance_id == MINE


@pytest.mark.parametrize("arrival", [WHOLE, BYTE_BY_BYTE])
@pytest.mark.parametrize("acks", [0, -1])
def test_only_acknowledged_produce_requests_wait_for_a_response(arrival: str, acks: int) -> None:
    wire = both(arrival)
    writer = Writer()
    writer.compact_nullable_string("t" * 200)
    writer.int16(acks)
    body = writer.take() + bytes(400)
    wire.send(request(api_keys.PRODUCE, body))
    header, forwarded = sent(wire)
    assert (header.api_version, forwarded) == (LATEST[api_keys.PRODUCE], body)
    assert (header.correlation_id < 0) == wire.awaits() == (acks != 0)


def test_a_request_that_names_no_broker_passes_translated() -> None:
    wire = both(WHOLE)
    wire.send(request(HEARTBEAT, b"beat"))
    header, body = sent(wire)
    assert (header.api_version, header.correlation_id) == (LATEST[HEARTBEAT], 5)
    assert body == b"beat"
    assert not wire.awaits()


def test_no_version_is_offered_whose_addresses_are_unknown() -> None:
    offered = listed_ranges(read_api_versions(both(WHOLE).exchange(api_versions(3)), 3))
    assert offered[api_keys.METADATA] == (0, FIRST_WITH_HEADER_V3[api_keys.METADATA])
    assert offered.keys() <= named_addresses.OFFERED.keys()


def test_a_request_between_controllers_closes() -> None:
    wire = both(WHOLE)
    wire.exchange(api_versions(3))
    with pytest.raises(BrokenStreamError, match="an API key and version that the gateway offers"):
        wire.send(
            frame(
                encode_request_header(
                    RequestHeader(api_key=52, api_version=1, correlation_id=1, client_id="c")
                ),
                b"body",
            )
        )
