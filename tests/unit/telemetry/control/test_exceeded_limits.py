"""The core's answers to peers over a limit, and the requests that count."""

from __future__ import annotations

import gzip

import pytest

from receiver.settings.limits import LimitsSettings, PeerLimitsSettings
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.control.limits import Exceeded, LimitName
from receiver.wire.error_codes import ErrorCode
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.uuid import ONE_UUID, ZERO_UUID, Uuid
from tests.unit.telemetry.parts import COMPRESSED, INSTANCE, Client, connection, payload, subscription
from tests.unit.telemetry.zstd_parts import rle_frame

E = ErrorCode
SMALL = payload("ck-producer-star-01")
MAX_INFLATED = 1 << 20


def limited(
    *,
    new_instances: int | None = None,
    rejected_bytes: int | None = None,
    accepted_bytes: int | None = None,
    max_bytes: int = 1 << 20,
) -> Client:
    return Client(
        subscription(interval_ms=100),
        settings=TelemetrySettings(max_bytes=max_bytes, max_inflated_bytes=MAX_INFLATED),
        limits=LimitsSettings(
            source_address=PeerLimitsSettings(
                new_instances_per_minute=new_instances,
                rejected_bytes_per_minute=rejected_bytes,
                accepted_bytes_per_minute=accepted_bytes,
            )
        ),
    )


def over(limit: LimitName, allowed: int, retry_after_s: float) -> Exceeded:
    return Exceeded(
        limit=limit,
        scope="source_address",
        peer="10.0.0.7",
        allowed=allowed,
        retry_after_s=retry_after_s,
    )


@pytest.mark.parametrize("given", [ZERO_UUID, INSTANCE])
def test_a_get_over_the_instance_limit_is_answered_with_a_time_to_retry(given: Uuid) -> None:
    client = limited(new_instances=2)
    known = [client.get(0, client_instance_id=ZERO_UUID).client_instance_id for _ in range(2)]
    assert len(client.telemetry.instances) == 2
    outcome = client.get(0, client_instance_id=given)
    assert outcome.exceeded == over(LimitName.NEW_INSTANCES, 2, 30.0)
    assert not outcome.created
    # No error, because a Java client without a subscription would wait for five minutes.
    response = outcome.response
    assert (response.error_code, response.requested_metrics, response.throttle_time_ms) == (E.NONE, (), 0)
    assert 30_000 <= response.push_interval_ms <= 60_000
    assert response.client_instance_id == outcome.client_instance_id
    assert (response.client_instance_id == given) == (given != ZERO_UUID)
    assert response.client_instance_id != ZERO_UUID
    assert [instance.id for instance in client.telemetry.instances] == known
    assert client.identity.client_instance_id == known[1]
    # Known instances continue, and there is room again later.
    assert client.get(1, client_instance_id=known[0]).exceeded is None
    assert client.get(30, client_instance_id=given).created


def test_a_push_over_the_instance_limit_is_throttled() -> None:
    client = limited(new_instances=1)
    client.get(0)
    outcome = client.push(1, SMALL, client_instance_id=INSTANCE)
    assert outcome.response.error_code == E.THROTTLING_QUOTA_EXCEEDED
    assert outcome.exceeded == over(LimitName.NEW_INSTANCES, 1, 59.0)
    assert outcome.problem == "10.0.0.7 is over limits.source_address.new_instances_per_minute (1)"
    assert (outcome.client_instance_id, outcome.wire_bytes, outcome.push) == (INSTANCE, len(SMALL), None)
    assert client.telemetry.instances.find(INSTANCE) is None
    # Later it is accepted, like a client that failed over from another broker.
    outcome = client.push(60, SMALL, client_instance_id=INSTANCE)
    assert (outcome.response.error_code, outcome.exceeded) == (E.UNKNOWN_SUBSCRIPTION_ID, None)


