"""The labels that the receiver owns: who pushed, as attributes of OTLP's Resource.

Owns their names and their bytes. A client's own value for any of them is never believed: it is removed
before these are added. It must not know how a push is taken apart.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from receiver.telemetry.connection import Broker, Connection

__all__ = ["OWNED_LABELS", "LabelFacts", "label_bytes", "label_facts", "length_delimited"]


class LabelFacts(NamedTuple):
    """The labels' values, in the order in which they are added; one that is None is left out.

    ``cluster_id`` is None while it is not known, ``sasl_mechanism`` where the client did not log in by SASL,
    and any of them where a rule of ``telemetry.privacy`` drops it.
    """

    client_id: str | None
    client_instance_id: str | None
    client_software_name: str | None
    client_software_version: str | None
    client_source_address: str | None
    client_source_port: str | int | None
    principal: str | None
    broker_id: str | int | None
    listener: str | None
    security_protocol: str | None
    cluster_id: str | None
    sasl_mechanism: str | None


#: The keys, in that order.
OWNED_LABELS: Final = LabelFacts._fields


def label_facts(client_instance_id: str, connection: Connection, broker: Broker) -> LabelFacts:
    """Take the labels' values from where they are known.

    Args:
        client_instance_id: The client instance's id in Kafka's text form.
        connection: The connection of the push.
        broker: The broker beside us.

    Returns:
        The values; the same values are an equal tuple.
    """
    return LabelFacts(
        connection.client_id,
        client_instance_id,
        connection.client_software_name,
        connection.client_software_version,
        connection.source_address,
        connection.source_port,
        connection.principal,
        broker.id,
        connection.listener,
        connection.security_protocol,
        broker.cluster_id,
        connection.sasl_mechanism,
    )


def label_bytes(facts: LabelFacts) -> bytes:
    """Encode the labels as attributes that can be appended to any Resource's bytes.

    Protobuf appends what comes later to a repeated field, so nothing of the client's has to be encoded again.

    Args:
        facts: The values, from :func:`label_facts`.

    Returns:
        Occurrences of ``Resource.attributes``, each a KeyValue with a string value.

    Source: opentelemetry-proto, ``resource.proto`` and ``common.proto``; the protobuf encoding guide.
    """
    parts = []
    for key, value in zip(OWNED_LABELS, facts, strict=True):
        if value is not None:
            text = str(value).encode("utf-8", "replace")
            any_value = length_delimited(b"\x0a", text)
            key_value = length_delimited(b"\x0a", key.encode()) + length_delimited(b"\x12", any_value)
            parts.append(length_delimited(b"\x0a", key_value))
    return b"".join(parts)


def length_delimited(tag: bytes, content: bytes) -> bytes:
    """Encode a length-delimited protobuf field: its tag, the content's length as a varint, the content."""
    size = len(content)
    if size < 0x80:
        return b"%b%c%b" % (tag, size, content)
    length = bytearray()
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return tag + length + content
