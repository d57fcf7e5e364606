"""KIP-1313 through a session: the client instance id, and the translation of all RPCs."""

from __future__ import annotations

import struct

import pytest

from receiver.brokers.upstream import Upstream
from receiver.session.exchanges import watched_keys
from receiver.session.exchanges.refusal import error_body
from receiver.session.exchanges.refused_entries import MAX_ENTRIES
from receiver.telemetry.identity import MAX_TEXT_CHARS
from receiver.wire.error_codes import ErrorCode
from receiver.wire.errors import WireError
from receiver.wire.header_versions import FIRST_WITH_HEADER_V3, LATEST
from receiver.wire.headers import request_header_version, response_header_version
from receiver.wire.k18_api_versions import ApiVersionsRequest, encode_request
from receiver.wire.k71_get_telemetry_subscriptions import decode_response
from receiver.wire.primitives import Reader
from receiver.wire.uuid import ZERO_UUID, Uuid
from receiver.wire.writer import Writer
from tests.testbed.scripted_broker import framed, request_frame, split
from tests.unit.session.support import (
    ARRIVALS,
    BYTE_BY_BYTE,
    WHOLE,
    Wire,
    api_versions,
    correlation_id_of,
    get_subscriptions,
    listed_ranges,
    read_api_versions,
    read_push,
    read_subscriptions,
    sasl_handshake,
)

MINE, ANOTHER = Uuid(bytes(15) + b"\7"), Uuid(bytes(15) + b"\x08")
PRODUCE, FETCH, HEARTBEAT, SASL_AUTHENTICATE, OFFSET_DELETE, GET, PUSH = 0, 1, 12, 36, 47, 71, 72
TOPIC = bytes(range(16))

#: The version range of every RPC in Kafka 4.4; the lowest version does not matter here.
KAFKA_4_4 = {key: (0, latest) for key, latest in LATEST.items()}


def v3_frame(
    api_key: int,
    instance: Uuid,
    *,
    body: bytes = b"",
    version: int | None = None,
    correlation_id: int = 5,
    client_id: str | None = "raw",
) -> bytes:
    """A request with header v3, in KIP-1313's version of its RPC."""
    version = FIRST_WITH_HEADER_V3[api_key] if version is None else version
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id.encode()
    head = struct.pack(">hhi", api_key, version, correlation_id) + name + instance + b"\0"
    return framed(head + body)


def get_v1(instance: Uuid, *, correlation_id: int = GET, client_id: str | None = "raw") -> bytes:
    return v3_frame(GET, instance, body=b"\0", correlation_id=correlation_id, client_id=client_id)


def push_v1(instance: Uuid, subscription_id: int, *, correlation_id: int = PUSH) -> bytes:
    body = struct.pack(">i?bB", subscription_id, False, 0, 1) + b"\0"
    return v3_frame(PUSH, instance, body=body, correlation_id=correlation_id)


def api_versions_v6(instance: Uuid, *, correlation_id: int = 1) -> bytes:
    body = encode_request(ApiVersionsRequest(client_software_name="new", client_software_version="5.0"), 5)
    return v3_frame(18, instance, body=body, version=6, correlation_id=correlation_id)


def translating(arrival: str = WHOLE) -> Wire:
    return Wire(arrival=arrival, translates=True, ranges=KAFKA_4_4, learned=KAFKA_4_4)


def get_v1_error(answer: bytes) -> int:
    return decode_response(Reader(answer[5:]), 1).error_code


# -- origin of the id: the table of KIP-1313, "Alignment of identifiers" ---------------------------


@pytest.mark.parametrize("arrival", ARRIVALS)
def test_an_old_client_is_assigned_an_id_and_keeps_it(arrival: str) -> None:
    wire = Wire(arrival=arrival)
    assigned = read_subscriptions(wire.exchange(get_subscriptions(ZERO_UUID))).client_instance_id
    assert assigned != ZERO_UUID
    assert wire.identity.client_instance_id == assigned
    wire.clock.now += 10
    again = read_subscriptions(wire.exchange(get_subscriptions(assigned)))
    assert again.error_code == ErrorCode.NONE
    assert len(wire.telemetry.instances) == 1


