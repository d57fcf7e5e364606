"""Pushes of bridges: the same intake, the broker's labels, the limits of the client that pushed."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.bridge.frames import BridgedPush, Result
from receiver.core.bridge_pushes import BridgePushes
from receiver.metrics import ReceiverMetrics
from receiver.plugin import Push
from receiver.request_log import RequestLog
from receiver.settings.limits import LimitsSettings, PeerLimitsSettings
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.control.plugin_time import PluginTime
from receiver.telemetry.current_subscriptions import CurrentSubscriptions
from receiver.telemetry.identity import Via
from receiver.telemetry.labels import OWNED_LABELS
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire.uuid import uuid_to_text
from tests.unit.bridge.support import HELLO, PUSH
from tests.unit.session.support import Clock
from tests.unit.telemetry.parts import labels_of, payload

METRICS = payload("ck-producer-star-01")
#: A bridge does not know a SASL mechanism, and there are no owners.
OWNED = tuple(label for label in OWNED_LABELS if label not in {"sasl_mechanism", "client_owner"})


class Core:
    """The pushes of bridges in a core, whose plugins store each push when the test says so."""

    def __init__(self, *, waits: bool = False, **peer: int) -> None:
        limits = Limits(LimitsSettings(source_address=PeerLimitsSettings(**peer)))
        self.clock = Clock()
        self.metrics = ReceiverMetrics(version="0")
        self.telemetry = ClientTelemetry(
            settings=TelemetrySettings(max_bytes=1024),
            subscriptions=CurrentSubscriptions(),
            limits=limits,
            random_bytes=bytes,
        )
        self.delivered: list[Push] = []
        self.stored: list[Callable[[bool], None]] = []
        self.results: list[Result] = []
        self._waits = waits
        self._pushes = BridgePushes(
            telemetry=self.telemetry,
            limits=limits,
            plugin_time=PluginTime(limits),
            metrics=self.metrics,
            log=RequestLog(self.metrics.limit_exceeded, log_requests=False),
            clock=self.clock,
            deliver=self._deliver,
        )

    def _deliver(self, push: Push, stored: Callable[[bool], None]) -> bool:
        self.delivered.append(push)
        self.stored.append(stored)
        return self._waits

    def take(self, **changes: Any) -> None:
        self._pushes.take(HELLO, replace(pushed(), **changes), self.results.append)

    def counted(self, result: str) -> float | None:
        labels = {"broker": "3", "result": result}
        return self.metrics.registry.get_sample_value("kafka_telemetry_bridge_pushes_total", labels)


def pushed() -> BridgedPush:
    return replace(PUSH, metrics=METRICS, terminating=False)


def test_labels_are_what_the_broker_says() -> None:
    core = Core()
    core.take()
    (push,) = core.delivered
    assert core.results == [Result.ACCEPTED]
    assert core.counted("accepted") == 1
    (labels,) = labels_of(push.payload.metrics)
    assert {key: value for key, value in labels.items() if key in OWNED} == {
        "broker_id": "3",
        "client_id": "orders-é",
        "client_instance_id": uuid_to_text(PUSH.client_instance_id),
        "client_software_name": "apache-kafka-java",
        "client_software_version": "4.4.0",
        "client_source_address": "192.0.2.7",
        "client_source_port": "40123",
        "cluster_id": "cluster",
        "listener": "SASL",
        "principal": "User:alice",
        "security_protocol": "SASL_SSL",
    }
    (instance,) = core.telemetry.instances
    assert (instance.identity.via, instance.push_interval_ms) == (Via.BRIDGE, 1000)


def test_plugins_see_the_request_as_far_as_the_bridge_knows_it() -> None:
    core = Core()
    core.take(correlation_id=4711)
    context = core.delivered[0].context
    assert (context.request_type, context.request_version, context.correlation_id) == (72, None, 4711)


def test_a_payload_forges_no_label() -> None:
    forged = MetricsData.FromString(METRICS)
    for resource in forged.resource_metrics:
        for key in OWNED:
            resource.resource.attributes.add(key=key).value.string_value = "forged"
    core = Core()
    core.take(metrics=forged.SerializeToString())
    (push,) = core.delivered
    assert "forged" not in {value for labels in labels_of(push.payload.metrics) for value in labels.values()}


def test_what_is_not_known_is_no_label() -> None:
    core = Core()
    core.take(source_port=0, client_software_name="", client_software_version="", principal="")
    (labels,) = labels_of(core.delivered[0].payload.metrics)
    assert "client_source_port" not in labels
    assert (labels["client_software_name"], labels["principal"]) == ("unknown", "User:unknown")


@pytest.mark.parametrize(
    ("java", "shown"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("fe80:0:0:0:1:2:3:4%eth0", "fe80::1:2:3:4"),
        ("192.0.2.7", "192.0.2.7"),
        ("no address", "no address"),
    ],
)
def test_addresses_look_as_the_gateway_writes_them(java: str, shown: str) -> None:
    core = Core()
    core.take(source_address=java)
    (labels,) = labels_of(core.delivered[0].payload.metrics)
    assert labels["client_source_address"] == shown


def test_a_codec_that_kafka_3_7_lost_is_found_and_bounded() -> None:
    core = Core()
    core.take(metrics=gzip.compress(METRICS), codec_unknown=True)
    core.take(sequence=8, metrics=gzip.compress(bytes(2**22)), codec_unknown=True)
    core.take(sequence=9, metrics=b"\xff" * 50, codec_unknown=True)
    assert core.results == [Result.ACCEPTED, Result.REFUSED, Result.REFUSED]
    assert (core.counted("too_large"), core.counted("invalid")) == (1, 1)
    assert core.delivered[0].payload.data


def test_a_push_has_the_id_that_it_has_by_the_gateway_and_again() -> None:
    core = Core()
    core.take()
    core.take(sequence=8, codec_unknown=True, correlation_id=9, source_port=1, metrics=gzip.compress(METRICS))
    first, second = (push.payload.push_id for push in core.delivered)
    assert first == second


def test_a_push_without_data_points_has_one_id_however_often_it_is_sent() -> None:
    core = Core()
    for sequence in (1, 1, 2):
        core.take(sequence=sequence, metrics=b"")
    ids = [push.payload.push_id for push in core.delivered]
    assert ids[0] == ids[1] != ids[2]


def test_a_broker_whose_clock_is_ahead_pushes_now() -> None:
    core = Core()
    core.take(received_at_ns=2**62)
    assert core.delivered[0].context.received_at_ns == core.clock.wall_ns()


def test_the_limits_are_those_of_the_client() -> None:
    core = Core(telemetry_requests_per_second=1)
    for sequence in range(12):
        core.take(sequence=sequence)
    core.take(sequence=12, source_address="192.0.2.8")
    assert core.results.count(Result.REFUSED) == core.counted("over_limit") == 2
    assert core.results[-1] is Result.ACCEPTED


def test_a_push_is_acknowledged_when_it_is_stored() -> None:
    core = Core(waits=True)
    core.take()
    core.take(sequence=8)
    assert core.results == []
    first, second = core.stored
    second(False)
    first(True)
    assert core.results == [Result.REFUSED, Result.ACCEPTED]
    assert (core.counted("not_stored"), core.counted("accepted")) == (1, 1)
