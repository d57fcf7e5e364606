"""The push that plugins get: context, labels, identity."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.plugin import OTLP_CONTENT_TYPE
from receiver.settings.limits import LimitsSettings
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.identity import Broker
from receiver.telemetry.subscription import SubscriptionSet
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire import k72_push_telemetry
from receiver.wire.error_codes import ErrorCode
from receiver.wire.primitives import Reader
from receiver.wire.uuid import uuid_to_text
from tests.unit.telemetry.parts import (
    ALL_PAYLOADS,
    COMPRESSED,
    RECEIVED_AT_NS,
    connection,
    labels_of,
    payload,
    ready,
    subscription,
)
from tests.unit.wire.corpus import Captured, decode_header, load

E = ErrorCode
SMALL = payload("ck-producer-star-01")


@pytest.mark.parametrize("name", ALL_PAYLOADS)
@pytest.mark.parametrize("codec", COMPRESSED)
def test_captured_payloads_arrive_with_all_labels(name: str, codec: int) -> None:
    client = ready()
    outcome = client.push(1, memoryview(COMPRESSED[codec](payload(name))), compression_type=codec)
    assert outcome.response == k72_push_telemetry.PushTelemetryResponse()
    assert outcome.inflated_bytes == len(payload(name))
    assert outcome.push is not None
    received = outcome.push.payload.metrics
    sent = MetricsData.FromString(payload(name))
    own = {
        "group_member_id" if a.key == "member_id" else a.key: a.value.string_value
        for a in sent.resource_metrics[0].resource.attributes
    }
    assert labels_of(received) == [
        own
        | {
            "client_id": "java-producer",
            "client_instance_id": uuid_to_text(client.id),
            "client_software_name": "apache-kafka-java",
            "client_software_version": "4.4.0",
            "client_source_address": "10.0.0.7",
            "client_source_port": "51234",
            "principal": "User:ANONYMOUS",
            "broker_id": "1",
            "listener": "CLIENT",
            "security_protocol": "PLAINTEXT",
            "cluster_id": "5L6g3nShT-eMCtK--X86sw",
        }
    ]


def test_the_context_describes_the_client() -> None:
    client = ready()
    outcome = client.push(1, SMALL)
    assert outcome.push is not None
    context, load_ = outcome.push.context, outcome.push.payload
    assert (context.connection_id, context.listener, context.security_protocol) == (
        "c1",
        "CLIENT",
        "PLAINTEXT",
    )
    assert (context.source_address, context.source_port, context.principal) == (
        "10.0.0.7",
        51234,
        "User:ANONYMOUS",
    )
    assert (context.client_id, context.client_software_name) == ("java-producer", "apache-kafka-java")
    assert (context.client_software_version, context.broker_id) == ("4.4.0", 1)
    assert (context.cluster_id, context.subscription_id) == ("5L6g3nShT-eMCtK--X86sw", client.subscription_id)
    assert (context.push_interval_ms, context.received_at_ns) == (10_000, RECEIVED_AT_NS)
    assert load_.client_instance_id == uuid_to_text(client.id)
    assert load_.content_type == OTLP_CONTENT_TYPE
    assert not load_.terminating


def test_labels_follow_changes_of_connection_and_broker() -> None:
    client = ready()
    client.broker.cluster_id = None
    before = client.push(1, SMALL).push
    client.broker.cluster_id = "learned"
    client.identity = replace(client.identity, principal="User:alice")
    after = client.push(11, SMALL).push
    assert before is not None
    assert after is not None
    assert "cluster_id" not in labels_of(before.payload.metrics)[0]
    assert labels_of(after.payload.metrics)[0]["cluster_id"] == "learned"
    assert labels_of(after.payload.metrics)[0]["principal"] == "User:alice"


def test_dropped_points_and_removed_labels_are_counted() -> None:
    outcome = ready().push(1, payload("java44-consumer-star-01"))
    assert (outcome.metrics.dropped_points, outcome.metrics.removed_labels) == (15, 0)
    data = MetricsData()
    part = data.resource_metrics.add()
    part.resource.attributes.add(key="principal").value.string_value = "forged"
    part.scope_metrics.add().metrics.add(name="a").gauge.data_points.add(as_int=1)
    outcome = ready().push(1, data.SerializeToString())
    assert (outcome.metrics.dropped_points, outcome.metrics.removed_labels) == (0, 1)


PUSHES = [frame for frame in load() if frame.key == 72 and frame.is_request]


@pytest.mark.parametrize("frame", PUSHES, ids=lambda frame: frame.file)
def test_captured_requests_are_accepted_as_by_kafka(frame: Captured) -> None:
    reader = Reader(frame.data)
    header = decode_header(reader, frame)
    request = k72_push_telemetry.decode_request(reader, frame.version)
    telemetry = ClientTelemetry(
        settings=TelemetrySettings(),
        broker=Broker(id=1),
        subscriptions=SubscriptionSet([subscription(interval_ms=1000)]),
        limits=Limits(LimitsSettings()),
        random_bytes=os.urandom,
    )
    connected = connection(client_id=header.client_id)
    outcome = telemetry.push_telemetry(connected, request, now=0, received_at_ns=RECEIVED_AT_NS)
    assert outcome.response.error_code == E.NONE
    assert outcome.identity == replace(connected, client_instance_id=request.client_instance_id)
    if frame.label.startswith("franz"):
        # The subscription was "*", which matches nothing in franz-go.
        assert outcome.push is None
    else:
        assert outcome.push is not None
        assert outcome.push.payload.terminating is request.terminating
        assert labels_of(outcome.push.payload.metrics)[0]["client_id"] == frame.client_id