def test_a_new_client_names_its_own_id_in_version_0() -> None:
    wire = Wire()
    answer = read_subscriptions(wire.exchange(get_subscriptions(MINE)))
    assert answer.error_code == ErrorCode.NONE
    # Kafka echoes it where the schema says zero; clients take both.
    assert answer.client_instance_id == MINE
    assert wire.identity.client_instance_id == MINE


@pytest.mark.parametrize("arrival", ARRIVALS)
def test_a_new_client_names_its_own_id_in_the_header_in_version_1(arrival: str) -> None:
    wire = Wire(arrival=arrival)
    answer = wire.exchange(get_v1(MINE))
    response = decode_response(Reader(answer[5:]), 1)
    assert response.error_code == ErrorCode.NONE
    assert wire.identity.client_instance_id == MINE
    assert read_push(wire.exchange(push_v1(MINE, response.subscription_id))) == ErrorCode.NONE
    assert [instance.id for instance in wire.telemetry.instances] == [MINE]


def test_both_versions_are_offered_in_front_of_any_broker() -> None:
    ranges = listed_ranges(read_api_versions(Wire().exchange(api_versions(3)), 3))
    assert (ranges[GET], ranges[PUSH], ranges[18]) == ((0, 1), (0, 1), (0, 5))


# -- one id for a connection's life --------------------------------------------------------------


@pytest.mark.parametrize("arrival", ARRIVALS)
@pytest.mark.parametrize(
    ("first", "second", "refused"),
    [
        (get_v1(MINE), get_v1(MINE), False),
        (get_v1(MINE), get_v1(ANOTHER), True),
        (get_v1(MINE), get_v1(ZERO_UUID), True),
        (get_v1(MINE), get_subscriptions(MINE), True),
        (get_v1(MINE), api_versions(4), False),
        (get_v1(MINE), api_versions(99), False),
        (get_v1(MINE), sasl_handshake(1), False),
        (get_v1(MINE), request_frame(HEARTBEAT, 4, 9, b"\0"), False),
        (get_subscriptions(MINE), get_v1(ANOTHER), False),
        (api_versions(3), get_v1(MINE), False),
    ],
)
def test_the_id_of_the_first_request_holds_for_the_connection(
    arrival: str, first: bytes, second: bytes, refused: bool
) -> None:
    wire = Wire(arrival=arrival)
    wire.exchange(first)
    wire.exchange(second)
    assert bool(wire.events.refused_instances) is refused


@pytest.mark.parametrize("arrival", [WHOLE, BYTE_BY_BYTE])
@pytest.mark.parametrize(
    ("second", "refused"),
    [
        (v3_frame(HEARTBEAT, MINE), False),
        (v3_frame(HEARTBEAT, ANOTHER), True),
        (v3_frame(HEARTBEAT, ZERO_UUID), True),
        (request_frame(HEARTBEAT, 4, 9, b"\0"), True),
        (api_versions(4), True),
        (api_versions(99), False),
        (sasl_handshake(1), False),
        (v3_frame(SASL_AUTHENTICATE, ANOTHER, body=b"\1\0"), True),
        (get_subscriptions(MINE), True),
    ],
)
def test_it_holds_for_every_rpc_that_was_offered_with_it(arrival: str, second: bytes, refused: bool) -> None:
    wire = translating(arrival)
    wire.exchange(api_versions_v6(MINE))
    wire.exchange(second)
    assert bool(wire.events.refused_instances) is refused


def test_a_first_request_with_the_zero_id_is_refused_and_binds_nothing() -> None:
    wire = Wire()
    assert get_v1_error(wire.exchange(get_v1(ZERO_UUID))) == ErrorCode.INVALID_REQUEST
    assert not len(wire.telemetry.instances)
    assert get_v1_error(wire.exchange(get_v1(MINE))) == ErrorCode.NONE
    assert wire.identity.client_instance_id == MINE
    assert get_v1_error(wire.exchange(get_v1(ZERO_UUID))) == ErrorCode.INVALID_REQUEST
    assert get_v1_error(wire.exchange(get_v1(ANOTHER))) == ErrorCode.INVALID_REQUEST


