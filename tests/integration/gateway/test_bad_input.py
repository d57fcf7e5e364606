"""The sidecar answers or closes clients that send malformed requests."""

from __future__ import annotations

import contextlib
import struct

import pytest

from tests.integration.gateway.support import (
    TIMEOUT_S,
    GatewaySidecar,
    Raw,
    all_that_came_of,
    error_of_push,
    get_subscriptions,
    push,
    read_get,
)
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import METADATA, ScriptedBroker, framed, produce_frame

MIB = 1 << 20
MAX_PUSH_BYTES = 1 * MIB


BAD_INPUT = {
    "garbage": b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "a negative length": struct.pack(">i", -1) + bytes(100),
    "the least length": struct.pack(">i", -(2**31)),
    "no length at all": struct.pack(">i", 0) + bytes(100),
    "a length too short for a header": struct.pack(">i", 7) + bytes(7),
    "2 GiB": struct.pack(">ihhi", 2**31 - 1, 0, 3, 1),
    "more than the limit": struct.pack(">ihhi", 104_857_601, 0, 3, 1),
    "a version of telemetry that is not offered": struct.pack(">ihhih", 27, 71, 2, 1, -1) + bytes(17),
    "a telemetry request that is cut": framed(get_subscriptions()[4:-5]),
    "a client id beyond the end": framed(struct.pack(">hhih", 71, 0, 1, 30_000) + b"short"),
    "an endless ApiVersions": struct.pack(">ihhih", 3 * MIB, 18, 3, 1, -1) + bytes(3 * MIB - 10),
    "an endless GetTelemetrySubscriptions": struct.pack(">ihhih", 3 * MIB, 71, 0, 1, -1)
    + bytes(3 * MIB - 10),
    "an endless SaslHandshake": struct.pack(">ihhih", 3 * MIB, 17, 1, 1, -1) + bytes(3 * MIB - 10),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_closes_its_connection_and_is_counted(
    gateway: GatewaySidecar, upstream: ScriptedBroker, name: str
) -> None:
    labels = {"listener": "CLIENT", "reason": "client_protocol_error"}
    before = gateway.value("protocol_errors_total", **labels)
    with Raw(gateway.port()) as raw:
        raw.exchange(produce_frame(1, b"before"))
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # closed while still sending
            raw.send(BAD_INPUT[name])
        assert raw.fate() in {"end", "reset"}
    assert gateway.value("protocol_errors_total", **labels) == before + 1
    assert gateway.value("connections_closed_total", **labels) == before + 1
    # The broker saw the connection's end, not the garbage. It admits a call before the core reads
    # it.
    markers = [METADATA] if name == "a telemetry request that is cut" else []
    assert all_that_came_of(upstream, b"before") == [0, *markers]


def test_bad_input_is_named_in_the_log(gateway: GatewaySidecar) -> None:
    gateway.wait_for_log("expected a frame length from 8 to 104857600 at offset 0, found ")


def test_a_frame_that_ends_in_its_middle_reaches_the_broker_as_far_as_it_goes(
    gateway: GatewaySidecar, upstream: ScriptedBroker
) -> None:
    data: list[bytes] = []
    upstream.script = lambda peer: data.append(peer.read(10_000))
    whole = produce_frame(1, bytes(1000))
    with Raw(gateway.port()) as raw:
        raw.send(whole[:300])
        raw.end()
        assert raw.fate() == "end"
    wait_until(lambda: whole[:300] in data, timeout_s=TIMEOUT_S, what="the first part")


@pytest.mark.parametrize("cut", [2, 5, 20])
def test_a_telemetry_request_that_ends_in_its_middle_is_nothing(
    gateway: GatewaySidecar, upstream: ScriptedBroker, cut: int
) -> None:
    with Raw(gateway.port()) as raw:
        raw.exchange(produce_frame(1, b"whole"))
        raw.send(get_subscriptions()[:cut])
        raw.end()
        assert raw.fate() == "end"
    assert all_that_came_of(upstream, b"whole") == [0]


def test_a_push_that_is_too_large_is_refused(gateway: GatewaySidecar) -> None:
    before = gateway.resident_bytes()
    with Raw(gateway.port()) as raw:
        _, instance, subscription_id = read_get(raw.exchange(get_subscriptions()))
        for size in (MAX_PUSH_BYTES + 1, 90 * MIB):
            raw.send(push(instance, subscription_id, bytes(size), terminating=False))
            assert error_of_push(raw.frame()) in {118, 89}
        assert raw.exchange(produce_frame(3, b"goes on")).endswith(b"goes on")
    assert gateway.resident_bytes() - before < 12 * MIB
