"""Builders of pushes, labelled and spooled as by the receiver."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_DELTA,
    MetricsData,
    NumberDataPoint,
)

from plugins.spool_files.columns import SCHEMA

SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS

CONNECTIONS = "org.apache.kafka.producer.connection.creation.total"
ASSIGNED = "org.apache.kafka.consumer.coordinator.assigned.partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client instance."""

    instance: str
    client_id: str = "orders"
    name: str = "apache-kafka-java"
    version: str = "4.2.0"
    principal: str = "User:alice"

    def labels(self) -> Mapping[str, str]:
        """What the receiver writes into the resource."""
        return {
            "client_instance_id": self.instance,
            "client_id": self.client_id,
            "client_software_name": self.name,
            "client_software_version": self.version,
            "principal": self.principal,
            "cluster_id": "cluster-1",
            "broker_id": "1",
            "client_owner": "payments",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Spooled:
    """A push as a row of the spool."""

    client: Client
    received_at_ns: int
    otlp: bytes
    push_id: str = ""
    sequence: int = 1
    terminating: bool = False
    push_interval_ms: int = 60_000

    def row(self) -> dict[str, object]:
        """Its columns."""
        identity = self.push_id or hashlib.md5(self.client.instance.encode() + self.otlp).hexdigest()
        return {
            "push_id": identity,
            "client_instance_id": self.client.instance,
            "received_at": self.received_at_ns // 1000,
            "received_at_ns": self.received_at_ns,
            "sequence": self.sequence,
            "terminating": self.terminating,
            "client_id": self.client.client_id,
            "client_software_name": self.client.name,
            "client_software_version": self.client.version,
            "principal": self.client.principal,
            "client_source_address": "127.0.0.1",
            "client_source_port": 50_000,
            "broker_id": 1,
            "cluster_id": "cluster-1",
            "listener": "CLIENT",
            "security_protocol": "PLAINTEXT",
            "sasl_mechanism": None,
            "subscription_id": 1,
            "push_interval_ms": self.push_interval_ms,
            "otlp": self.otlp,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What a client says at one time: delta sums and gauges by metric."""

    sums: Mapping[str, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)


def otlp(time_ns: int, clients: Mapping[Client, Values] | Iterable[tuple[Client, Values]]) -> bytes:
    """MetricsData with a resource for each client."""
    data = MetricsData()
    for client, values in dict(clients).items():
        resource = data.resource_metrics.add()
        for key, value in client.labels().items():
            resource.resource.attributes.add(key=key).value.string_value = value
        scope = resource.scope_metrics.add()
        for name, number in values.sums.items():
            metric = scope.metrics.add(name=name)
            metric.sum.is_monotonic = True
            metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
            metric.sum.data_points.append(NumberDataPoint(time_unix_nano=time_ns, as_double=number))
        for name, number in values.gauges.items():
            metric = scope.metrics.add(name=name)
            metric.gauge.data_points.append(NumberDataPoint(time_unix_nano=time_ns, as_double=number))
    return data.SerializeToString()


def push(
    client: Client, at_ns: int, values: Values | None = None, *, terminating: bool = False, **other: int
) -> Spooled:
    """One client's push, received a second after it was measured."""
    return Spooled(
        client=client,
        received_at_ns=at_ns + SECOND_NS,
        otlp=otlp(at_ns, {client: values or Values(sums={CONNECTIONS: 1.0})}),
        terminating=terminating,
        **other,  # type: ignore[arg-type]  # its whole numbers
    )


def spool(folder: Path, name: str, pushes: Iterable[Spooled]) -> Path:
    """Write a file as the plugin does: whole, under another name first."""
    into = folder / "date=2026-01-31" / "hour=13"
    into.mkdir(parents=True, exist_ok=True)
    hidden, shown = into / f"_{name}", into / f"{name}.parquet"
    pq.write_table(pa.Table.from_pylist([item.row() for item in pushes], schema=SCHEMA), hidden)
    hidden.replace(shown)
    return shown
