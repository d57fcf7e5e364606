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
from receiver.telemetry.current_subscriptions import CurrentSubscriptions
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
    Client,
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
    client.identity = replace(client.identity, broker=Broker(id=1))
    before = client.push(1, SMALL).push
    client.identity = replace(
        client.identity, broker=Broker(id=1, cluster_id="learned"), principal="User:alice"
    )
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


def push_ids(client: Client, *contents: tuple[bytes, int]) -> list[str]:
    """Push each content in the given codec; return the push ids."""
    outcomes = [
        client.push(10 * number, COMPRESSED[codec](data), compression_type=codec)
        for number, (data, codec) in enumerate(contents, 1)
    ]
    return [outcome.push.payload.push_id for outcome in outcomes if outcome.push is not None]


def test_metrics_compressed_anew_are_a_repeat() -> None:
    contents = [(SMALL, codec) for codec in COMPRESSED]
    client = ready()
    ids = push_ids(client, *contents)
    assert len(ids) == len(contents)
    assert len(set(ids)) == 1
    elsewhere = Client(subscription(), connected=connection(id="another broker"))
    elsewhere.id, elsewhere.subscription_id = client.id, client.subscription_id
    assert push_ids(elsewhere, (SMALL, 0)) == ids[:1], "at another broker, too"
    assert not set(push_ids(ready(), (SMALL, 0))) & set(ids), "another instance"


def test_a_terminating_push_is_no_repeat_of_the_push_before() -> None:
    client = ready()
    last = client.push(1, SMALL).push
    end = client.push(2, SMALL, terminating=True).push
    assert last is not None
    assert end is not None
    assert last.payload.push_id != end.payload.push_id


NO_POINTS = MetricsData()
NO_POINTS.resource_metrics.add().scope_metrics.add().metrics.add(name="a")
NO_METRICS = MetricsData()
NO_METRICS.resource_metrics.add().scope_metrics.add().scope.name = "franz"
NOT_MEASURED = MetricsData()
_points = NOT_MEASURED.resource_metrics.add().scope_metrics.add().metrics.add(name="a").gauge.data_points
_points.add(as_double=float("nan"))


@pytest.mark.parametrize(
    "empty", [b"", *(data.SerializeToString() for data in (NO_POINTS, NO_METRICS, NOT_MEASURED))]
)
def test_pushes_without_points_are_no_repeats_of_each_other(empty: bytes) -> None:
    client = ready()
    ids = push_ids(client, *[(empty, 0)] * 3)
    end = client.push(31, empty, terminating=True).push
    assert end is not None
    assert len({*ids, end.payload.push_id}) == 4
    assert end.payload.terminating
    assert {len(push_id) for push_id in ids} == {32}


PUSHES = [frame for frame in load() if frame.key == 72 and frame.is_request]


@pytest.mark.parametrize("frame", PUSHES, ids=lambda frame: frame.file)
def test_captured_requests_are_accepted_as_by_kafka(frame: Captured) -> None:
    reader = Reader(frame.data)
    header = decode_header(reader, frame)
    request = k72_push_telemetry.decode_request(reader, frame.version)
    telemetry = ClientTelemetry(
        settings=TelemetrySettings(),
        subscriptions=CurrentSubscriptions(SubscriptionSet([subscription(interval_ms=1000)])),
        limits=Limits(LimitsSettings()),
        random_bytes=os.urandom,
    )
    connected = connection(client_id=header.client_id)
    outcome = telemetry.push_telemetry(connected, request, now=0, received_at_ns=RECEIVED_AT_NS)
    assert outcome.response.error_code == E.NONE
    assert outcome.identity == replace(connected, client_instance_id=request.client_instance_id)
    assert outcome.push is not None
    assert outcome.push.payload.terminating is request.terminating
    if frame.label.startswith("franz"):
        # The subscription was "*", which matches nothing in franz-go.
        assert outcome.push.payload.data == b""
    else:
        assert labels_of(outcome.push.payload.metrics)[0]["client_id"] == frame.client_id