BOMB = COMPRESSED[1](bytes(MAX_INFLATED + (1 << 17)))
CUT_OFF = COMPRESSED[1](bytes(MAX_INFLATED // 2))[:-1]


@pytest.mark.parametrize(
    ("metrics", "codec", "error", "counted"),
    [
        (b"x" * 2000, 9, E.UNSUPPORTED_COMPRESSION_TYPE, 2000),
        (bytes(40_001), 0, E.TELEMETRY_TOO_LARGE, 40_001),
        (b"\xff" * 3000, 0, E.INVALID_RECORD, 3000),
        (b"\xff" * 3000, 1, E.INVALID_RECORD, 3000),
        # The inflated size counts when it is larger.
        (gzip.compress(bytes(100_000), mtime=0), 1, E.INVALID_RECORD, 100_000),
        (BOMB, 1, E.TELEMETRY_TOO_LARGE, MAX_INFLATED + 1),
        (CUT_OFF, 1, E.INVALID_RECORD, MAX_INFLATED // 2),
        (rle_frame(2 * MAX_INFLATED), 4, E.TELEMETRY_TOO_LARGE, 2 * MAX_INFLATED),
        (COMPRESSED[2](bytes(100_000))[:-2], 2, E.INVALID_RECORD, 100_000),
        (COMPRESSED[3](bytes(MAX_INFLATED + (1 << 17))), 3, E.TELEMETRY_TOO_LARGE, MAX_INFLATED + 1),
    ],
)
def test_a_refused_push_counts_its_larger_size(
    metrics: bytes, codec: int, error: ErrorCode, counted: int
) -> None:
    for allowed, answer in ((counted, E.THROTTLING_QUOTA_EXCEEDED), (counted + 1, E.NONE)):
        client = limited(rejected_bytes=allowed, max_bytes=40_000)
        client.get(0)
        assert client.push(1, metrics, compression_type=codec).response.error_code == error
        # Another client of the same host, at the same time.
        client.get(1, client_instance_id=INSTANCE)
        assert client.push(1).response.error_code == answer


def test_a_peer_over_its_rejected_bytes_is_throttled_without_inflating() -> None:
    client = limited(rejected_bytes=3000)
    client.get(0)
    for now in (1, 2, 3):
        outcome = client.push(now, b"\xff" * 1100)
        assert (outcome.response.error_code, outcome.exceeded) == (E.INVALID_RECORD, None)
    # It would be refused for its content, but is throttled first.
    outcome = client.push(4, b"\xff" * 1100)
    assert outcome.response.error_code == E.THROTTLING_QUOTA_EXCEEDED
    assert outcome.exceeded is not None
    assert (outcome.exceeded.limit, outcome.exceeded.allowed) == (LimitName.REJECTED_BYTES, 3000)
    assert outcome.problem == "10.0.0.7 is over limits.source_address.rejected_bytes_per_minute (3000)"
    assert outcome.inflated_bytes == 0
    # A throttled push does not count, so waiting helps; then it is accepted.
    later = 4 + outcome.exceeded.retry_after_s
    assert client.push(later - 0.2, SMALL).response.error_code == E.THROTTLING_QUOTA_EXCEEDED
    outcome = client.push(later, SMALL)
    assert (outcome.response.error_code, outcome.exceeded) == (E.NONE, None)
    assert outcome.push is not None


def test_early_and_outdated_pushes_are_not_counted() -> None:
    client = limited(rejected_bytes=1)
    client.get(0)
    assert client.push(1, SMALL).response.error_code == E.NONE
    assert client.push(1, SMALL).response.error_code == E.THROTTLING_QUOTA_EXCEEDED
    assert client.push(2, SMALL, subscription_id=5).response.error_code == E.UNKNOWN_SUBSCRIPTION_ID
    assert client.push(3, SMALL).response.error_code == E.NONE


@pytest.mark.parametrize("reserved", [ZERO_UUID, ONE_UUID])
def test_a_push_with_a_reserved_id_counts_and_is_invalid(reserved: Uuid) -> None:
    client = limited(rejected_bytes=3000)
    client.get(0)
    for _ in range(3):
        outcome = client.push(0, bytes(1500), client_instance_id=reserved)
        assert (outcome.response.error_code, outcome.exceeded) == (E.INVALID_REQUEST, None)
    assert client.push(1, SMALL).exceeded is not None


@pytest.mark.parametrize("wait_s", [0.0, 10_000.0])
def test_the_retry_interval_is_one_to_two_minutes_at_most(wait_s: float) -> None:
    client = limited()
    exceeded = over(LimitName.TELEMETRY_REQUESTS, 1, wait_s)
    outcome = client.telemetry.ask_again(client.identity, GetTelemetrySubscriptionsRequest(), exceeded)
    assert (1_000 if not wait_s else 60_000) <= outcome.response.push_interval_ms <= 120_000
    assert len(client.telemetry.instances) == 0


def test_accepted_bytes_are_limited_for_each_source() -> None:
    metrics = payload("ck-producer-star-01")
    client = limited(accepted_bytes=60_000)
    client.get(0)
    outcomes = [client.push(float(second), metrics) for second in range(1, 101)]
    taken = [outcome.push for outcome in outcomes if outcome.push is not None]
    largest = max(len(push.payload.data) for push in taken)
    # The burst of a minute, what drained meanwhile, and one push that overfills the bucket.
    assert sum(len(push.payload.data) for push in taken) <= 60_000 * (1 + 100 / 60) + largest
    refused = [outcome for outcome in outcomes if outcome.push is None]
    assert refused
    assert {outcome.response.error_code for outcome in refused} == {E.THROTTLING_QUOTA_EXCEEDED}
    assert all(
        outcome.exceeded is not None and outcome.exceeded.limit is LimitName.ACCEPTED_BYTES
        for outcome in refused
    )
    client.identity = connection(source_address="10.0.0.8")
    client.id = ZERO_UUID
    client.get(101)
    assert client.push(102.0, metrics).push is not None
