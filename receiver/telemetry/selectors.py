"""Selectors: the values of a client that subscriptions match.

Owns the table of selectors (KIP-714, "Client metrics configuration", and the receiver's own). A new
selector is one line in :data:`SELECTORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from receiver.telemetry.identity import MAX_TEXT_CHARS, ClientIdentity

#: Behind a selector's name: the pattern must not match.
NEGATION: Final = "!"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revealed:
    """What the Resource of a client's pushes says of it.

    None while no push has said it.

    Source: KIP-714, "Client resource attributes".
    """

    client_rack: str | None = None
    group_id: str | None = None
    group_member_id: str | None = None
    transactional_id: str | None = None
    application_id: str | None = None  # of Kafka Streams, in KIP-714's draft


#: The client has not pushed yet, or its pushes name none of the attributes.
NOTHING_REVEALED: Final = Revealed()

#: How each selector reads its value from a client. KIP-714's selectors come first, in its order. A
#: selector has the name of the label or the Resource attribute with the same value.
SELECTORS: Final[Mapping[str, Callable[[ClientIdentity, Revealed], str | int | None]]] = {
    "client_instance_id": lambda client, _: client.instance_text,
    "client_id": lambda client, _: client.client_id,
    "client_software_name": lambda client, _: client.client_software_name,
    "client_software_version": lambda client, _: client.client_software_version,
    "client_source_address": lambda client, _: client.source_address,
    "client_source_port": lambda client, _: client.source_port,
    "principal": lambda client, _: client.principal,
    "listener": lambda client, _: client.listener,
    "security_protocol": lambda client, _: client.security_protocol,
    "client_rack": lambda _, revealed: revealed.client_rack,
    "group_id": lambda _, revealed: revealed.group_id,
    "group_member_id": lambda _, revealed: revealed.group_member_id,
    "transactional_id": lambda _, revealed: revealed.transactional_id,
    "application_id": lambda _, revealed: revealed.application_id,
}

#: The selectors whose value a push reveals.
REVEALED_SELECTORS: Final = (
    "client_rack",
    "group_id",
    "group_member_id",
    "transactional_id",
    "application_id",
)

#: Attributes under the names that clients give them. librdkafka's name of the member is its own.
_REVEALED_BY: Final = {**{name: name for name in REVEALED_SELECTORS}, "member_id": "group_member_id"}


def selector_of(condition: str) -> tuple[str, bool]:
    """Split a key of ``match`` into the selector's name and whether it is negated."""
    return condition.removesuffix(NEGATION), condition.endswith(NEGATION)


def selector_value(selector: str, client: ClientIdentity, revealed: Revealed) -> bytes:
    """Return a client's value for a selector in UTF-8; empty while it is unknown."""
    value = SELECTORS[selector](client, revealed)
    # A client id may be any bytes, and text that UTF-8 cannot encode must not raise here.
    return b"" if value is None else str(value).encode("utf-8", "replace")


def reveal(resource: bytes) -> Revealed:
    """Read the attributes that selectors match, each cut at 512 characters.

    The bytes are those of a validated push. Of an attribute that is given twice, the last counts.
    """
    found: dict[str, str] = {}
    for attribute in Resource.FromString(resource).attributes:
        selector = _REVEALED_BY.get(attribute.key)
        if selector is not None and attribute.value.HasField("string_value"):
            found[selector] = attribute.value.string_value[:MAX_TEXT_CHARS]
    return Revealed(**found) if found else NOTHING_REVEALED
