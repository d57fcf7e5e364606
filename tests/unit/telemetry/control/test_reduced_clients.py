"""Back-pressure and offenders in the whole core: longer intervals, reduced subscriptions."""

from __future__ import annotations

from typing import Any

import pytest

from receiver.settings.model import TelemetrySettings
from receiver.telemetry.control.offenders import STANDARD_METRICS, Demand
from receiver.telemetry.rules import Rules
from receiver.telemetry.subscription_checks import MAX_INTERVAL_MS
from receiver.wire.error_codes import ErrorCode
from tests.unit.telemetry.parts import COMPRESSED, Client, connection, payload, ready, subscription

NONE = ErrorCode.NONE
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
UNKNOWN_ID = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
TOO_LARGE = ErrorCode.TELEMETRY_TOO_LARGE

METRICS = payload("franz-producer-okprefix-02")


def pressed(**changes: Any) -> TelemetrySettings:
    backpressure = {"enabled": True, "behind_s": 60, "step_s": 10} | changes
    return TelemetrySettings.model_validate({"max_bytes": 1024, "backpressure": backpressure})


def waiting(client: Client, *, lag_s: float = 1000.0, looks: int = 2) -> int:
    """Report a destination that is behind for some observations, ten seconds apart."""
    factor = 0
    for look in range(looks):
        factor = client.telemetry.backpressure.observe({"otlp": lag_s}, 10_000.0 * lag_s + 10 * look)
    return factor


def subscribed(settings: TelemetrySettings, interval_ms: int = 10_000, **facts: str) -> Client:
    client = Client(subscription(interval_ms=interval_ms), settings=settings, connected=connection(**facts))
    assert client.get(0).response.error_code == NONE
    return client


def code(outcome: Any) -> ErrorCode:
    return ErrorCode(outcome.response.error_code)


def test_a_client_learns_of_a_longer_interval_with_its_next_push() -> None:
    client = subscribed(pressed())
    assert code(client.push(5, METRICS)) is NONE
    asked_before = client.subscription_id
    assert waiting(client) == 2
    # The instance is unchanged so far.
    assert client.telemetry.instances.find(client.id).push_interval_ms == 10_000  # type: ignore[union-attr]
    assert code(client.push(15, METRICS)) is UNKNOWN_ID
    again = client.get(15).response
    assert (again.error_code, again.push_interval_ms) == (NONE, 20_000)
    assert again.subscription_id != asked_before
    assert code(client.push(25, METRICS)) is NONE
    assert code(client.push(35, METRICS)) is THROTTLED
    assert code(client.push(45, METRICS)) is NONE
    # The same for the shorter interval.
    assert waiting(client, lag_s=0.0) == 1
    assert code(client.push(65, METRICS)) is UNKNOWN_ID
    again = client.get(65).response
    assert (again.push_interval_ms, again.subscription_id) == (10_000, asked_before)


def test_a_silent_client_never_sees_a_temporary_factor() -> None:
    client = subscribed(pressed())
    assert code(client.push(5, METRICS)) is NONE
    waiting(client)
    waiting(client, lag_s=0.0)
    assert code(client.push(15, METRICS)) is NONE


def test_a_new_client_starts_with_the_longer_interval() -> None:
    client = Client(subscription(), settings=pressed())
    waiting(client)
    response = client.get(100).response
    assert response.push_interval_ms == 20_000
    assert code(client.push(110, METRICS)) is NONE


def test_the_interval_stays_within_protocol_and_client_bounds() -> None:
    client = subscribed(pressed(max_factor=64), interval_ms=3_000_000)
    assert waiting(client, looks=7) == 64
    assert client.get(3000).response.push_interval_ms == MAX_INTERVAL_MS
    librdkafka = subscribed(
        pressed(),
        interval_ms=1_000_000,
        client_software_name="librdkafka",
        client_software_version="2.12.0",
    )
    waiting(librdkafka)
    assert librdkafka.get(1000).response.push_interval_ms == 1_431_000


