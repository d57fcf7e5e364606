"""GetTelemetrySubscriptions and PushTelemetry through a session, with the real telemetry core."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from receiver.session import messages
from receiver.wire import api_keys
from receiver.wire.error_codes import ErrorCode
from receiver.wire.errors import WireError
from receiver.wire.uuid import ZERO_UUID, Uuid
from tests.testbed.scripted_broker import API_VERSIONS, CLUSTER_ID, METADATA, RANGES, framed, produce_frame
from tests.unit.session.support import (
    WHOLE,
    Wire,
    api_versions,
    correlation_id_of,
    get_subscriptions,
    push,
    read_api_versions,
    read_push,
    read_subscriptions,
)

Wiring = Callable[..., Wire]

PAYLOADS = Path(__file__).parents[2] / "data" / "payloads"
OTLP = (PAYLOADS / "franz-producer-okprefix-02.bin").read_bytes()


def subscribed(wire: Wire) -> tuple[Uuid, int]:
    """Get subscriptions as a new client does; return its instance id and subscription id."""
    response = read_subscriptions(wire.exchange(get_subscriptions()))
    assert response.error_code == ErrorCode.NONE
    assert response.requested_metrics == ("",)
    return response.client_instance_id, response.subscription_id


def test_a_client_gets_subscriptions_and_pushes(wire: Wire) -> None:
    instance, subscription_id = subscribed(wire)
    assert instance != ZERO_UUID
    answer = wire.exchange(push(instance, subscription_id, OTLP))
    assert read_push(answer) == ErrorCode.NONE
    ((header, outcome),) = wire.events.pushes
    assert header.correlation_id == 72
    assert outcome.push is not None
    assert wire.identity.client_instance_id == instance
    assert wire.identity.client_id == "raw"
    # The broker saw a tiny marker or two, and nothing of the telemetry.
    assert {request.api_key for request in wire.seen()} == {METADATA}
    assert all(len(request.data) < 40 for request in wire.seen())


def test_no_push_is_decided_before_the_markers_response(wire: Wire) -> None:
    wire.send(get_subscriptions())
    assert wire.awaits()
    assert wire.events.subscriptions == []
    assert wire.received() == []
    wire.answer()
    assert not wire.awaits()
    assert len(wire.events.subscriptions) == 1


def test_an_unauthenticated_push_is_not_accepted_when_the_broker_disconnects(wire: Wire) -> None:
    wire.send(push(ZERO_UUID, 1, OTLP))
    # The broker closes the connection instead of answering the marker: the session is not called
    # again.
    assert wire.awaits()
    assert wire.events.pushes == []


def test_a_push_during_authentication_is_refused(wire: Wire) -> None:
    # Between SaslHandshake and the end of authentication Kafka answers anything with
    # ILLEGAL_SASL_STATE; Metadata has no error code before version 13, only nothing in it.
    wire.send(get_subscriptions() + push(ZERO_UUID, 1, OTLP))
    for marker in wire.forwarded():
        wire.receive(framed(marker.data[4:8] + bytes(8) + b"\xff\xff" + b"\xff" * 4 + bytes(4)))
    got, pushed = wire.received()
    assert read_subscriptions(got).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert read_push(pushed) == ErrorCode.ILLEGAL_SASL_STATE
    assert wire.events.subscriptions == []
    assert wire.events.pushes == []
    assert [header.api_key for header in wire.events.unauthenticated] == [71, 72]
    assert wire.identity.client_instance_id is None


@pytest.mark.parametrize(
    ("metadata", "marker"),
    [
        ((0, 13), 3),
        ((0, 1), 1),
        ((0, 2), 2),
        ((2, 9), 3),
        ((4, 13), 4),
        ((9, 13), 9),
        ((12, 13), 12),
        ((13, 99), 13),
    ],
)
def test_the_markers_version_is_one_that_the_broker_has(
    wiring: Wiring, metadata: tuple[int, int], marker: int
) -> None:
    ranges = {**RANGES, METADATA: metadata}
    wire = wiring(ranges=ranges, learned=ranges, cluster_id=None)
    subscribed(wire)
    (seen,) = wire.seen()
    assert (seen.api_key, seen.api_version) == (METADATA, marker)
    assert wire.broker.known.broker.cluster_id == (CLUSTER_ID if marker >= 2 else None)


def test_a_cluster_other_than_the_configured_one_is_a_problem(wiring: Wiring) -> None:
    wire = wiring(cluster_id="configured")
    assert wire.broker.problem is None
    subscribed(wire)
    assert wire.broker.known.broker.cluster_id == CLUSTER_ID
    assert wire.broker.problem == (
        f"broker.cluster_id is configured, but the broker's cluster is {CLUSTER_ID}; set broker.cluster_id "
        f"to {CLUSTER_ID} or null, or correct the upstream"
    )


@pytest.mark.parametrize("key", [api_keys.GET_TELEMETRY_SUBSCRIPTIONS, api_keys.PUSH_TELEMETRY])
@pytest.mark.parametrize("version", [2, -1])
def test_a_version_that_is_not_offered_ends_the_connection(wire: Wire, key: int, version: int) -> None:
    request = get_subscriptions(version=version)
    with pytest.raises(WireError, match=f"version 0 to 1 .*found version {version}"):
        wire.send(request[:4] + key.to_bytes(2, "big") + request[6:])


def test_the_core_can_not_read_a_request_without_its_end(wire: Wire) -> None:
    request = get_subscriptions()
    wire.send((len(request) - 4 - 3).to_bytes(4, "big") + request[4:-3])
    wire.answer()
    assert "ClientInstanceId" in str(wire.malformed)


# -- order ---------------------------------------------------------------------------------------


def test_markers_of_long_client_ids_are_not_kept() -> None:
    tracemalloc.start()
    try:
        for number in range(100):
            assert len(messages.marker(f"{number}".ljust(32_000, "x"), 2, number)) > 32_000
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_local_answers_keep_their_order_among_the_brokers_responses(wire: Wire) -> None:
    instance, subscription_id = subscribed(wire)
    wire.clock.now += 10
    wire.send(
        produce_frame(1, b"first")
        + api_versions(3, 2)
        + produce_frame(3, b"not answered", acks=0)
        + push(instance, subscription_id, correlation_id=4)
        + produce_frame(5, b"last" * 1000)
        + get_subscriptions(instance, 6)
        + api_versions(99, 7)
    )
    wire.answer()
    answers = wire.received()
    assert [correlation_id_of(answer) for answer in answers] == [1, 2, 4, 5, 6, 7]
    assert answers[0].endswith(b"first")
    assert read_api_versions(answers[1], 3, 2).error_code == ErrorCode.NONE
    assert read_push(answers[2], 4) == ErrorCode.NONE
    assert answers[3].endswith(b"last" * 1000)
    assert read_subscriptions(answers[4], 6).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert read_api_versions(answers[5], 0, 7).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_telemetry_is_decided_in_the_order_of_the_requests(wire: Wire) -> None:
    instance, subscription_id = subscribed(wire)
    terminating = push(instance, subscription_id, correlation_id=1, terminating=True)
    wire.send(terminating + push(instance, subscription_id, correlation_id=2))
    wire.answer()
    first, second = wire.received()
    assert read_push(first, 1) == ErrorCode.NONE
    assert read_push(second, 2) == ErrorCode.INVALID_REQUEST  # its earlier push was a terminating one


# -- correlation ids -----------------------------------------------------------------------------


def test_a_marker_has_a_random_correlation_id_that_no_client_uses(wiring: Wiring) -> None:
    wire = wiring()
    wire.random = [0, 2**31 - 1, 5]
    wire.send(get_subscriptions() + api_versions(3) + api_versions(99))
    assert [request.correlation_id for request in wire.forwarded()] == [-1, -(2**31), -6]
    wire.answer()
    assert [correlation_id_of(answer) for answer in wire.received()] == [71, 1, 1]


def test_a_repeated_correlation_id_cannot_forge_the_markers_response(wire: Wire) -> None:
    # A broker answers ApiVersions before authentication. If its answer could pass for the marker's,
    # a client that is not authenticated could push.
    wire.send(get_subscriptions(correlation_id=5) + api_versions(0, 5) + produce_frame(5, b"echo"))
    marker, asked, produced = wire.forwarded()
    assert len({marker.correlation_id, asked.correlation_id, produced.correlation_id}) == 3
    # Whatever is answered but the marker, nothing is decided.
    for request in (asked, produced):
        answer = wire.answers.to(request.data)
        assert answer is not None
        wire.receive(framed(answer))
    assert wire.events.subscriptions == []


def test_a_response_with_the_clients_correlation_id_is_not_the_markers(wire: Wire) -> None:
    wire.send(get_subscriptions(correlation_id=5))
    wire.receive(b"\0\0\0\x08" + (5).to_bytes(4, "big") + b"echo")
    assert wire.received() == [(5).to_bytes(4, "big") + b"echo"]
    assert wire.events.subscriptions == []
    wire.answer()
    assert read_subscriptions(wire.received()[0], 5).error_code == ErrorCode.NONE


# -- too long ------------------------------------------------------------------------------------


def test_a_push_over_the_limit_is_too_large_and_its_excess_is_not_kept(wiring: Wiring) -> None:
    wire = wiring(max_push_bytes=4096)
    instance, subscription_id = subscribed(wire)
    answer = wire.exchange(push(instance, subscription_id, bytes(4097)))
    assert read_push(answer) == ErrorCode.TELEMETRY_TOO_LARGE


def test_a_push_over_the_buffer_limit_is_dropped_as_it_arrives() -> None:
    wire = Wire(arrival=WHOLE, max_push_bytes=4096)
    instance, subscription_id = subscribed(wire)
    request = push(instance, subscription_id, bytes(1_000_000))
    tracemalloc.start()
    try:
        for start in range(0, len(request), 10_000):
            wire.send(request[start : start + 10_000])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * (4096 + 131_072)
    wire.send(produce_frame(3, b"goes on"))
    wire.answer()
    too_large, echo = wire.received()
    assert read_push(too_large) == ErrorCode.TELEMETRY_TOO_LARGE
    assert echo.endswith(b"goes on")


def test_the_core_can_not_read_a_push_cut_within_its_limit() -> None:
    # Tagged fields in the header can fill the room around the metrics: what is left of them is no
    # push.
    wire = Wire(arrival=WHOLE, max_push_bytes=4096)
    whole = push(Uuid(b"\1" * 16), 1, bytes(4000))[4:]
    client_id_end = 10 + 3
    size = 133_000
    tag = b"\x01\x07" + bytes([size & 0x7F | 0x80, (size >> 7) & 0x7F | 0x80, size >> 14]) + bytes(size)
    data = whole[:client_id_end] + tag + whole[client_id_end + 1 :]
    wire.send(len(data).to_bytes(4, "big") + data)
    wire.answer()
    assert "more than 4096 bytes of metrics" in str(wire.malformed)


@pytest.mark.parametrize("key", [api_keys.SASL_HANDSHAKE, API_VERSIONS, api_keys.GET_TELEMETRY_SUBSCRIPTIONS])
def test_other_watched_requests_have_a_smaller_limit(key: int) -> None:
    wire = Wire(arrival=WHOLE, max_push_bytes=4096)
    request = get_subscriptions()[4:] + bytes(200_000)
    with pytest.raises(WireError, match="at most 135168 bytes of"):
        wire.send(len(request).to_bytes(4, "big") + key.to_bytes(2, "big") + request[2:])


def test_the_brokers_throttle_time_is_passed_on() -> None:
    """The broker throttles the client for the marker (KIP-124), as for any request of its own."""
    wire = Wire()
    wire.answers.throttle_time_ms = 1234
    got = read_subscriptions(wire.exchange(get_subscriptions()))
    assert (got.throttle_time_ms, got.error_code) == (1234, ErrorCode.NONE)
    wire.answers.throttle_time_ms = 0
    again = read_subscriptions(wire.exchange(get_subscriptions(got.client_instance_id)))
    assert again.throttle_time_ms == 0