def test_the_headers_of_a_client_that_sends_only_zero_ids_are_not_all_read() -> None:
    wire = Wire()
    for _ in range(8):
        wire.exchange(get_v1(ZERO_UUID))
    assert not wire.session.requests.reads_all_headers


def test_no_id_is_handed_out_to_a_zero_id_behind_an_old_first_request() -> None:
    wire = Wire()
    wire.exchange(api_versions(3))
    assert get_v1_error(wire.exchange(get_v1(ZERO_UUID))) == ErrorCode.INVALID_REQUEST
    assert not len(wire.telemetry.instances)


def test_the_refusal_has_the_layout_and_the_order_of_the_request() -> None:
    wire = translating()
    wire.exchange(api_versions_v6(MINE))
    wire.send(get_v1(MINE, correlation_id=3))
    wire.send(v3_frame(HEARTBEAT, ANOTHER, correlation_id=9) + get_v1(MINE, correlation_id=4))
    wire.answer()
    ours, heartbeat, last = wire.received()
    assert [correlation_id_of(answer) for answer in (ours, heartbeat, last)] == [3, 9, 4]
    assert heartbeat == struct.pack(">ib", 9, 0) + struct.pack(">ih", 0, ErrorCode.INVALID_REQUEST) + b"\0"
    assert HEARTBEAT not in {request.api_key for request in wire.seen()}


def produce(partitions: int = 1, *, acks: int = -1, records: bytes = b"") -> bytes:
    """A Produce request of another instance: one topic, and some partitions with records."""
    length = Writer()
    length.compact_array_length(partitions)
    kept = Writer()
    kept.compact_bytes_field(records)
    each = b"".join(struct.pack(">i", index) + kept.take() + b"\0" for index in range(partitions))
    body = b"\0" + struct.pack(">hi", acks, 1000) + b"\2" + TOPIC + length.take() + each + b"\0\0"
    return v3_frame(PRODUCE, ANOTHER, body=body, correlation_id=8)


@pytest.mark.parametrize("arrival", [WHOLE, BYTE_BY_BYTE])
def test_a_refused_request_is_answered_for_each_of_its_entries(arrival: str) -> None:
    wire = translating(arrival)
    wire.exchange(api_versions_v6(MINE))
    answer = wire.exchange(produce(2, records=b"x" * 9000))
    refused = struct.pack(">ih", 0, ErrorCode.INVALID_REQUEST) + b"\xff" * 24 + b"\1\0\0"
    second = struct.pack(">i", 1) + refused[4:]
    assert answer == struct.pack(">ib", 8, 0) + b"\2" + TOPIC + b"\3" + refused + second + b"\0" + bytes(5)
    assert correlation_id_of(wire.exchange(v3_frame(HEARTBEAT, MINE))) == 5
    assert PRODUCE not in {request.api_key for request in wire.seen()}
    assert len(wire.events.refused_instances) == 1


@pytest.mark.parametrize(
    "request_",
    [
        produce(acks=0),  # has no response
        produce(MAX_ENTRIES + 1),
        produce(records=b"x" * 1_000_000),
        v3_frame(PRODUCE, ANOTHER),
        request_frame(PRODUCE, 12, 9, b""),
        request_frame(PRODUCE, 2, 9, b"\0\1" + bytes(8)),
    ],
    ids=["without a response", "with many entries", "long", "malformed", "malformed v12", "unknown v2"],
)
def test_a_refused_request_that_cannot_be_answered_ends_the_connection(request_: bytes) -> None:
    wire = translating()
    wire.exchange(api_versions_v6(MINE))
    with pytest.raises(WireError):
        wire.send(request_)


OLDER = [
    (key, version)
    for key, latest in LATEST.items()
    for version in range(latest)
    if error_body(key, version, ErrorCode.INVALID_REQUEST) is not None
]


