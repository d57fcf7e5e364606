"""Counters of real outcomes, under Kafka's names of the errors."""

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from receiver.metrics import OTHER, ReceiverMetrics, RelayMetrics, SoftwareLabels, replay
from receiver.session.effects import LoginOutcome
from receiver.settings.limits import LimitsSettings, PeerLimitsSettings
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.otlp import LabelledMetrics
from receiver.telemetry.outcomes import PushOutcome
from receiver.telemetry.steps.counts import StepCounts
from receiver.wire.error_codes import ErrorCode
from receiver.wire.k72_push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from tests.unit.api.conftest import ask, connection, instance_id, telemetry_core
from tests.unit.metrics.test_sources import lines

JAVA = "apache-kafka-java"


def otlp() -> bytes:
    data = MetricsData()
    resource = data.resource_metrics.add()
    resource.resource.attributes.add(key="principal").value.string_value = "User:admin"
    metric = resource.scope_metrics.add().metrics.add(name="org.apache.kafka.producer.x")
    metric.gauge.data_points.add(time_unix_nano=1, as_double=1.5)
    metric.gauge.data_points.add(time_unix_nano=1, as_double=float("nan"))
    return data.SerializeToString()


def test_a_get_and_its_pushes() -> None:
    metrics, telemetry = ReceiverMetrics(version="9.9.9"), telemetry_core()
    asked = ask(telemetry, 5, 0.0)
    metrics.subscriptions_answered(asked, JAVA, 0.0002)
    metrics.subscriptions_answered(ask(telemetry, 5, 1.0), JAVA, 0.0001)
    content = otlp()

    def push(subscription_id: int, now: float, metrics_bytes: bytes = b"") -> None:
        request = PushTelemetryRequest(
            client_instance_id=instance_id(5), subscription_id=subscription_id, metrics=metrics_bytes
        )
        outcome = telemetry.push_telemetry(connection(5), request, now=now, received_at_ns=1)
        metrics.push_answered(outcome, JAVA, 0.003)

    push(asked.response.subscription_id, 10.0, content)
    push(asked.response.subscription_id, 11.0)
    push(asked.response.subscription_id + 1, 400.0)
    assert lines(metrics, "subscription_requests_total") == {
        f'subscription_requests_total{{client_software_name="{JAVA}",outcome="{outcome}"}} 1.0'
        for outcome in ("NONE", "THROTTLING_QUOTA_EXCEEDED")
    }
    assert lines(metrics, "pushes_total") == {
        f'pushes_total{{client_software_name="{JAVA}",outcome="{outcome}"}} 1.0'
        for outcome in ("NONE", "THROTTLING_QUOTA_EXCEEDED", "UNKNOWN_SUBSCRIPTION_ID")
    }
    assert lines(metrics, "throttled_total") == {
        'throttled_total{request="get_telemetry_subscriptions"} 1.0',
        'throttled_total{request="push_telemetry"} 1.0',
    }
    assert lines(metrics, "unknown_subscription_ids_total") == {"unknown_subscription_ids_total 1.0"}
    assert lines(metrics, "push_bytes_total") == {f"push_bytes_total {float(len(content))}"}
    assert lines(metrics, "push_inflated_bytes_total") == {f"push_inflated_bytes_total {float(len(content))}"}
    assert lines(metrics, "dropped_points_total") == {'dropped_points_total{reason="not_finite"} 1.0'}
    assert lines(metrics, "removed_labels_total") == {"removed_labels_total 1.0"}
    assert lines(metrics, "get_seconds_count") == {"get_seconds_count 2.0"}
    assert lines(metrics, "push_seconds_count") == {"push_seconds_count 3.0"}
    assert 'push_seconds_bucket{le="0.005"} 3.0' in lines(metrics, "push_seconds_bucket")
    assert 'push_seconds_bucket{le="0.0025"} 0.0' in lines(metrics, "push_seconds_bucket")


def test_changes_by_the_steps_are_counted() -> None:
    metrics = ReceiverMetrics(version="9.9.9")
    steps = StepCounts(
        unsubscribed_points=7,
        bad_points=1,
        marked_points=2,
        private_points=3,
        dropped_attributes=4,
        hashed_attributes=5,
        unnormalized=True,
    )
    for done in (steps, StepCounts()):
        outcome = PushOutcome(
            response=PushTelemetryResponse(),
            identity=connection(5),
            client_instance_id=instance_id(5),
            metrics=LabelledMetrics(overflowed=6, steps=done),
        )
        metrics.push_answered(outcome, JAVA, 0.001)
    assert lines(metrics, "dropped_points_total") == {
        'dropped_points_total{reason="known_bad"} 1.0',
        'dropped_points_total{reason="over_budget"} 12.0',
        'dropped_points_total{reason="privacy"} 3.0',
        'dropped_points_total{reason="unsubscribed"} 7.0',
    }
    assert lines(metrics, "marked_points_total") == {"marked_points_total 2.0"}
    assert lines(metrics, "private_attributes_total") == {
        'private_attributes_total{action="drop"} 4.0',
        'private_attributes_total{action="hash"} 5.0',
    }
    assert lines(metrics, "unnormalized_pushes_total") == {"unnormalized_pushes_total 1.0"}


