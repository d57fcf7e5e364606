"""Builders for OTLP pushes, and labels for them."""

from __future__ import annotations

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ResourceMetrics, ScopeMetrics

from receiver.settings.model import TelemetrySettings
from receiver.telemetry.identity import Broker
from receiver.telemetry.labels import identity_labels, label_bytes, length_delimited
from receiver.telemetry.otlp import LabelledMetrics, label_metrics
from tests.unit.telemetry.parts import client

MAX_ENTRIES = TelemetrySettings().max_entries
NAN = b"\x21\x00\x00\x00\x00\x00\x00\xf8\x7f"

FACTS = identity_labels(
    client(sasl_mechanism="SCRAM-SHA-512", broker=Broker(id=3, cluster_id="5L6g3nShT-eMCtK--X86sw")),
    owner="payments",
)
LABELS = label_bytes(FACTS)
EXPECTED = {
    "client_id": "java-producer",
    "client_instance_id": "7wk08yJMQAOK9PUGl2Zmrg",
    "client_software_name": "apache-kafka-java",
    "client_software_version": "4.4.0",
    "client_source_address": "10.0.0.7",
    "client_source_port": "51234",
    "principal": "User:ANONYMOUS",
    "broker_id": "3",
    "listener": "CLIENT",
    "security_protocol": "PLAINTEXT",
    "cluster_id": "5L6g3nShT-eMCtK--X86sw",
    "sasl_mechanism": "SCRAM-SHA-512",
    "client_owner": "payments",
}


def attribute(key: str, value: str = "forged") -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def gauge(name: str, *values: float, attributes: tuple[str, ...] = ()) -> Metric:
    metric = Metric(name=name)
    for value in values:
        point = metric.gauge.data_points.add(attributes=[attribute(key) for key in attributes])
        if type(value) is int:
            point.as_int = value
        else:
            point.as_double = value
    return metric


def resource_metrics(*metrics: Metric, scope: str | None = None, **attributes: str) -> ResourceMetrics:
    scope_metrics = ScopeMetrics(metrics=metrics)
    if scope is not None:
        scope_metrics.scope.name = scope
    made = ResourceMetrics(scope_metrics=[scope_metrics])
    if attributes:
        made.resource.attributes.extend(attribute(key, value) for key, value in attributes.items())
    return made


def in_all(metric: bytes) -> bytes:
    """Put an encoded Metric into a MetricsData."""
    return length_delimited(b"\x0a", length_delimited(b"\x12", length_delimited(b"\x12", metric)))


def push(*parts: ResourceMetrics) -> bytes:
    return MetricsData(resource_metrics=parts).SerializeToString()


def label(data: bytes) -> tuple[LabelledMetrics, MetricsData]:
    labelled = label_metrics(data, LABELS, max_entries=MAX_ENTRIES)
    return labelled, MetricsData.FromString(labelled.data)