def test_the_lifetime_follows_the_longer_interval() -> None:
    client = subscribed(pressed(), interval_ms=30_000)
    waiting(client, looks=4)
    client.get(30)
    instance = client.telemetry.instances.find(client.id)
    assert instance is not None
    assert (instance.push_interval_ms, instance.lifetime_s) == (240_000, 720.0)


def test_disabling_restores_the_interval() -> None:
    client = subscribed(pressed())
    asked_before = client.subscription_id
    waiting(client)
    assert code(client.push(10, METRICS)) is UNKNOWN_ID
    assert client.get(10).response.push_interval_ms == 20_000
    client.telemetry.replace_rules(Rules(TelemetrySettings()))
    assert code(client.push(20, METRICS)) is UNKNOWN_ID
    again = client.get(20).response
    assert (again.push_interval_ms, again.subscription_id) == (10_000, asked_before)


def test_repeated_too_large_pushes_reduce_to_the_standard_metrics() -> None:
    client = subscribed(pressed(offenders={"max_too_large": 2, "relax_after_s": 25}))
    too_large = METRICS * 20
    for now in (10, 20):
        assert code(client.push(now, too_large)) is TOO_LARGE
    assert code(client.push(30, too_large)) is UNKNOWN_ID
    assert client.get(30).response.requested_metrics == STANDARD_METRICS
    for now in (40, 50):
        assert code(client.push(now, too_large)) is TOO_LARGE
    assert code(client.push(60, too_large)) is UNKNOWN_ID
    assert client.get(60).response.requested_metrics == ()
    explained = client.telemetry.offenders.explain(client.id, 60)
    assert explained is not None
    assert (explained.demand, explained.relaxes_in_s) == (Demand.NOTHING, 40.0)
    # It continues with gets, and its demand is restored step by step.
    assert client.get(99).response.requested_metrics == ()
    assert client.get(109).response.requested_metrics == STANDARD_METRICS
    assert client.get(149).response.requested_metrics == STANDARD_METRICS
    assert client.get(159).response.requested_metrics == ("",)


def test_a_client_within_the_limits_is_not_reduced() -> None:
    client = subscribed(pressed(offenders={"max_too_large": 2}))
    for now in range(10, 200, 20):
        assert code(client.push(now, METRICS * 20)) is TOO_LARGE
        assert code(client.push(now + 10, METRICS)) is NONE
    assert client.get(300).response.requested_metrics == ("",)


def test_a_bomb_counts_as_too_large() -> None:
    client = ready(
        max_inflated_bytes=1_048_576,
        backpressure={"enabled": True, "offenders": {"max_too_large": 1, "max_bytes_per_minute": 1024}},
    )
    assert code(client.push(10, COMPRESSED[1](bytes(2_000_000)), compression_type=1)) is TOO_LARGE
    assert client.telemetry.offenders.demand(client.id, 10) is Demand.STANDARD_METRICS


def test_inflated_bytes_of_accepted_pushes_count() -> None:
    client = ready(backpressure={"enabled": True, "offenders": {"max_bytes_per_minute": 1024}})
    assert 3 * len(METRICS) < 1024 < 6 * len(METRICS)
    assert code(client.push(10, METRICS * 3)) is NONE
    assert code(client.push(20, METRICS * 3)) is NONE
    assert code(client.push(30, METRICS * 3)) is UNKNOWN_ID
    assert client.get(30).response.requested_metrics == STANDARD_METRICS


@pytest.mark.parametrize("enabled", [False, True])
def test_offences_are_forgotten_with_the_instance(enabled: bool) -> None:
    client = subscribed(pressed(enabled=enabled, offenders={"max_too_large": 1}))
    client.push(10, METRICS * 20)
    assert client.telemetry.offenders.reduced[Demand.STANDARD_METRICS] == enabled
    client.telemetry.instances.disconnected(client.identity.id)
    assert client.telemetry.offenders.reduced[Demand.STANDARD_METRICS] == 0
    assert client.get(20).response.requested_metrics == ("",)