def test_a_request_without_the_id_in_an_older_version_is_answered() -> None:
    assert len(OLDER) > 70
    for api_key, version in OLDER:
        wire = translating()
        wire.exchange(api_versions_v6(MINE))
        tagged_fields = b"\0" * (request_header_version(api_key, version) - 1)
        answer = wire.exchange(request_frame(api_key, version, 9, tagged_fields))
        body = error_body(api_key, version, ErrorCode.INVALID_REQUEST)
        assert body is not None
        assert answer == struct.pack(">i", 9) + b"\0" * response_header_version(api_key, version) + body
        assert len(wire.events.refused_instances) == 1
        assert correlation_id_of(wire.exchange(v3_frame(HEARTBEAT, MINE))) == 5


def test_an_older_version_is_answered_for_each_of_its_entries() -> None:
    wire = translating()
    wire.exchange(api_versions_v6(MINE))
    partitions = struct.pack(">iii", 1, 7, 3) + b"xyz"
    body = b"\xff\xff" + struct.pack(">hii", -1, 1000, 1) + b"\0\5topic" + partitions
    answer = wire.exchange(request_frame(PRODUCE, 3, 9, body))
    refused = struct.pack(">iih", 1, 7, ErrorCode.INVALID_REQUEST) + b"\xff" * 16
    assert answer == struct.pack(">ii", 9, 1) + b"\0\5topic" + refused + bytes(4)
    assert len(wire.events.refused_instances) == 1


# -- the client id of the first request ----------------------------------------------------------


def test_a_null_client_id_means_the_first_one() -> None:
    wire = Wire()
    wire.send(get_v1(MINE, client_id="orders") + get_v1(MINE, client_id=None))
    assert [marker.client_id for marker in wire.forwarded()] == ["orders", "orders"]
    assert wire.identity.client_id == "orders"


def test_the_first_client_id_may_be_that_of_an_unwatched_request() -> None:
    wire = Wire()
    wire.send(request_frame(HEARTBEAT, 4, 9, b"\0", client_id="orders"))
    assert wire.identity.client_id == "orders"
    wire.send(get_v1(MINE, client_id=None))
    assert wire.forwarded()[1].client_id == "orders"


def test_a_long_client_id_is_truncated_here_and_forwarded_whole() -> None:
    wire = Wire()
    long = "x" * 32_767
    wire.send(get_v1(MINE, client_id=long) + get_v1(MINE, client_id=None))
    assert [marker.client_id for marker in wire.forwarded()] == [long, "x" * MAX_TEXT_CHARS]
    assert wire.identity.client_id == "x" * MAX_TEXT_CHARS


# -- all RPCs in front of a broker that lacks header v3 ------------------------------------------


def test_nothing_is_translated_unless_configured() -> None:
    wire = Wire(ranges=KAFKA_4_4, learned=KAFKA_4_4)
    assert read_api_versions(wire.exchange(api_versions_v6(MINE)), 0).error_code == 35
    assert listed_ranges(read_api_versions(wire.exchange(api_versions(4)), 4))[FETCH] == KAFKA_4_4[FETCH]


def test_every_rpc_but_sasl_handshake_is_offered_with_header_v3() -> None:
    wire = translating()
    response = read_api_versions(wire.exchange(api_versions_v6(MINE)), 5)
    assert listed_ranges(response) == {
        key: (0, latest if key == 17 else latest + 1) for key, latest in LATEST.items()
    }
    assert wire.identity.client_software_name == "new"
    assert wire.identity.client_instance_id == MINE


@pytest.mark.parametrize("greatest", range(6))
def test_the_first_request_carries_an_id_in_front_of_any_older_broker(greatest: int) -> None:
    older = KAFKA_4_4 | {18: (0, greatest)}
    for learned in ({}, older):
        wire = Wire(translates=True, ranges=older, learned=learned)
        response = read_api_versions(wire.exchange(api_versions_v6(MINE)), 5)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:  # the first of all learns the versions
            assert not learned
            response = read_api_versions(wire.exchange(api_versions_v6(MINE)), 5)
        assert (response.error_code, listed_ranges(response)[18]) == (ErrorCode.NONE, (0, 6))
        assert wire.seen()[-1].api_version == greatest
        assert wire.identity.client_instance_id == MINE
        assert wire.events.api_versions[-1][0].api_version == 6, "as the client sent it"
        assert get_v1_error(wire.exchange(get_v1(MINE))) == ErrorCode.NONE
        assert get_v1_error(wire.exchange(get_v1(ANOTHER))) == ErrorCode.INVALID_REQUEST


