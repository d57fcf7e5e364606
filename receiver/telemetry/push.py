"""Builds the :class:`~receiver.plugin.Push` that plugins get from an accepted push request."""

from __future__ import annotations

import hashlib

from receiver.plugin import ClientTelemetryContext, ClientTelemetryPayload, Push
from receiver.telemetry.identity import Broker, ClientIdentity
from receiver.telemetry.instance import ClientInstance
from receiver.telemetry.labels import Labels
from receiver.wire.k72_push_telemetry import PushTelemetryRequest

__all__ = ["build_push"]


def build_push(
    data: bytes,
    request: PushTelemetryRequest,
    *,
    instance: ClientInstance,
    identity: ClientIdentity,
    broker: Broker,
    labels: Labels,
    received_at_ns: int,
) -> Push:
    """Build the push for plugins from a MetricsData and its labels.

    The labels are those after folding and privacy rules, so that plugins see nothing more than
    destinations do. The instance has counted the push already.
    """
    port = labels.client_source_port
    context = ClientTelemetryContext(
        connection_id=identity.id,
        listener=labels.listener or "",
        security_protocol=labels.security_protocol or "",
        source_address=labels.client_source_address or "",
        source_port=port if isinstance(port, int) else 0,
        principal=labels.principal or "",
        client_id=labels.client_id or "",
        client_software_name=labels.client_software_name or "",
        client_software_version=labels.client_software_version or "",
        broker_id=broker.id,
        cluster_id=labels.cluster_id,
        subscription_id=instance.subscription_id,
        push_interval_ms=instance.push_interval_ms,
        received_at_ns=received_at_ns,
        sasl_mechanism=labels.sasl_mechanism,
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
    """Hash the push: a repeated push has the same id, even at another broker."""
    identity = hashlib.blake2b(request.client_instance_id, digest_size=16)
    identity.update(request.metrics or b"")
    return identity.hexdigest()
