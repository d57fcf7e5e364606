"""Any conversation, cut anywhere: the client sees what a real broker would answer, in order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from receiver.session.exchanges.api_versions import OFFERED
from receiver.settings.limits import LimitsSettings
from receiver.telemetry.control.limits import Limits
from receiver.wire.errors import WireError
from receiver.wire.headers import request_header_version
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import ZERO_UUID, Uuid
from tests.exploration import examples
from tests.testbed.scripted_broker import (
    API_VERSIONS,
    METADATA,
    RANGES,
    SASL_HANDSHAKE,
    Answers,
    framed,
    parse,
    produce_frame,
    request_frame,
    split,
)
from tests.unit.session.support import (
    Wire,
    api_versions,
    connection,
    encode_push_answer,
    encode_subscriptions_answer,
    get_subscriptions,
    push,
    sasl_handshake,
    telemetry_core,
)

INSTANCES = [Uuid(bytes(15) + bytes([n])) for n in (0, 1, 7, 8)]
WATCHED = {SASL_HANDSHAKE, 36, API_VERSIONS, 71, 72}

correlation_ids = st.integers(0, 2**31 - 1) | st.integers(0, 3)
instances = st.sampled_from(INSTANCES)
passed = st.builds(
    lambda correlation_id, payload, acks: produce_frame(correlation_id, payload, acks=acks),
    correlation_ids,
    st.binary(max_size=300),
    st.sampled_from([-1, 0, 1]),
) | st.builds(
    # A header that has tagged fields has none of them: of the first request the header is read.
    lambda key, version, correlation_id, body: request_frame(
        key, version, correlation_id, (b"\0" if request_header_version(key, version) == 2 else b"") + body
    ),
    st.integers(1, 100).filter(lambda key: key not in WATCHED | {METADATA}),
    st.integers(0, 20),
    correlation_ids,
    st.binary(max_size=60),
)
watched = (
    st.builds(api_versions, st.integers(0, 7), correlation_ids)
    | st.builds(get_subscriptions, instances, correlation_ids)
    | st.builds(
        lambda instance, correlation_id, terminating: push(
            instance, 7, correlation_id=correlation_id, terminating=terminating
        ),
        instances,
        correlation_ids,
        st.booleans(),
    )
    | st.builds(lambda correlation_id: sasl_handshake(1, correlation_id), correlation_ids)
)
conversations = st.lists(passed | watched, max_size=25)
cuts = st.lists(st.integers(1, 400), max_size=40)


def pieces(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    found = []
    for size in sizes:
        found.append(data[:size])
        data = data[size:]
    return [piece for piece in [*found, data] if piece]


def expected_answers(requests: Sequence[bytes], ranges: dict[int, tuple[int, int]]) -> list[bytes]:
    """What a broker that knows telemetry itself would answer, made without a session."""
    wire = Wire()  # for its clock, so that both cores see the same time
    core = telemetry_core(Limits(LimitsSettings()))
    asker = connection()
    offered = Answers(ranges={**ranges, **OFFERED})
    answers = []
    for request in requests:
        parsed = parse(request[4:])
        answer: bytes | None
        if parsed.api_key == 71:
            get = GetTelemetrySubscriptionsRequest(client_instance_id=Uuid(parsed.body[1:17]))
            answer = encode_subscriptions_answer(
                parsed.correlation_id, core.get_telemetry_subscriptions(asker, get, now=wire.clock.now)
            )
        elif parsed.api_key == 72:
            sent = PushTelemetryRequest(
                client_instance_id=Uuid(parsed.body[1:17]),
                subscription_id=7,
                terminating=parsed.body[21] == 1,
            )
            answer = encode_push_answer(
                parsed.correlation_id,
                core.push_telemetry(asker, sent, now=wire.clock.now, received_at_ns=wire.clock.wall_ns()),
            )
        else:
            answer = offered.to(request[4:])
        if answer is not None:
            answers.append(answer)
    return answers


@settings(deadline=None, max_examples=examples(300))
@given(
    requests=conversations,
    request_cuts=cuts,
    answer_cuts=cuts,
    greatest=st.integers(0, 5),
    batches=st.lists(st.booleans(), min_size=50, max_size=50),
)
def test_the_client_sees_what_a_broker_would_answer(
    requests: list[bytes],
    request_cuts: list[int],
    answer_cuts: list[int],
    greatest: int,
    batches: list[bool],
) -> None:
    ranges = {**RANGES, API_VERSIONS: (0, greatest)}
    wire = Wire(ranges=ranges, learned=ranges)
    broker = wire.answers
    at_broker: list[bytes] = []
    waiting = bytearray()
    answer_sizes = iter(answer_cuts)

    def broker_answers() -> None:
        """Answer what is there whole, and deliver the answers cut anywhere."""
        end = _whole(waiting)
        answers = bytearray()
        for data in split(bytes(waiting[:end])):
            at_broker.append(data)
            if (answer := broker.to(data)) is not None:
                answers += framed(answer)
        del waiting[:end]
        sizes = [size for _, size in zip(range(5), answer_sizes, strict=False)]
        for piece in pieces(bytes(answers), sizes):
            wire.receive(piece)

    for piece, answer_now in zip(pieces(b"".join(requests), request_cuts), [*batches, True], strict=False):
        wire.send(piece)
        waiting += wire.to_broker
        wire.to_broker.clear()
        if answer_now:
            broker_answers()
    broker_answers()

    assert not waiting
    assert split(bytes(wire.to_client)) == expected_answers(requests, ranges)
    # What passes reached the broker as it was, in its place.
    assert [
        _without_correlation_id(data)
        for data in at_broker
        if parse(data).api_key not in {API_VERSIONS, METADATA}
    ] == [
        _without_correlation_id(request[4:])
        for request in requests
        if parse(request[4:]).api_key not in {API_VERSIONS, 71, 72}
    ]
    # Telemetry is not there where nothing was in flight; what is there stands where the client sent
    # it.
    places = iter([_place(request[4:]) for request in requests])
    assert all(_place(data) in places for data in at_broker)
    assert not wire.awaits()
    assert wire.session.due == 0


def _whole(stream: bytearray) -> int:
    """Where the last whole frame of the stream ends."""
    end = 0
    while len(stream) >= end + 4 and len(stream) >= (
        following := end + 4 + int.from_bytes(stream[end : end + 4], "big")
    ):
        end = following
    return end


def _place(data: bytes) -> str:
    """Return the kind of a request; the broker must see each kind in the client's order."""
    kinds = {API_VERSIONS: "api versions", METADATA: "telemetry", 71: "telemetry", 72: "telemetry"}
    return kinds.get(parse(data).api_key, "passed")


