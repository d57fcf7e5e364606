"""The receiver's labels: Resource attributes that say who pushed from where.

Owns their names and their encoding. The receiver removes a client's own values for these keys
first, because a client could forge them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from receiver.telemetry.identity import ClientIdentity


class Labels(NamedTuple):
    """The values of the labels, in the order in which they are added.

    None leaves a label out.

    ``broker_id`` and ``cluster_id`` are None while they are unknown, ``client_source_port`` if it
    stays unknown, ``sasl_mechanism`` without a SASL login, ``client_owner`` without a declared
    owner, and any label that a rule of ``telemetry.privacy`` drops.
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
    client_owner: str | None


#: The keys, in that order.
OWNED_LABELS: Final = Labels._fields


#: Labels without any value.
NO_LABELS: Final = Labels(*[None] * len(OWNED_LABELS))


def identity_labels(identity: ClientIdentity, owner: str | None = None) -> Labels:
    """Return the labels of a client and its owner."""
    return Labels(
        client_id=identity.client_id,
        client_instance_id=identity.instance_text,
        client_software_name=identity.client_software_name,
        client_software_version=identity.client_software_version,
        client_source_address=identity.source_address,
        client_source_port=identity.source_port or None,
        principal=identity.principal,
        broker_id=identity.broker.id,
        listener=identity.listener,
        security_protocol=identity.security_protocol,
        cluster_id=identity.broker.cluster_id,
        sasl_mechanism=identity.sasl_mechanism,
        client_owner=owner,
    )


def label_bytes(labels: Labels) -> bytes:
    """Encode the labels as attributes that any Resource's bytes can end with.

    Protobuf appends later occurrences of a repeated field, so the client's bytes need no
    re-encoding (opentelemetry-proto, ``resource.proto`` and ``common.proto``).
    """
    parts = []
    for key, value in zip(OWNED_LABELS, labels, strict=True):
        if value is not None:
            text = str(value).encode("utf-8", "replace")
            any_value = length_delimited(b"\x0a", text)
            key_value = length_delimited(b"\x0a", key.encode()) + length_delimited(b"\x12", any_value)
            parts.append(length_delimited(b"\x0a", key_value))
    return b"".join(parts)


def length_delimited(tag: bytes, content: bytes) -> bytes:
    """Encode a length-delimited protobuf field: tag, length as a varint, content."""
    size = len(content)
    if size < 0x80:
        return b"%b%c%b" % (tag, size, content)
    length = bytearray()
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return tag + length + content
