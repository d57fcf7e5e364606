"""A push that was taken, as plugins are handed it.

Owns what they are told of it: who pushed, as far as that may be forwarded, and by what a push is known again.
It must not know how it was taken.
"""

from __future__ import annotations

import hashlib

from receiver.plugin import ClientTelemetryContext, ClientTelemetryPayload, Push
from receiver.telemetry.connection import Broker, Connection
from receiver.telemetry.instance import ClientInstance
from receiver.telemetry.labels import LabelFacts
from receiver.wire.k72_push_telemetry import PushTelemetryRequest

__all__ = ["handed_over"]


def handed_over(
    data: bytes,
    request: PushTelemetryRequest,
    *,
    instance: ClientInstance,
    connection: Connection,
    broker: Broker,
    facts: LabelFacts,
    received_at_ns: int,
) -> Push:
    """Say what plugins get of a push.

    Args:
        data: The labelled bytes of its MetricsData.
        request: The push.
        instance: Whose it is; the push is counted already.
        connection: The connection that it came over.
        broker: The broker beside us.
        facts: The labels that may be forwarded; what is no label, plugins are not told either.
        received_at_ns: When it came, in nanoseconds since the epoch.
    """
    port = facts.client_source_port
    context = ClientTelemetryContext(
        connection_id=connection.id,
        listener=facts.listener or "",
        security_protocol=facts.security_protocol or "",
        source_address=facts.client_source_address or "",
        source_port=port if isinstance(port, int) else 0,
        principal=facts.principal or "",
        client_id=facts.client_id or "",
        client_software_name=facts.client_software_name or "",
        client_software_version=facts.client_software_version or "",
        broker_id=broker.id,
        cluster_id=facts.cluster_id,
        subscription_id=instance.subscription_id,
        push_interval_ms=instance.push_interval_ms,
        received_at_ns=received_at_ns,
        sasl_mechanism=facts.sasl_mechanism,
    )
    payload = ClientTelemetryPayload(
        client_instance_id=instance.text_id,
        terminating=request.terminating,
        data=data,
        sequence=instance.pushes_accepted,
        push_id=_push_id(request),
    )
    return Push(context=context, payload=payload)


def _push_id(request: PushTelemetryRequest) -> str:
    """Name a push so that it has the same name when its client repeats it, also to another broker."""
    identity = hashlib.blake2b(request.client_instance_id, digest_size=16)
    identity.update(request.metrics or b"")
    return identity.hexdigest()
