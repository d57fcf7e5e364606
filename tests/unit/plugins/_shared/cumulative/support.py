"""Test helpers: short ways to write pushes of one metric or a few."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, MetricsData
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from receiver.plugin import ClientTelemetryContext, ClientTelemetryPayload, Push

SECOND = 1_000_000_000
#: Start of the tests' time.
BEGIN = 1_700_000_000 * SECOND
INTERVAL_MS = 10_000
DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def attributes(values: Mapping[str, str | int]) -> list[KeyValue]:
    return [
        KeyValue(
            key=key,
            value=AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value),
        )
        for key, value in values.items()
    ]


def number(
    value: float, *, at: float, since: float = 0.0, labels: Mapping[str, str | int] | None = None
) -> Any:
    """Return a NumberDataPoint's fields; ``at`` and ``since`` are seconds after BEGIN."""
    return {
        "as_int" if isinstance(value, int) else "as_double": value,
        "time_unix_nano": BEGIN + int(at * SECOND),
        "start_time_unix_nano": BEGIN + int(since * SECOND),
        "attributes": attributes(labels or {}),
    }


def counter(
    name: str, *points: Any, temporality: Any = DELTA, monotonic: bool = True, unit: str = ""
) -> Metric:
    metric = Metric(name=name, unit=unit)
    metric.sum.aggregation_temporality = temporality
    metric.sum.is_monotonic = monotonic
    for point in points:
        metric.sum.data_points.add(**point)
    return metric


def gauge(name: str, *points: Any, unit: str = "") -> Metric:
    metric = Metric(name=name, unit=unit)
    for point in points:
        metric.gauge.data_points.add(**point)
    return metric


def metrics_data(*metrics: Metric, resource: Mapping[str, str | int] | None = None) -> bytes:
    data = MetricsData()
    resource_metrics = data.resource_metrics.add()
    resource_metrics.resource.CopyFrom(Resource(attributes=attributes(resource or {})))
    resource_metrics.scope_metrics.add().metrics.extend(metrics)
    return data.SerializeToString()


def push(
    *metrics: Metric,
    at: float,
    instance: str = "AAAAAAAAAAAAAAAAAAAAAQ",
    sequence: int | None = None,
    terminating: bool = False,
    resource: Mapping[str, str | int] | None = None,
    data: bytes | None = None,
    push_id: str | None = None,
    interval_ms: int = INTERVAL_MS,
    principal: str = "User:alice",
    address: str = "127.0.0.1",
) -> Push:
    """Return a push received ``at`` seconds after BEGIN; empty without metrics and data."""
    if data is None:
        data = metrics_data(*metrics, resource=resource) if metrics else b""
    return Push(
        context=ClientTelemetryContext(
            connection_id="c-1",
            listener="CLIENT",
            security_protocol="PLAINTEXT",
            source_address=address,
            source_port=40000,
            principal=principal,
            client_id="orders",
            client_software_name="apache-kafka-java",
            client_software_version="4.4.0",
            broker_id=1,
            cluster_id="5L6g3nShT-eMCtK--X86sw",
            subscription_id=7,
            push_interval_ms=interval_ms,
            received_at_ns=BEGIN + int(at * SECOND),
        ),
        payload=ClientTelemetryPayload(
            client_instance_id=instance,
            terminating=terminating,
            data=data,
            sequence=1 + int(at * 1000) if sequence is None else sequence,
            push_id=f"{instance}-{at}" if push_id is None else push_id,
        ),
    )


def points(data: bytes) -> Iterable[tuple[Metric, Any]]:
    """Yield every metric with each of its points, parsed as a destination parses them."""
    for resource_metrics in MetricsData.FromString(data).resource_metrics:
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                form = metric.WhichOneof("data")
                assert form is not None
                for point in getattr(metric, form).data_points:
                    yield metric, point
