"""Request and response headers, and the header version of each message."""

from __future__ import annotations

import struct

import pytest

from receiver.wire import api_keys
from receiver.wire.errors import WireError
from receiver.wire.header_versions import FIRST_FLEXIBLE, FIRST_WITH_HEADER_V3, LATEST
from receiver.wire.headers import (
    RequestHeader,
    ResponseHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_header_size,
    request_header_version,
    response_header_version,
)
from receiver.wire.primitives import Reader
from receiver.wire.uuid import ZERO_UUID, Uuid

INSTANCE = Uuid(bytes(range(16)))
TAGS = ((0, b"a"), (300, b""))
START = b"\x00\x48\x00\x01\x00\x00\x00\x07"
CLIENT_ID = b"\x00\x01c"
RAW_TAGS = b"\x02\x00\x01a\xac\x02\x00"


@pytest.mark.parametrize(
    ("version", "data", "kept"),
    [
        (0, START, {}),
        (1, START + CLIENT_ID, {"client_id": "c"}),
        (1, START + b"\xff\xff", {}),
        (2, START + CLIENT_ID + RAW_TAGS, {"client_id": "c", "tagged_fields": TAGS}),
        (
            3,
            START + CLIENT_ID + INSTANCE + RAW_TAGS,
            {"client_id": "c", "client_instance_id": INSTANCE, "tagged_fields": TAGS},
        ),
        (3, START + b"\xff\xff" + bytes(16) + b"\x00", {"client_instance_id": ZERO_UUID}),
    ],
)
def test_request_header(version: int, data: bytes, kept: dict[str, object]) -> None:
    header = RequestHeader(api_key=72, api_version=1, correlation_id=7, **kept)  # type: ignore[arg-type]
    reader = Reader(data)
    assert decode_request_header(reader, version) == header
    reader.expect_end()
    assert encode_request_header(header, version) == data
    for length in range(len(data)):
        with pytest.raises(WireError) as caught:
            decode_request_header(Reader(data[:length]), version)
        assert 0 <= caught.value.offset <= length


def test_a_version_carries_only_its_fields() -> None:
    header = RequestHeader(
        api_key=72,
        api_version=1,
        correlation_id=7,
        client_id="c",
        client_instance_id=INSTANCE,
        tagged_fields=TAGS,
    )
    assert encode_request_header(header, 0) == START
    assert encode_request_header(header, 1) == START + CLIENT_ID
    assert encode_request_header(header, 2) == START + CLIENT_ID + RAW_TAGS
    assert encode_request_header(header) == START + CLIENT_ID + INSTANCE + RAW_TAGS
    no_instance = RequestHeader(api_key=72, api_version=1, correlation_id=7, client_id="c")
    assert encode_request_header(no_instance, 3) == START + CLIENT_ID + bytes(16) + b"\x00"
    response = ResponseHeader(correlation_id=7, tagged_fields=TAGS)
    assert encode_response_header(response, 0) == START[4:]


def test_response_header() -> None:
    assert decode_response_header(Reader(b"\xff\xff\xff\xff"), 0) == ResponseHeader(correlation_id=-1)
    header = ResponseHeader(correlation_id=7, tagged_fields=TAGS)
    assert decode_response_header(Reader(START[4:] + RAW_TAGS), 1) == header
    assert encode_response_header(header, 1) == START[4:] + RAW_TAGS


@pytest.mark.parametrize(
    ("key", "by_version"),
    [
        (api_keys.PRODUCE, {0: 1, 8: 1, 9: 2, 13: 2, 14: 1}),
        (api_keys.METADATA, {0: 1, 8: 1, 9: 2, 13: 2, 14: 1, 32767: 1}),
        (api_keys.CONTROLLED_SHUTDOWN, {0: 0, 1: 1, 2: 1}),
        (api_keys.SASL_HANDSHAKE, {0: 1, 1: 1, 2: 1}),
        (api_keys.API_VERSIONS, {0: 1, 2: 1, 3: 2, 5: 2, 6: 1, 32767: 1, -1: 1}),
        (api_keys.SASL_AUTHENTICATE, {0: 1, 1: 1, 2: 2, 3: 1}),
        (api_keys.OFFSET_DELETE, {0: 1, 1: 1}),
        (api_keys.GET_TELEMETRY_SUBSCRIPTIONS, {0: 2, 1: 3, 2: 1, -1: 1}),
        (api_keys.PUSH_TELEMETRY, {0: 2, 1: 3, 2: 1}),
        (9999, {0: 1, 12: 1}),
    ],
)
def test_request_header_versions(key: int, by_version: dict[int, int]) -> None:
    assert {version: request_header_version(key, version) for version in by_version} == by_version


