"""Effects and calls of a session become metrics, log lines and pushes for the plugins."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from receiver.gateway.events import GatewayEvents
from receiver.link.messages import Answer, Call
from receiver.request_log import connection_fields
from receiver.session.call import OpenCall
from receiver.session.effects import ApiVersionsAnswered, ApiVersionsAsked, IdentityChanged
from receiver.telemetry.control.limits import Exceeded, LimitName
from receiver.telemetry.identity import UNKNOWN
from receiver.wire.headers import RequestHeader
from receiver.wire.uuid import uuid_to_text
from tests.unit.gateway.support import Gate
from tests.unit.session.support import (
    Clock,
    Wire,
    api_versions,
    connection,
    get_subscriptions,
    push,
    read_push,
    read_subscriptions,
)
from tests.unit.session.test_telemetry import OTLP


class ReportedWire(Wire):
    """A session with the gateway's reports and the real telemetry calls."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate
        gate.registry.add(self.identity)
        self.registry = gate.registry
        gate.clock = self.clock
        gate.calls._clock = self.clock

    def execute_effects(self) -> None:
        for effect in self.session.take_effects():
            self._gate.events.report(self.identity, effect)
            if isinstance(effect, OpenCall):
                self._gate.calls.call(self.identity, Call(1, 1, effect.header, effect.body), self._answer)
            elif isinstance(effect, IdentityChanged):
                self.registry.changed(effect.identity)

    def _answer(self, answer: Answer) -> None:
        self.to_client += self.session.answered(answer.frame)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def wire(gate: Gate) -> Wire:
    """A session whose effects are counted, logged and delivered."""
    return ReportedWire(gate)


def test_every_answer_is_counted_by_outcome_and_software(gate: Gate, wire: Wire) -> None:
    wire.exchange(api_versions(3, client_software_name="librdkafka"))
    wire.exchange(api_versions(99))
    got = read_subscriptions(wire.exchange(get_subscriptions()))
    wire.exchange(get_subscriptions(got.client_instance_id))
    wire.exchange(push(got.client_instance_id, got.subscription_id, OTLP))
    wire.exchange(push(got.client_instance_id, 1 + got.subscription_id % 1000, OTLP, terminating=True))
    assert gate.value("api_versions_total", outcome="NONE") == 1
    assert gate.value("api_versions_total", outcome="UNSUPPORTED_VERSION") == 1
    for outcome in ("NONE", "THROTTLING_QUOTA_EXCEEDED"):
        labels = {"outcome": outcome, "client_software_name": "librdkafka"}
        assert gate.value("subscription_requests_total", **labels) == 1
    assert gate.value("pushes_total", outcome="NONE", client_software_name="librdkafka") == 1
    assert gate.value("unknown_subscription_ids_total") == 1


def test_only_a_push_that_was_taken_goes_to_the_plugins(gate: Gate, wire: Wire) -> None:
    got = read_subscriptions(wire.exchange(get_subscriptions()))
    for metrics, error_code, pushed in (
        (b"\xff no protobuf", 87, 0),
        (OTLP, 0, 1),
        (b"", 0, 2),
        (OTLP, 89, 2),
    ):
        if error_code == 0:
            wire.clock.now += 10
        assert (
            read_push(wire.exchange(push(got.client_instance_id, got.subscription_id, metrics))) == error_code
        )
        assert len(gate.pushed) == pushed
    assert gate.pushed[0].context.client_id == "raw"
    assert not gate.pushed[0].payload.terminating
    context = gate.pushed[0].context
    assert (context.request_type, context.request_version, context.correlation_id) == (72, 0, 72)


def test_the_request_log_is_off_unless_asked_for(gate: Gate, wire: Wire) -> None:
    with capture_logs() as log:
        wire.exchange(api_versions(3))
        wire.exchange(get_subscriptions())
    assert log == []


def test_the_request_log_carries_the_clients_information(gate: Gate, wire: Wire) -> None:
    gate.log.log_requests = gate.core_log.log_requests = True
    with capture_logs() as log:
        wire.exchange(api_versions(3, 5))
        got = read_subscriptions(wire.exchange(get_subscriptions()))
        wire.exchange(push(got.client_instance_id, got.subscription_id, OTLP))
    asked, got_line, pushed = log
    instance = uuid_to_text(got.client_instance_id)
    information = {
        "connection": "1",
        "listener": "CLIENT",
        "security_protocol": "PLAINTEXT",
        "principal": "User:ANONYMOUS",
        "source": "192.0.2.7:50000",
        "client_id": "raw",
        "client_software_name": "raw",
        "client_software_version": "1.0",
    }
    assert (
        asked.items()
        >= {
            **information,
            "event": "request answered",
            "api": "ApiVersions",
            "api_version": 3,
            "correlation_id": 5,
            "error": "NONE",
            "client_instance_id": None,
        }.items()
    )
    assert (
        got_line.items()
        >= {
            **information,
            "api": "GetTelemetrySubscriptions",
            "subscription_id": got.subscription_id,
            "client_instance_id": instance,
        }.items()
    )
    assert (
        pushed.items()
        >= {
            **information,
            "api": "PushTelemetry",
            "error": "NONE",
            "bytes": len(OTLP),
            "inflated_bytes": len(OTLP),
            "client_instance_id": instance,
        }.items()
    )
    assert OTLP not in str(log).encode()


def test_the_request_log_says_what_was_sent_and_how_long_the_answer_took(gate: Gate) -> None:
    gate.log.log_requests = True
    clock, asked = Clock(), ApiVersionsAsked()
    events = GatewayEvents(gate.events_of_relay, gate.log, clock)
    header = RequestHeader(api_key=18, api_version=6, correlation_id=7)
    with capture_logs() as log:
        events.report(connection(), asked)
        clock.now += 0.25
        events.report(connection(), ApiVersionsAnswered(header, 0, asked))
    (line,) = log
    assert (line["api_version"], line["total_us"]) == (6, 250_000)


def test_what_is_over_a_limit_is_logged_with_its_setting_and_counted(gate: Gate) -> None:
    exceeded = Exceeded(
        limit=LimitName.CORE_TIME, scope="principal", peer="User:alice", allowed=7, retry_after_s=1.0
    )
    with capture_logs() as log:
        gate.log.limit_exceeded(connection(), exceeded)
    (entry,) = log
    assert (entry["event"], entry["limit"]) == ("limit exceeded", "limits.principal.core_ms_per_second")
    assert (entry["peer"], entry["allowed"]) == ("User:alice", 7)
    assert gate.value("limit_exceeded_total", limit="core_time", scope="principal") == 1


def test_a_connection_without_requests_is_shown_as_unknown() -> None:
    fields = connection_fields(connection())
    assert fields["client_software_name"] == UNKNOWN
    assert fields["client_instance_id"] is None