def test_an_rpc_is_not_offered_if_the_broker_lacks_the_version_before() -> None:
    older = KAFKA_4_4 | {FETCH: (4, 17)}
    wire = Wire(translates=True, ranges=older, learned=older)
    ranges = listed_ranges(read_api_versions(wire.exchange(api_versions_v6(MINE)), 5))
    assert ranges[FETCH] == (4, 17)
    assert ranges[HEARTBEAT] == (0, 5)


@pytest.mark.parametrize("arrival", [WHOLE, BYTE_BY_BYTE])
@pytest.mark.parametrize("api_key", FIRST_WITH_HEADER_V3.keys() - watched_keys(Upstream()) - {OFFSET_DELETE})
def test_the_broker_gets_the_version_before_without_the_id_and_with_the_client_id(
    arrival: str, api_key: int
) -> None:
    wire = translating(arrival)
    wire.exchange(api_versions_v6(MINE))
    body = bytes(range(200)) * 3
    wire.send(v3_frame(api_key, MINE, body=body, client_id=None, correlation_id=77))
    (request,) = wire.forwarded()
    assert (request.api_key, request.api_version) == (api_key, LATEST[api_key])
    assert (request.correlation_id, request.client_id, request.body) == (77, "raw", b"\0" + body)


def test_a_login_is_watched_in_kip_1313_s_version_too() -> None:
    wire = translating()
    wire.exchange(api_versions_v6(MINE))
    wire.exchange(sasl_handshake(1))
    wire.send(v3_frame(SASL_AUTHENTICATE, MINE, body=b"\x0d\0alice\0secre\0"))
    (request,) = wire.forwarded()
    assert (request.api_key, request.api_version, request.client_id) == (SASL_AUTHENTICATE, 2, "raw")
    assert request.body == b"\0\x0d\0alice\0secre\0"


@pytest.mark.parametrize("arrival", [WHOLE, BYTE_BY_BYTE])
def test_offset_delete_is_translated_to_version_0_and_back(arrival: str) -> None:
    wire = translating(arrival)
    wire.exchange(api_versions_v6(MINE))
    v1 = b"\x06group" + b"\x02" + b"\x06topic" + b"\x02" + struct.pack(">i", 3) + b"\0" + b"\0" + b"\0"
    v0 = b"\0\5group" + struct.pack(">i", 1) + b"\0\5topic" + struct.pack(">ii", 1, 3)
    wire.send(v3_frame(OFFSET_DELETE, MINE, body=v1, correlation_id=47))
    (request,) = wire.forwarded()
    assert (request.api_version, request.client_id, request.body) == (0, "raw", v0)
    answer_v0 = struct.pack(">hii", 0, 0, 1) + b"\0\5topic" + struct.pack(">iih", 1, 3, 0)
    wire.to_broker.clear()
    wire.receive(framed(struct.pack(">i", request.correlation_id) + answer_v0))
    (answer,) = wire.received()
    answer_v1 = struct.pack(">hi", 0, 0) + b"\x02\x06topic\x02" + struct.pack(">ih", 3, 0) + b"\0\0\0"
    assert answer == struct.pack(">ib", 47, 0) + answer_v1


def test_a_large_produce_holds_only_its_header() -> None:
    wire = translating()
    wire.exchange(api_versions_v6(MINE))
    whole = v3_frame(0, MINE, body=bytes(500_000))
    head, rest = whole[:60], memoryview(bytearray(whole[60:]))
    wire.send(head)
    assert wire.session.held_bytes == 0
    assert wire.session.requests.feed(rest) is rest


def test_requests_of_an_old_client_pass_unchanged_with_the_translation() -> None:
    wire = translating()
    wire.exchange(api_versions(3))
    sent = b"".join(request_frame(key, 0, key) for key in (HEARTBEAT, OFFSET_DELETE))
    wire.send(sent)
    assert [request.data for request in wire.forwarded()] == split(sent)
