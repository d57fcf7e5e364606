"""A push as a Kafka record: what its key and its headers say. Pure.

The value is the push's OTLP bytes, an ``ExportMetricsServiceRequest``: the same that an OpenTelemetry
Collector's Kafka exporter writes as ``otlp_proto``. The key is the client instance's id, so that one client's
pushes keep their order. Headers are text: what the push's labels say, and what isn't in its bytes.
"""

from __future__ import annotations

from receiver.plugin import Push

__all__ = ["FORMAT_VERSION", "headers", "key"]

#: The header ``format_version``. A header may be added; none is renamed or given another meaning.
FORMAT_VERSION = b"1"


def key(push: Push) -> bytes:
    """The client instance's id in Kafka's text form."""
    return push.payload.client_instance_id.encode()


def headers(push: Push) -> list[tuple[str, str | bytes | None]]:
    """The headers, numbers as decimal text; what isn't known (null) has no header."""
    context, payload = push.context, push.payload
    said: list[tuple[str, str | bytes | None]] = [
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
        said.append(("cluster_id", context.cluster_id.encode()))
    if context.sasl_mechanism is not None:
        said.append(("sasl_mechanism", context.sasl_mechanism.encode()))
    return said
