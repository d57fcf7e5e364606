"""Messages of the link: each arrives as it was sent, and other bytes are refused."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from receiver.brokers.listener_broker import KnownBroker
from receiver.link.messages import (
    Answer,
    BrokerKnown,
    Call,
    Closed,
    CoreMessage,
    EndConnection,
    Hello,
    Identity,
    Levels,
    LinkError,
    Problems,
    RelayMessage,
    Report,
    ReportTaken,
    Statistics,
    StatisticsRequest,
    TokenOwner,
    decode_core_message,
    decode_relay_message,
    encode,
)
from receiver.telemetry.identity import Broker, ClientIdentity
from receiver.wire.headers import RequestHeader
from receiver.wire.uuid import Uuid

text = st.text(max_size=20)
number = st.integers(0, 2**53)
amount = st.floats(0, 1e15)
time = st.floats(allow_nan=False)
int32 = st.integers(-(2**31), 2**31 - 1)
uuid = st.binary(min_size=16, max_size=16).map(Uuid)
level = st.tuples(text, text, text, time)
broker = st.builds(Broker, id=st.none() | int32, cluster_id=st.none() | text)
known_broker = st.builds(KnownBroker, broker=broker, proven=st.booleans(), advertised=st.none() | text)
identity = st.builds(
    ClientIdentity,
    broker=broker,
    id=text,
    listener=text,
    security_protocol=text,
    source_address=text,
    source_port=number,
    since=time,
    client_id=text,
    client_software_name=text,
    client_software_version=text,
    client_instance_id=st.none() | uuid,
    principal=text,
    sasl_mechanism=st.none() | text,
)
header = st.builds(
    RequestHeader,
    api_key=int32,
    api_version=int32,
    correlation_id=int32,
    client_id=st.none() | text,
    client_instance_id=st.none() | uuid,
    tagged_fields=st.lists(st.tuples(number, st.binary(max_size=9)), max_size=2).map(tuple),
)


def many(of: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(of, max_size=4).map(tuple)


RELAY_MESSAGES: st.SearchStrategy[RelayMessage] = st.one_of(
    st.builds(Hello, number, text),
    st.builds(Identity, number, identity, st.booleans()),
    st.builds(Closed, number),
    st.builds(
        Call,
        number,
        number,
        header,
        st.binary(max_size=50),
        st.none() | number,
    ),
    st.builds(Problems, many(text)),
    st.builds(BrokerKnown, text, known_broker),
    st.builds(TokenOwner, text, text),
    st.builds(
        Report,
        many(st.tuples(text, text, text, amount, time)),
        many(st.tuples(text, many(text), amount)),
    ),
    st.builds(Statistics, number, time, number, time, number, many(st.tuples(text, text, time)), number),
)
CORE_MESSAGES: st.SearchStrategy[CoreMessage] = st.one_of(
    st.builds(
        Answer,
        number,
        st.binary(max_size=50),
        st.booleans(),
        st.none() | st.tuples(text, number, text),
        st.none() | uuid,
    ),
    st.builds(EndConnection, number, st.sampled_from(["limit", "internal_error"])),
    st.builds(Levels, many(level)),
    st.builds(ReportTaken, many(level)),
    st.builds(StatisticsRequest, number),
    st.builds(TokenOwner, text, text),
    st.builds(BrokerKnown, text, known_broker),
)


@given(RELAY_MESSAGES)
def test_what_a_relay_sends_arrives(message: RelayMessage) -> None:
    assert decode_relay_message(memoryview(encode(message))) == message


@given(CORE_MESSAGES)
def test_what_the_core_sends_arrives(message: CoreMessage) -> None:
    assert decode_core_message(memoryview(encode(message))) == message


def refused_or_valid(data: bytes) -> None:
    for decode in (decode_relay_message, decode_core_message):
        try:
            message = decode(data)
        except LinkError:
            continue
        again = encode(message)
        # Bytes, because a level may be NaN, which equals nothing.
        assert encode(decode(again)) == again


@example(encode(Levels((("", "", "", math.nan),))))
@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    refused_or_valid(data)


@given(RELAY_MESSAGES | CORE_MESSAGES, st.data())
def test_changed_messages_are_messages_or_refused(
    message: RelayMessage | CoreMessage, data: st.DataObject
) -> None:
    encoded = bytearray(encode(message))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] = data.draw(st.integers(0, 255))
    refused_or_valid(bytes(encoded))
    refused_or_valid(bytes(encoded[:at]))


@pytest.mark.parametrize("depth", [100, 100_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    refused_or_valid(b"\x91" * depth)
    with pytest.raises(LinkError):
        decode_relay_message(b"\x92\x04" + b"\x91" * depth)


@pytest.mark.parametrize("units", [-1.0, float("nan"), float("inf"), "many"])
def test_a_report_has_amounts_only(units: object) -> None:
    encoded = msgspec.msgpack.encode([7, [["principal", "a", "core_time", units, 0.0]], []])
    with pytest.raises(LinkError):
        decode_relay_message(encoded)
    with pytest.raises(LinkError):
        decode_relay_message(msgspec.msgpack.encode([7, [], [["core_unavailable", [], units]]]))


@pytest.mark.parametrize("instance", [b"", bytes(15), bytes(17)])
def test_a_uuid_has_sixteen_bytes(instance: bytes) -> None:
    with pytest.raises(LinkError):
        decode_core_message(msgspec.msgpack.encode([64, 1, b"", False, None, instance]))
