"""Builds the push that plugins get from accepted metrics, and its id."""

from __future__ import annotations

import hashlib
from typing import Final

from receiver.plugin import NO_NODE_ID, ClientTelemetryContext, ClientTelemetryPayload, Push
from receiver.telemetry.instance import ClientInstance
from receiver.telemetry.labels import Labels
from receiver.wire.uuid import Uuid

#: Hexadecimal digits of a push id.
_ID_DIGITS: Final = 32


def build_push(
    data: bytes,
    *,
    push_id: str,
    terminating: bool,
    sequence: int,
    instance: ClientInstance,
    labels: Labels,
    received_at_ns: int,
    request_version: int | None = None,
    correlation_id: int | None = None,
) -> Push:
    """Build the push for plugins from a MetricsData and its labels.

    The labels are those after folding and privacy rules, so that plugins see nothing more than
    destinations do. ``sequence`` is the number of the push, or 0 for the end of the client's
    connection.
    """
    port = labels.client_source_port
    broker_id = instance.identity.broker.id
    context = ClientTelemetryContext(
        connection_id=instance.identity.id,
        listener=labels.listener or "",
        security_protocol=labels.security_protocol or "",
        source_address=labels.client_source_address or "",
        source_port=port if isinstance(port, int) else 0,
        principal=labels.principal or "",
        client_id=labels.client_id or "",
        client_software_name=labels.client_software_name or "",
        client_software_version=labels.client_software_version or "",
        broker_id=NO_NODE_ID if broker_id is None else broker_id,
        cluster_id=labels.cluster_id,
        subscription_id=instance.request.subscription_id,
        push_interval_ms=instance.push_interval_ms,
        received_at_ns=received_at_ns,
        sasl_mechanism=labels.sasl_mechanism,
        request_version=request_version,
        correlation_id=correlation_id,
    )
    payload = ClientTelemetryPayload(
        client_instance_id=instance.text_id,
        terminating=terminating,
        data=data,
        sequence=sequence,
        push_id=push_id,
    )
    return Push(context=context, payload=payload)


def content_id(client_instance_id: Uuid, metrics: bytes, *, terminating: bool) -> str:
    """Return the push id of inflated metrics.

    It is the same for a repeat, even at another broker.

    The codec does not matter, because a client may compress the same metrics anew. A terminating
    push is no repeat of the push before it, because it says more.
    """
    # SHA-256, because processors compute it faster than BLAKE2, and the metrics are inflated.
    digest = hashlib.sha256(b"%b%c" % (client_instance_id, terminating))
    digest.update(metrics)
    return digest.hexdigest()[:_ID_DIGITS]


def empty_id(client_instance_id: Uuid, broker_id: int | None, received_at_ns: int, sequence: int) -> str:
    """Return the push id of a push without data points: another one for each push.

    All of them may have the same bytes, so :func:`content_id` would make each a repeat of the
    first. They have nothing to count twice, but each says that the client lives, or that it ends.
    """
    text = " ".join(map(str, (broker_id, received_at_ns, sequence)))
    return hashlib.sha256(b"empty" + client_instance_id + text.encode()).hexdigest()[:_ID_DIGITS]
