"""Messages of the link: each arrives as it was sent, and other bytes are refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.brokers.listener_broker import KnownBroker
from receiver.link.messages import (
    Answer,
    BrokerKnown,
    Call,
    Closed,
    ConfigRequest,
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
    call_message,
    config_call,
    config_message,
    decode_core_message,
    decode_relay_message,
    encode,
    telemetry_call,
)
from receiver.session.effects import ConfigCall, TelemetryCall
from receiver.telemetry.identity import Broker, ClientIdentity
from receiver.wire.api_keys import DESCRIBE_CONFIGS, GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY
from receiver.wire.headers import RequestHeader
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import Uuid

text = st.text(max_size=20)
number = st.integers(0, 2**53)
amount = st.floats(0, 1e15)
time = st.floats(allow_nan=False)
int16, int32 = st.integers(-(2**15), 2**15 - 1), st.integers(-(2**31), 2**31 - 1)
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
        int16,
        int16,
        int32,
        st.none() | text,
        st.none() | uuid,
        uuid,
        int32,
        st.booleans(),
        int16,
        st.none() | st.binary(max_size=50),
    ),
    st.builds(Problems, many(text)),
    st.builds(BrokerKnown, text, known_broker),
    st.builds(TokenOwner, text, text),
    st.builds(
        Report,
        many(st.tuples(text, text, text, amount, time)),
        many(st.tuples(text, many(text), amount)),
    ),
    st.builds(Statistics, number, time, number, time, number, many(st.tuples(text, text, time))),
)
CORE_MESSAGES: st.SearchStrategy[CoreMessage] = st.one_of(
    st.builds(Answer, number, st.binary(max_size=50), st.booleans()),
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
        assert decode(encode(message)) == message


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
    call = [3, 1, 2, GET_TELEMETRY_SUBSCRIPTIONS, 0, 5, None, None, instance]
    with pytest.raises(LinkError):
        decode_relay_message(msgspec.msgpack.encode(call))


@given(
    int16,
    int32,
    st.none() | text,
    st.none() | uuid,
    uuid,
    int32,
    st.booleans(),
    int16,
    st.binary(max_size=50),
)
def test_a_push_arrives_as_the_call_it_was(
    version: int,
    correlation_id: int,
    client_id: str | None,
    header_instance: Uuid | None,
    instance: Uuid,
    subscription_id: int,
    terminating: bool,
    compression: int,
    metrics: bytes,
) -> None:
    header = RequestHeader(
        api_key=PUSH_TELEMETRY,
        api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
        client_instance_id=header_instance,
    )
    push = PushTelemetryRequest(
        client_instance_id=instance,
        subscription_id=subscription_id,
        terminating=terminating,
        compression_type=compression,
        metrics=memoryview(metrics),
    )
    sent = call_message(3, 9, TelemetryCall(4, header, push))
    message = decode_relay_message(encode(sent))
    assert isinstance(message, Call)
    assert message.number == 3
    assert telemetry_call(message) == TelemetryCall(
        9,
        header,
        PushTelemetryRequest(
            client_instance_id=instance,
            subscription_id=subscription_id,
            terminating=terminating,
            compression_type=compression,
            metrics=metrics,
        ),
    )


def test_a_get_arrives_as_the_call_it_was() -> None:
    header = RequestHeader(
        api_key=GET_TELEMETRY_SUBSCRIPTIONS,
        api_version=0,
        correlation_id=-1,
        client_id="c",
        client_instance_id=None,
    )
    call = TelemetryCall(4, header, GetTelemetrySubscriptionsRequest(client_instance_id=Uuid(bytes(16))))
    message = decode_relay_message(encode(call_message(3, 4, call)))
    assert isinstance(message, Call)
    assert telemetry_call(message) == call


def test_a_call_about_configs_arrives_as_it_was() -> None:
    header = RequestHeader(api_key=DESCRIBE_CONFIGS, api_version=4, correlation_id=-7)
    call = ConfigCall(4, header, b"body")
    message = decode_relay_message(encode(config_message(3, 4, call)))
    assert isinstance(message, ConfigRequest)
    assert message.number == 3
    assert config_call(message) == call
