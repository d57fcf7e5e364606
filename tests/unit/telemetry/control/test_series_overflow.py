"""Series budgets in the whole core: overflow, priority and the report."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.settings.metric_processing import SeriesSettings
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.outcomes import PushOutcome
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire.error_codes import ErrorCode
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import Uuid
from tests.unit.telemetry.parts import INSTANCE, RECEIVED_AT_NS, Client, connection, payload, subscription

METRICS = payload("java44-producer-star-02")
ALICE = "User:alice"
ANOTHER = Uuid(INSTANCE[::-1])


def core(**series: Any) -> ClientTelemetry:
    settings = TelemetrySettings(series=SeriesSettings(**series))
    return Client(subscription(interval_ms=10_000), settings=settings).telemetry


def push(
    telemetry: ClientTelemetry, instance: Uuid, now: float, metrics: bytes = METRICS, principal: str = ALICE
) -> PushOutcome:
    """Get and push as a new client."""
    connected = connection(principal=principal, client_id="orders-5d9c7b4f6d-x2k8p")
    answer = telemetry.get_telemetry_subscriptions(
        connected, GetTelemetrySubscriptionsRequest(client_instance_id=instance), now=now
    ).response
    assert answer.error_code == ErrorCode.NONE
    outcome = telemetry.push_telemetry(
        connected,
        PushTelemetryRequest(
            client_instance_id=instance, subscription_id=answer.subscription_id, metrics=metrics
        ),
        now=now,
        received_at_ns=RECEIVED_AT_NS,
    )
    assert outcome.response.error_code == ErrorCode.NONE
    return outcome


def points(outcome: PushOutcome) -> int:
    """Count the data points that plugins get."""
    if outcome.push is None:
        return 0
    data = MetricsData.FromString(outcome.push.payload.data)
    return sum(
        len(getattr(metric, str(metric.WhichOneof("data"))).data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    )


ALL = points(push(core(), INSTANCE, 0))


def test_within_budgets_every_point_stays() -> None:
    telemetry = core(max_per_client=ALL, max_per_principal=ALL, max_total=ALL)
    assert points(push(telemetry, INSTANCE, 0)) == ALL
    assert (telemetry.series.series, telemetry.series.overflowed_points) == (ALL, 0)


def test_points_over_the_budget_become_one_series() -> None:
    telemetry = core(max_per_client=ALL - 10)
    assert points(push(telemetry, INSTANCE, 0)) == ALL - 10 + 1
    assert (telemetry.series.series, telemetry.series.overflowed_points) == (ALL - 10, 10)


def test_a_later_client_gets_the_rest_of_the_budget() -> None:
    telemetry = core(max_per_principal=ALL + 20)
    for now in (0, 20, 40):
        assert points(push(telemetry, INSTANCE, now)) == ALL
        assert points(push(telemetry, ANOTHER, now + 1)) == 20 + 1
    # Fewer series of a client, or a forgotten client, leave room.
    push(telemetry, INSTANCE, 60, metrics=b"")
    assert points(push(telemetry, ANOTHER, 61)) == ALL
    telemetry.instances.forget_expired(10_000, 10)
    assert telemetry.series.series == 0
    assert telemetry.series.overflowed_points == 3 * (ALL - 20)


def test_the_report_names_the_folded_client_id() -> None:
    rule = {"pattern": r"(.*)-[0-9a-f]{8,10}-[a-z0-9]{5}", "replacement": r"\1"}
    telemetry = core(max_per_client=5, client_id_folding=(rule,))
    push(telemetry, INSTANCE, 0)
    push(telemetry, ANOTHER, 1)
    report = telemetry.series.report(10, 2.0)
    assert [(use.name, use.instances, use.series) for use in report.client_ids] == [("orders", 2, 10)]
    assert [(use.name, use.overflowed) for use in report.principals] == [(ALICE, 2 * (ALL - 5))]


def test_a_push_that_is_refused_changes_nothing() -> None:
    telemetry = core()
    push(telemetry, INSTANCE, 0)
    connected = connection(principal=ALICE)
    instance = telemetry.instances.find(INSTANCE)
    assert instance is not None
    refused = telemetry.push_telemetry(
        connected,
        PushTelemetryRequest(
            client_instance_id=INSTANCE, subscription_id=instance.subscription_id, metrics=b"\xff"
        ),
        now=20,
        received_at_ns=RECEIVED_AT_NS,
    )
    assert refused.response.error_code == ErrorCode.INVALID_RECORD
    assert telemetry.series.series == ALL
