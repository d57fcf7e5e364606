"""``/v1/connections``: open client connections (KIP-511, connection registry)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final, TypeAlias

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from receiver.api.cluster import answer_list, cluster_list_responses
from receiver.api.dependencies import Dependencies
from receiver.api.filters import ConnectionQuery, ConnectionState, connection_state, matching_connections
from receiver.api.pages import first_page
from receiver.api.problems import InvalidError, field_error
from receiver.cluster.merge import Item, Order
from receiver.numbers import whole_number
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.instance import ClientInstance

router = APIRouter(prefix="/v1/connections", tags=["connections"])


#: Milliseconds since the epoch, connection id and receiver id.
_Place: TypeAlias = tuple[int, str, str]

_MAX_MS: Final = 10**14


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1e6) // 1000


def _rfc3339(milliseconds: int) -> str:
    text = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


class ConnectionFields(BaseModel):
    """The fields that connections and client instances share."""

    listener: str
    source_address: str
    source_port: int | None = Field(description="null: Kafka 3.7 does not show it to a bridge.")
    client_id: str
    client_software_name: str
    client_software_version: str
    principal: str
    sasl_mechanism: str | None = Field(description="The SASL mechanism of the login; null without SASL.")


class ConnectionView(ConnectionFields):
    """An open client connection."""

    id: str = Field(description="Unique in its receiver until that restarts.")
    security_protocol: str
    client_instance_id: str | None = Field(
        description="In Kafka's text form, 22 characters; null until the client has sent one.",
    )
    since: str = Field(description="When it was accepted (RFC 3339, UTC).")
    state: ConnectionState = Field(
        description="The state of the client instance whose latest telemetry request came over it."
    )

    receiver: str | None = Field(default=None, description="With `scope=cluster`: the receiver that has it.")


def _position(connection: Item) -> _Place:
    since = datetime.fromisoformat(connection["since"]).timestamp()
    return (_milliseconds(since), str(connection["id"]), connection["receiver"])


def _cursor(place: _Place) -> str:
    # The cursor holds the position, because the connection may be closed when the next page is
    # asked for.
    since, connection_id, receiver = place
    return f"{since}/{receiver}/{connection_id}"


_ORDER: Final = Order(position=_position, cursor=lambda connection: _cursor(_position(connection)))


@router.get(
    "", summary="List the open connections, oldest first", responses=cluster_list_responses(ConnectionView)
)
async def list_connections(
    dependencies: Dependencies, query: Annotated[ConnectionQuery, Query()]
) -> Response:
    """List the open connections, oldest first.

    With filters, only those that pass all of them.
    """
    start = None if query.after is None else _place_of(query.after)
    page = partial(
        _page,
        dependencies.connections(),
        list(dependencies.telemetry.instances),
        start=start,
        receiver=dependencies.cluster.receiver_id,
        now=dependencies.monotonic(),
    )
    return await answer_list(dependencies.cluster, "/v1/connections", query, page, _ORDER)


def _page(
    identities: Sequence[ClientIdentity],
    instances: Sequence[ClientInstance],
    query: ConnectionQuery,
    *,
    start: _Place | None,
    receiver: str,
    now: float,
) -> dict[str, Any]:
    def place(identity: ClientIdentity) -> _Place:
        return (_milliseconds(identity.since), identity.id, receiver)

    by_connection = {instance.identity.id: instance for instance in instances if not instance.is_expired(now)}
    later = identities if start is None else [identity for identity in identities if place(identity) > start]
    found, following = first_page(
        matching_connections(later, query, by_connection, now),
        query.limit,
        lambda identity: _cursor(place(identity)),
        place,
    )
    return {
        "items": [
            _document(connection, connection_state(by_connection.get(connection.id), now))
            for connection in found
        ],
        "next": following,
    }


def connection_fields(identity: ClientIdentity) -> dict[str, Any]:
    """Return what :class:`ConnectionFields` describes."""
    return {
        "listener": identity.listener,
        "source_address": identity.source_address,
        "source_port": identity.source_port or None,
        "client_id": identity.client_id,
        "client_software_name": identity.client_software_name,
        "client_software_version": identity.client_software_version,
        "principal": identity.principal,
        "sasl_mechanism": identity.sasl_mechanism,
    }


def _document(identity: ClientIdentity, state: ConnectionState) -> dict[str, Any]:
    return {
        **connection_fields(identity),
        "id": identity.id,
        "security_protocol": identity.security_protocol,
        "client_instance_id": identity.instance_text,
        "since": _rfc3339(_milliseconds(identity.since)),
        "state": state,
    }


def _place_of(cursor: str) -> _Place:
    since, _, rest = cursor.partition("/")
    receiver, _, connection_id = rest.partition("/")
    milliseconds = whole_number(since, _MAX_MS)
    if milliseconds is None:
        raise InvalidError(field_error(("after",), cursor, "expected the `next` of the previous page"))
    return (milliseconds, connection_id, receiver)
