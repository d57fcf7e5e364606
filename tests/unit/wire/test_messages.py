"""Messages that the captured frames lack: other versions, nulls, unknown tags, errors."""

from __future__ import annotations

from typing import Any

import pytest

from receiver.wire.errors import WireError
from receiver.wire.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from receiver.wire.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from receiver.wire.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from receiver.wire.k72_push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from receiver.wire.primitives import Reader
from receiver.wire.uuid import ZERO_UUID, Uuid
from tests.unit.wire.corpus import REQUESTS, RESPONSES, VERSIONS

INSTANCE = Uuid(bytes(range(16)))
ID = bytes(range(16)).hex()
TAGGED = ((5, b"ab"),)
TAG = "01" + "05" + "02" + "6162"

CASES: list[tuple[str, Any, int, int, Any, str]] = [
    ("handshake v0", REQUESTS, 17, 0, SaslHandshakeRequest(mechanism="GSSAPI"), "0006475353415049"),
    (
        "handshake answer",
        RESPONSES,
        17,
        1,
        SaslHandshakeResponse(error_code=33, mechanisms=("A", "")),
        "0021" + "00000002" + "000141" + "0000",
    ),
    ("token v0", REQUESTS, 36, 0, SaslAuthenticateRequest(auth_bytes=b"a"), "00000001" + "61"),
    (
        "token v2",
        REQUESTS,
        36,
        2,
        SaslAuthenticateRequest(auth_bytes=b"a", tagged_fields=TAGGED),
        "0261" + TAG,
    ),
    (
        "broker's token v0",
        RESPONSES,
        36,
        0,
        SaslAuthenticateResponse(error_code=58, error_message="no"),
        "003a" + "00026e6f" + "00000000",
    ),
    (
        "broker's token v1",
        RESPONSES,
        36,
        1,
        SaslAuthenticateResponse(error_code=0, auth_bytes=b"t", session_lifetime_ms=60_000),
        "0000" + "ffff" + "0000000174" + "000000000000ea60",
    ),
    (
        "broker's token v2",
        RESPONSES,
        36,
        2,
        SaslAuthenticateResponse(
            error_code=0, auth_bytes=b"t", session_lifetime_ms=60_000, tagged_fields=TAGGED
        ),
        "0000" + "00" + "0274" + "000000000000ea60" + TAG,
    ),
    (
        "get",
        REQUESTS,
        71,
        0,
        GetTelemetrySubscriptionsRequest(client_instance_id=INSTANCE, tagged_fields=TAGGED),
        ID + TAG,
    ),
    ("get v1", REQUESTS, 71, 1, GetTelemetrySubscriptionsRequest(), "00"),
    (
        "subscriptions",
        RESPONSES,
        71,
        0,
        GetTelemetrySubscriptionsResponse(
            throttle_time_ms=1,
            error_code=1000,
            client_instance_id=INSTANCE,
            subscription_id=-2,
            accepted_compression_types=(4, -1),
            push_interval_ms=100,
            telemetry_max_bytes=1 << 20,
            delta_temporality=True,
            requested_metrics=("", "a."),
            tagged_fields=TAGGED,
        ),
        "00000001"
        + "03e8"
        + ID
        + "fffffffe"
        + "0304ff"
        + "00000064"
        + "00100000"
        + "01"
        + "0301"
        + "03612e"
        + TAG,
    ),
    (
        "subscriptions v1",
        RESPONSES,
        71,
        1,
        GetTelemetrySubscriptionsResponse(error_code=89),
        "00000000" + "0059" + "00000000" + "01" + "00000000" + "00000000" + "00" + "01" + "00",
    ),
    (
        "push of null",
        REQUESTS,
        72,
        0,
        PushTelemetryRequest(client_instance_id=INSTANCE, metrics=None),
        ID + "00000000" + "00" + "00" + "00" + "00",
    ),
    (
        "push of nothing with a codec",
        REQUESTS,
        72,
        0,
        PushTelemetryRequest(compression_type=4, terminating=True, subscription_id=-1),
        "00" * 16 + "ffffffff" + "01" + "04" + "01" + "00",
    ),
    (
        "push v1",
        REQUESTS,
        72,
        1,
        PushTelemetryRequest(subscription_id=9, compression_type=-1, metrics=b"xyz", tagged_fields=TAGGED),
        "00000009" + "00" + "ff" + "0478797a" + TAG,
    ),
    (
        "push answer",
        RESPONSES,
        72,
        0,
        PushTelemetryResponse(throttle_time_ms=3, error_code=118, tagged_fields=TAGGED),
        "00000003" + "0076" + TAG,
    ),
    ("push answer v1", RESPONSES, 72, 1, PushTelemetryResponse(error_code=-1), "00000000" + "ffff" + "00"),
]


@pytest.mark.parametrize(
    ("codecs", "key", "version", "value", "body"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_bytes(codecs: Any, key: int, version: int, value: Any, body: str) -> None:
    data = bytes.fromhex(body)
    codec = codecs[key]
    assert codec.encode(value, version).hex() == body
    reader = Reader(data)
    assert codec.decode(reader, version) == value
    reader.expect_end()
    for length in range(len(data)):
        with pytest.raises(WireError) as caught:
            codec.decode(Reader(data[:length]), version)
        assert 0 <= caught.value.offset <= length
    after = Reader(data + b"\xff\xff")
    assert codec.decode(after, version) == value
    assert after.remaining == 2


@pytest.mark.parametrize("key", VERSIONS)
def test_versions_that_are_not_known(key: int) -> None:
    for version in (-1, VERSIONS[key][-1] + 1):
        for codecs in (REQUESTS, RESPONSES):
            with pytest.raises(
                ValueError, match=rf"version {version} is not one of 0 to {VERSIONS[key][-1]}"
            ):
                codecs[key].decode(Reader(bytes(64)), version)
            with pytest.raises(
                ValueError, match=rf"version {version} is not one of 0 to {VERSIONS[key][-1]}"
            ):
                codecs[key].encode(None, version)


def test_version_1_leaves_the_instance_id_to_the_header() -> None:
    push = PushTelemetryRequest(client_instance_id=INSTANCE)
    assert REQUESTS[72].decode(Reader(REQUESTS[72].encode(push, 1)), 1).client_instance_id == ZERO_UUID
    get = GetTelemetrySubscriptionsRequest(client_instance_id=INSTANCE)
    assert REQUESTS[71].decode(Reader(REQUESTS[71].encode(get, 1)), 1).client_instance_id == ZERO_UUID


def test_the_metrics_are_a_view() -> None:
    body = bytearray(REQUESTS[72].encode(PushTelemetryRequest(metrics=b"abc"), 0))
    metrics = REQUESTS[72].decode(Reader(body), 0).metrics
    body[body.index(b"abc")] = ord("z")
    assert metrics == b"zbc"


def test_a_prefix_must_not_be_null() -> None:
    answer = RESPONSES[71].encode(GetTelemetrySubscriptionsResponse(requested_metrics=("",)), 0)
    assert answer.endswith(b"\x02\x01\x00")
    with pytest.raises(WireError, match=r"expected RequestedMetrics \(compact string\) .* found null"):
        RESPONSES[71].decode(Reader(answer[:-2] + b"\x00\x00"), 0)
