"""Builds the key and headers of a push's Kafka record.

The value is the push's OTLP bytes, an ``ExportMetricsServiceRequest``, like the OpenTelemetry
Collector's Kafka exporter writes as ``otlp_proto``. The key is the client instance id, so that the
pushes of a client keep their order. The headers are text: the push's labels and the data that its
bytes do not contain.
"""

from __future__ import annotations

from receiver.plugin import Push

__all__ = ["FORMAT_VERSION", "headers", "key"]

#: The ``format_version`` header. Headers may be added, but never renamed or redefined.
FORMAT_VERSION = b"1"


def key(push: Push) -> bytes:
    """Return the client instance id in Kafka's text form."""
    return push.payload.client_instance_id.encode()


def headers(push: Push) -> list[tuple[str, str | bytes | None]]:
    """Return the headers, with numbers as decimal text and without nulls."""
    context, payload = push.context, push.payload
    pairs: list[tuple[str, str | bytes | None]] = [
        ("format_version", FORMAT_VERSION),
        ("push_id", payload.push_id.encode()),
        ("received_at_ns", b"%d" % context.received_at_ns),
        ("sequence", b"%d" % payload.sequence),
        ("terminating", b"true" if payload.terminating else b"false"),
        ("client_id", context.client_id.encode()),
        ("client_software_name", context.client_software_name.encode()),
        ("client_software_version", context.client_software_version.encode()),
        ("principal", context.principal.encode()),
        ("client_source_address", context.source_address.encode()),
        ("client_source_port", b"%d" % context.source_port),
        ("broker_id", b"%d" % context.broker_id),
        ("listener", context.listener.encode()),
        ("security_protocol", context.security_protocol.encode()),
        ("subscription_id", b"%d" % context.subscription_id),
        ("push_interval_ms", b"%d" % context.push_interval_ms),
    ]
    if context.cluster_id is not None:
        pairs.append(("cluster_id", context.cluster_id.encode()))
    if context.sasl_mechanism is not None:
        pairs.append(("sasl_mechanism", context.sasl_mechanism.encode()))
    return pairs
