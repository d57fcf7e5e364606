"""Writes OpenTelemetry's names of attributes in place of Kafka's, or beside them.

Source: OpenTelemetry semantic conventions, "Messaging", "Kafka" and "Client attributes".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

#: OpenTelemetry's names of Resource attributes.
RESOURCE_NAMES: Final[Mapping[str, str]] = {
    "client_id": "messaging.client.id",
    "client_instance_id": "service.instance.id",
    "client_source_address": "client.address",
    "client_source_port": "client.port",
    "group_id": "messaging.consumer.group.name",
}
#: OpenTelemetry's names of attributes of data points.
POINT_NAMES: Final[Mapping[str, str]] = {
    "partition": "messaging.destination.partition.id",
    "topic": "messaging.destination.name",
}
_SYSTEM: Final = "messaging.system"
#: Only the receiver knows who a client is, so a client's own values are removed.
_RESERVED: Final = frozenset({*RESOURCE_NAMES.values(), _SYSTEM})


def renamed(data: bytes, *, both: bool) -> bytes:
    """Return a MetricsData with OpenTelemetry's names."""
    metrics = MetricsData.FromString(data)
    for resource_metrics in metrics.resource_metrics:
        attributes = resource_metrics.resource.attributes
        _remove(attributes, _RESERVED)
        _rename(attributes, RESOURCE_NAMES, both=both)
        attributes.add(key=_SYSTEM).value.string_value = "kafka"
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                kind = metric.WhichOneof("data")
                for point in () if kind is None else getattr(metric, kind).data_points:
                    _rename(point.attributes, POINT_NAMES, both=both)
    return metrics.SerializeToString()


def _rename(attributes: Any, names: Mapping[str, str], *, both: bool) -> None:
    found = [attribute for attribute in attributes if attribute.key in names]
    _remove(attributes, {names[attribute.key] for attribute in found})
    for attribute in found:
        if both:
            attributes.add(key=names[attribute.key]).value.CopyFrom(attribute.value)
        else:
            attribute.key = names[attribute.key]


def _remove(attributes: Any, keys: frozenset[str] | set[str]) -> None:
    for index in reversed(range(len(attributes))):
        if attributes[index].key in keys:
            del attributes[index]
