"""Names the fields of a push, which Kafka records and files have in common."""

from __future__ import annotations

from receiver.plugin import Push


def push_fields(push: Push) -> dict[str, str | int | None]:
    """Return the fields of a push without its OTLP bytes.

    Fields may be added, but never renamed or redefined.
    """
    context, payload = push.context, push.payload
    return {
        "push_id": payload.push_id,
        "client_instance_id": payload.client_instance_id,
        "received_at_ns": context.received_at_ns,
        "sequence": payload.sequence,
        "terminating": payload.terminating,
        "client_id": context.client_id,
        "client_software_name": context.client_software_name,
        "client_software_version": context.client_software_version,
        "principal": context.principal,
        "client_source_address": context.source_address,
        "client_source_port": context.source_port,
        "broker_id": context.broker_id,
        "listener": context.listener,
        "security_protocol": context.security_protocol,
        "subscription_id": context.subscription_id,
        "push_interval_ms": context.push_interval_ms,
        "cluster_id": context.cluster_id,
        "sasl_mechanism": context.sasl_mechanism,
    }
