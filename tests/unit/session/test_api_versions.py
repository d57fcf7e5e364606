"""ApiVersions through a session: every row of the table in receiver.session.api_versions."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from receiver.telemetry.identity import MAX_TEXT_CHARS, UNKNOWN
from receiver.wire import api_keys
from receiver.wire.error_codes import ErrorCode
from tests.testbed.scripted_broker import API_VERSIONS, CLUSTER_ID, METADATA, NODE_ID, RANGES
from tests.unit.session.support import (
    Wire,
    api_versions,
    get_subscriptions,
    listed_ranges,
    read_api_versions,
    read_subscriptions,
)

Wiring = Callable[..., Wire]

OURS = {
    api_keys.API_VERSIONS: (0, 5),
    api_keys.GET_TELEMETRY_SUBSCRIPTIONS: (0, 1),
    api_keys.PUSH_TELEMETRY: (0, 1),
}
VERSIONS = range(6)


def broker_up_to(greatest: int) -> dict[int, tuple[int, int]]:
    return {**RANGES, API_VERSIONS: (0, greatest)}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_response_is_the_brokers_with_the_receivers_versions(wire: Wire, version: int) -> None:
    response = read_api_versions(wire.exchange(api_versions(version)), version)
    assert response.error_code == ErrorCode.NONE
    assert listed_ranges(response) == {**RANGES, **OURS}
    (forwarded,) = wire.seen()
    assert (forwarded.api_version, forwarded.client_id) == (version, "raw")
    ((header, error_code),) = wire.events.api_versions
    assert (header.api_version, error_code) == (version, ErrorCode.NONE)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("greatest", [0, 1, 2, 3, 4])
def test_an_older_broker_gets_its_own_version(wiring: Wiring, version: int, greatest: int) -> None:
    wire = wiring(ranges=broker_up_to(greatest), learned=broker_up_to(greatest))
    response = read_api_versions(wire.exchange(api_versions(version)), version)
    assert response.error_code == ErrorCode.NONE
    assert listed_ranges(response) == {**RANGES, **OURS}
    (forwarded,) = wire.seen()
    assert forwarded.api_version == min(version, greatest)
    software = b"\x00\x04raw\x041.0" if min(version, greatest) >= 3 else b""
    assert forwarded.body.startswith(software)


def test_the_request_reaches_the_broker_untouched_but_for_its_correlation_id(wire: Wire) -> None:
    request = api_versions(5, 4711, cluster_id=CLUSTER_ID, node_id=NODE_ID)
    wire.send(request)
    (forwarded,) = wire.forwarded()
    assert forwarded.correlation_id < 0
    assert forwarded.data == request[4:8] + struct.pack(">i", forwarded.correlation_id) + request[12:]


@pytest.mark.parametrize("version", [6, 99, 32767, -1])
def test_an_unknown_version_is_answered_with_the_range_in_a_v0_body(wire: Wire, version: int) -> None:
    answer = wire.exchange(api_versions(version))
    response = read_api_versions(answer, 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert listed_ranges(response) == {api_keys.API_VERSIONS: (0, 5)}
    assert not wire.session.closing
    assert wire.identity.client_software_name == UNKNOWN
    # The fallback of KIP-511 on the same connection.
    assert listed_ranges(read_api_versions(wire.exchange(api_versions(5)), 5)) == {**RANGES, **OURS}
    assert [code for _, code in wire.events.api_versions] == [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.NONE]


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize(
    ("name", "software_version"), [("", "1.0"), ("a b", "1.0"), ("raw", ""), ("raw", "ä")]
)
def test_a_wrong_software_is_refused_and_the_connection_closed(
    wire: Wire, version: int, name: str, software_version: str
) -> None:
    request = api_versions(version, client_software_name=name, client_software_version=software_version)
    response = read_api_versions(wire.exchange(request), version)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.api_keys == ()
    assert wire.session.closing
    assert wire.identity.client_software_name == UNKNOWN


@pytest.mark.parametrize("name", ["apache-kafka-java", "a.b-C.9", "-", "."])
def test_software_is_remembered_and_forwarded_to_the_broker(wire: Wire, name: str) -> None:
    wire.exchange(api_versions(3, client_software_name=name, client_software_version="4.4.0"))
    assert wire.identity.client_id == "raw"
    assert wire.identity.client_software_name == name
    assert wire.identity.client_software_version == "4.4.0"
    assert name.encode() in wire.seen()[0].body


def test_a_long_software_name_and_version_are_truncated(wire: Wire) -> None:
    wire.exchange(api_versions(3, client_software_name="n" * 32_766, client_software_version="1" * 32_766))
    assert wire.identity.client_software_name == "n" * MAX_TEXT_CHARS
    assert wire.identity.client_software_version == "1" * MAX_TEXT_CHARS


def test_software_may_come_late_and_stays(wire: Wire) -> None:
    wire.exchange(api_versions(0))
    assert wire.identity.client_software_name == UNKNOWN
    wire.exchange(api_versions(4, client_software_name="late"))
    wire.exchange(api_versions(0))
    assert wire.identity.client_software_name == "late"


@pytest.mark.parametrize("greatest", [0, 3, 4, 5])
@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error_code"),
    [
        (None, -1, ErrorCode.NONE),
        (CLUSTER_ID, NODE_ID, ErrorCode.NONE),
        (CLUSTER_ID, -1, ErrorCode.INVALID_REQUEST),
        (None, NODE_ID, ErrorCode.INVALID_REQUEST),
        (None, 99, ErrorCode.INVALID_REQUEST),
        (CLUSTER_ID, 99, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("another-cluster", NODE_ID, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", NODE_ID, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
def test_a_misrouted_client_is_told_to_rebootstrap_with_every_broker_version(
    wiring: Wiring, greatest: int, cluster_id: str | None, node_id: int, error_code: ErrorCode
) -> None:
    wire = wiring(ranges=broker_up_to(greatest), learned=broker_up_to(greatest))
    request = api_versions(5, cluster_id=cluster_id, node_id=node_id)
    response = read_api_versions(wire.exchange(request), 5)
    assert response.error_code == error_code
    assert bool(response.api_keys) == (error_code == ErrorCode.NONE)
    # KIP-1242: the connection stays usable.
    assert not wire.session.closing
    assert read_api_versions(wire.exchange(api_versions(5, 2)), 5, 2).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "refused",
    [api_versions(99), api_versions(5, node_id=NODE_ID), api_versions(3, client_software_name="a b")],
)
def test_a_refused_request_does_not_count_with_the_broker(wire: Wire, refused: bytes) -> None:
    # Before SaslHandshake a broker takes one ApiVersions of a version that it knows: a marker must
    # not use it up, or a client that falls back could not log in.
    wire.send(refused)
    (marker,) = wire.forwarded()
    assert (marker.api_key, marker.api_version) == (API_VERSIONS, 32_767)


def test_an_unknown_cluster_id_is_not_compared(wiring: Wiring) -> None:
    wire = wiring(ranges=broker_up_to(4), learned=broker_up_to(4), cluster_id=None)
    request = api_versions(5, cluster_id="any", node_id=NODE_ID)
    assert read_api_versions(wire.exchange(request), 5).error_code == ErrorCode.NONE


def test_an_unknown_brokers_versions_are_learned_from_its_response(wiring: Wiring) -> None:
    wire = wiring(learned=None, ranges={**broker_up_to(4), METADATA: (4, 8)})
    assert read_api_versions(wire.exchange(api_versions(3)), 3).error_code == ErrorCode.NONE
    assert wire.upstream.ranges == {METADATA: (4, 8), API_VERSIONS: (0, 4), 36: (0, 2)}
    assert read_subscriptions(wire.exchange(get_subscriptions())).error_code == ErrorCode.NONE
    assert wire.seen()[-1].api_version == 4  # the marker: the first that the broker has


def test_a_broker_that_was_rolled_back_makes_the_client_fall_back(wiring: Wiring) -> None:
    wire = wiring(learned=RANGES, ranges=broker_up_to(3))
    answer = wire.exchange(api_versions(5))
    response = read_api_versions(answer, 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert listed_ranges(response) == {API_VERSIONS: (0, 3)}
    # This client falls back, and so would a later client with version 5.
    for version in (3, 5):
        response = read_api_versions(wire.exchange(api_versions(version)), version)
        assert listed_ranges(response) == {**RANGES, **OURS}
    assert [request.api_version for request in wire.seen()] == [5, 3, 3]


def test_an_upgraded_broker_is_known_from_its_first_response(wiring: Wiring) -> None:
    wire = wiring(learned=broker_up_to(3), ranges=RANGES)
    for _ in range(2):
        assert read_api_versions(wire.exchange(api_versions(5)), 5).error_code == ErrorCode.NONE
    assert [request.api_version for request in wire.seen()] == [3, 5]


@pytest.mark.parametrize("asked", VERSIONS)
@pytest.mark.parametrize("greatest", VERSIONS)
def test_an_error_of_the_brokers_reaches_the_client_in_its_own_version(
    wiring: Wiring, asked: int, greatest: int
) -> None:
    wire = wiring(learned=broker_up_to(greatest))
    wire.send(api_versions(asked))
    (forwarded,) = wire.forwarded()
    array = b"\x01" if forwarded.api_version >= 3 else bytes(4)
    throttle = struct.pack(">i", 250) if forwarded.api_version >= 1 else b""
    tags = b"\0" if forwarded.api_version >= 3 else b""
    body = struct.pack(">ih", forwarded.correlation_id, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    frame = body + array + throttle + tags
    wire.receive(struct.pack(">i", len(frame)) + frame)
    response = read_api_versions(wire.received()[0], asked)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert response.throttle_time_ms == (250 if min(asked, forwarded.api_version) >= 1 else 0)


@pytest.mark.parametrize("translates", [False, True])
def test_unreadable_sasl_authenticate_versions_are_not_offered(translates: bool) -> None:
    ranges = {**RANGES, 36: (1, 4)}
    wire = Wire(ranges=ranges, learned=None, translates=translates)
    offered = listed_ranges(read_api_versions(wire.exchange(api_versions(3)), 3))
    assert offered[36] == (1, 2)


def test_without_a_plugin_telemetry_is_not_offered(wiring: Wiring) -> None:
    offering = {**RANGES, 71: (0, 0), 72: (0, 0)}  # a broker that takes telemetry itself
    for ranges in (RANGES, offering):
        wire = wiring(ranges=ranges, learned=ranges)
        wire.upstream.offers_telemetry = False
        for version in range(6):
            response = read_api_versions(wire.exchange(api_versions(version)), version)
            assert listed_ranges(response).keys() == ranges.keys() - {71, 72}