@pytest.mark.parametrize(
    ("key", "by_version"),
    [
        (api_keys.PRODUCE, {13: 2, 14: 3, 15: 1}),
        (api_keys.API_VERSIONS, {5: 2, 6: 3, 7: 1}),
        (api_keys.SASL_HANDSHAKE, {1: 1, 2: 1}),
        (api_keys.OFFSET_DELETE, {0: 1, 1: 3, 2: 1}),
    ],
)
def test_request_header_versions_where_kip_1313_is_offered(key: int, by_version: dict[int, int]) -> None:
    for translated in ({key}, {key, 9999}):
        found = {v: request_header_version(key, v, translated=translated) for v in by_version}
        assert found == by_version
    others = {v: request_header_version(key, v, translated={9999}) for v in by_version}
    assert 3 not in others.values()


@pytest.mark.parametrize(
    ("key", "by_version"),
    [
        (api_keys.PRODUCE, {8: 0, 9: 1, 14: 1}),
        (api_keys.METADATA, {8: 0, 9: 1, 14: 1}),
        (api_keys.SASL_HANDSHAKE, {0: 0, 1: 0}),
        (api_keys.API_VERSIONS, {0: 0, 3: 0, 5: 0, 6: 0, 99: 0}),
        (api_keys.SASL_AUTHENTICATE, {1: 0, 2: 1, 3: 1}),
        (api_keys.OFFSET_DELETE, {0: 0, 1: 1}),
        (api_keys.GET_TELEMETRY_SUBSCRIPTIONS, {0: 1, 1: 1}),
        (api_keys.PUSH_TELEMETRY, {0: 1, 1: 1}),
        (9999, {0: 0}),
    ],
)
def test_response_header_versions(key: int, by_version: dict[int, int]) -> None:
    assert {version: response_header_version(key, version) for version in by_version} == by_version


def test_kip_1313_adds_the_version_after_the_latest_to_every_rpc_but_sasl_handshake() -> None:
    assert FIRST_WITH_HEADER_V3.keys() == LATEST.keys() - {api_keys.SASL_HANDSHAKE}
    assert FIRST_WITH_HEADER_V3[api_keys.API_VERSIONS] == 6
    assert FIRST_WITH_HEADER_V3[api_keys.OFFSET_DELETE] == FIRST_FLEXIBLE[api_keys.OFFSET_DELETE] == 1
    assert (
        FIRST_WITH_HEADER_V3[api_keys.PUSH_TELEMETRY]
        == FIRST_WITH_HEADER_V3[api_keys.GET_TELEMETRY_SUBSCRIPTIONS]
        == 1
    )


def test_apiversions_of_a_later_version_is_read_up_to_the_client_id() -> None:
    data = b"\x00\x12\x00\x63\x00\x00\x00\x07" + CLIENT_ID + b"\xff\xff\xff\xff\xff\xff"
    reader = Reader(data)
    assert decode_request_header(reader) == RequestHeader(
        api_key=18, api_version=99, correlation_id=7, client_id="c"
    )
    assert reader.remaining == 6


def test_a_header_of_an_unknown_api_is_read_up_to_the_client_id() -> None:
    reader = Reader(b"\x7f\xff\x00\x03\x00\x00\x00\x07" + CLIENT_ID + b"body")
    assert decode_request_header(reader).client_id == "c"
    assert reader.remaining == 4


@pytest.mark.parametrize(
    ("data", "client_id"),
    [
        (b"caf\xc3\xa9", "café"),
        (b"caf\xe9", "caf\ufffd"),
        (b"\xff" * 32_767, "\ufffd" * 10_922),
        (b"", ""),
    ],
)
def test_an_invalid_utf_8_client_id_is_read_like_kafka_does(data: bytes, client_id: str) -> None:
    raw = struct.pack(">hhih", 18, 0, 1, len(data)) + data
    header = decode_request_header(Reader(raw))
    assert header.client_id == client_id
    assert decode_request_header(Reader(encode_request_header(header))) == header


@pytest.mark.parametrize("length", [-1, -2, -32_768])
def test_a_client_id_with_a_negative_length_is_null(length: int) -> None:
    assert decode_request_header(Reader(struct.pack(">hhih", 18, 0, 1, length))).client_id is None


@pytest.mark.parametrize("tags", [b"\x80\x00", b"\x81\x00\x05\x81\x80\x00a", RAW_TAGS])
def test_the_size_of_a_header_is_known_when_its_last_byte_is_there(tags: bytes) -> None:
    header = START + CLIENT_ID + tags
    assert request_header_size(header + b"body", 2) == len(header)
    for length in range(len(header)):
        assert length < request_header_size(header[:length], 2) <= len(header)


def test_too_many_tagged_fields_are_refused_at_their_count() -> None:
    with pytest.raises(WireError) as caught:
        request_header_size(START + CLIENT_ID + b"\x41", 2)
    assert caught.value.offset == len(START + CLIENT_ID)
    assert request_header_size(START + CLIENT_ID + b"\x40" + b"\x00\x00" * 64, 2) == 12 + 128