def test_made_up_software_makes_a_bounded_number_of_series() -> None:
    metrics = ReceiverMetrics(version="9.9.9", labels=SoftwareLabels(max_names=3))
    outcome = PushOutcome(
        response=PushTelemetryResponse(), identity=connection(5), client_instance_id=instance_id(5)
    )
    for number in range(100):
        metrics.push_answered(outcome, f"made-up-{number}", 0.001)
    shown = lines(metrics, "pushes_total")
    assert len(shown) == 4
    assert f'pushes_total{{client_software_name="{OTHER}",outcome="NONE"}} 97.0' in shown


def test_connections() -> None:
    metrics, relay = ReceiverMetrics(version="9.9.9"), RelayMetrics()
    relay.api_versions_answered(ErrorCode.NONE)
    relay.api_versions_answered(ErrorCode.REBOOTSTRAP_REQUIRED)
    relay.connection_opened("CLIENT")
    relay.connection_closed("CLIENT", "client")
    relay.connection_refused("CLIENT", "upstream")
    relay.protocol_error("CLIENT", "frame_too_large")
    relay.upstream_connected("CLIENT", 0.002)
    relay.forwarded("CLIENT", "to_clients", 20)
    relay.deferred(17)
    relay.core_unavailable()
    replay(metrics, relay.take())
    assert relay.take() == []
    forwarded = 'listener_bytes_total{direction="to_clients",listener="CLIENT"} 20.0'
    assert lines(metrics, "listener_bytes_total") == {forwarded}
    assert lines(metrics, "deferred_calls_total") == {"deferred_calls_total 17.0"}
    assert lines(metrics, "core_unavailable_calls_total") == {"core_unavailable_calls_total 1.0"}
    assert lines(metrics, "api_versions_total") == {
        'api_versions_total{outcome="NONE"} 1.0',
        'api_versions_total{outcome="REBOOTSTRAP_REQUIRED"} 1.0',
    }
    assert lines(metrics, "connections_opened_total") == {'connections_opened_total{listener="CLIENT"} 1.0'}
    closed = 'connections_closed_total{listener="CLIENT",reason="client"} 1.0'
    assert lines(metrics, "connections_closed_total") == {closed}
    refused = 'connections_refused_total{listener="CLIENT",reason="upstream"} 1.0'
    assert lines(metrics, "connections_refused_total") == {refused}
    errors = 'protocol_errors_total{listener="CLIENT",reason="frame_too_large"} 1.0'
    assert lines(metrics, "protocol_errors_total") == {errors}
    connected = 'upstream_connect_seconds_count{listener="CLIENT"} 1.0'
    assert lines(metrics, "upstream_connect_seconds_count") == {connected}


def test_limits_and_logins() -> None:
    metrics, relay = ReceiverMetrics(version="9.9.9"), RelayMetrics()
    limits = Limits(LimitsSettings(source_address=PeerLimitsSettings(connections=1)))
    assert limits.connection_opened("10.0.0.7", 0.0) is None
    exceeded = limits.connection_opened("10.0.0.7", 0.0)
    assert exceeded is not None
    relay.limit_exceeded(exceeded)
    replay(metrics, relay.take())
    assert lines(metrics, "limit_exceeded_total") == {
        'limit_exceeded_total{limit="connections",scope="source_address"} 1.0'
    }
    for number in range(100):
        relay.authentication("SASL", f"made-up-{number}", LoginOutcome.FAILED)
    relay.authentication("SASL", "SCRAM-SHA-512", LoginOutcome.SUCCEEDED)
    replay(metrics, relay.take())
    assert lines(metrics, "authenticated_total") == {
        'authenticated_total{listener="SASL",mechanism="other",outcome="failed"} 100.0',
        'authenticated_total{listener="SASL",mechanism="SCRAM-SHA-512",outcome="succeeded"} 1.0',
    }


def test_what_no_relay_counts_is_refused() -> None:
    metrics = ReceiverMetrics(version="9.9.9")
    for event in (("made_up", (), 1), ("connection_opened", ("one", "too many"), 1), ("deferred", ("x",), 1)):
        with pytest.raises(ValueError, match=r"event|label"):
            replay(metrics, [event])


def test_two_receivers_in_a_process_keep_apart() -> None:
    one, other = ReceiverMetrics(version="1"), ReceiverMetrics(version="2")
    replay(one, [("connection_opened", ("CLIENT",), 1)])
    assert lines(other, "connections_opened_total") == set()


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "text/plain; version="),
        ("*/*", "text/plain; version="),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text"),
    ],
)
def test_the_exposition_is_what_the_scraper_prefers(accept: str | None, content_type: str) -> None:
    text, actual = ReceiverMetrics(version="9.9.9").exposition(accept)
    assert actual.startswith(content_type)
    assert b'version="9.9.9"' in text
    assert b"_created" not in text


def test_a_flood_of_scrapes_gets_the_text_that_was_written_last() -> None:
    now = [100.0]
    metrics = ReceiverMetrics(version="1", clock=lambda: now[0])
    written = 0

    class Counting(Collector):
        def collect(self) -> list[Metric]:
            nonlocal written
            written += 1
            return []

    metrics.registry.register(Counting())
    before = written
    for number in range(500):
        accept = f"application/openmetrics-text; version=1.0.{number}"
        text, content_type = metrics.exposition(accept)
        assert text
        assert content_type.startswith("application/openmetrics-text")
    assert written - before <= 51
    assert len(metrics._written) <= 4
    now[0] += 10
    before = written
    metrics.exposition()
    assert written == before + 1