@settings(deadline=None, max_examples=examples(300))
@given(data=st.binary(max_size=400), sizes=cuts, requests=conversations)
def test_no_bytes_break_a_session(data: bytes, sizes: list[int], requests: list[bytes]) -> None:
    """Garbage, alone or after requests, passes or raises the one typed error."""
    for stream in (data, b"".join(requests) + data):
        for direction in (_requests, _responses):
            direction(stream, sizes)


def _requests(stream: bytes, sizes: Sequence[int]) -> None:
    _feed(Wire().send, stream, sizes)


def _responses(stream: bytes, sizes: Sequence[int]) -> None:
    wire = Wire()
    wire.send(api_versions(3) + get_subscriptions(ZERO_UUID))
    awaited = parse(split(bytes(wire.to_broker))[0]).correlation_id
    _feed(wire.receive, stream, sizes)
    wire = Wire()
    wire.send(api_versions(3) + get_subscriptions(ZERO_UUID))
    _feed(wire.receive, framed(awaited.to_bytes(4, "big", signed=True) + stream), sizes)


def _feed(take: Callable[[bytes], None], stream: bytes, sizes: Sequence[int]) -> None:
    with contextlib.suppress(WireError):
        for piece in pieces(stream, sizes):
            take(piece)


def _without_correlation_id(request: bytes) -> bytes:
    """SASL and delegation token requests pass under a correlation id of the session."""
    return request[:4] + request[8:] if parse(request).api_key in {SASL_HANDSHAKE, 38, 41} else request
