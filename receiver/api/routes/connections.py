"""``/v1/connections``: open client connections (KIP-511, connection registry)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from receiver.api.background import in_background, json_response
from receiver.api.dependencies import Dependencies
from receiver.api.filters import ConnectionQuery, ConnectionState, connection_state, matching_connections
from receiver.api.pages import first_page, list_responses
from receiver.api.problems import InvalidError, field_error
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.instance import ClientInstance

router = APIRouter(prefix="/v1/connections", tags=["connections"])


def _rfc3339(seconds: float) -> str:
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
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

    id: str = Field(description="Unique until the receiver restarts.")
    security_protocol: str
    client_instance_id: str | None = Field(
        description="In Kafka's text form, 22 characters; null until the client has sent one.",
    )
    since: str = Field(description="When it was accepted (RFC 3339, UTC).")
    state: ConnectionState = Field(
        description="The state of the client instance whose latest telemetry request came over it."
    )


@router.get("", summary="List the open connections, oldest first", responses=list_responses(ConnectionView))
async def list_connections(
    dependencies: Dependencies, query: Annotated[ConnectionQuery, Query()]
) -> Response:
    """List the open connections, oldest first.

    With filters, only those that pass all of them.
    """
    start = None if query.after is None else _position(query.after)
    identities = dependencies.connections()
    instances = list(dependencies.telemetry.instances)
    now = dependencies.monotonic()
    return json_response(await in_background(_page, identities, instances, query, start, now))


def _page(
    identities: Sequence[ClientIdentity],
    instances: Sequence[ClientInstance],
    query: ConnectionQuery,
    start: tuple[float, str] | None,
    now: float,
) -> dict[str, Any]:
    by_connection = {instance.identity.id: instance for instance in instances if not instance.is_expired(now)}
    later = identities if start is None else [identity for identity in identities if _order(identity) > start]
    found, following = first_page(
        matching_connections(later, query, by_connection, now), query.limit, _cursor, _order
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
        "since": _rfc3339(identity.since),
        "state": state,
    }


def _order(identity: ClientIdentity) -> tuple[float, str]:
    return (identity.since, identity.id)


def _cursor(identity: ClientIdentity) -> str:
    # The cursor holds the position, because the connection may be closed when the next page is
    # asked for.
    return f"{identity.since!r}/{identity.id}"


def _position(cursor: str) -> tuple[float, str]:
    since, _, connection_id = cursor.partition("/")
    try:
        time = float(since)
    except ValueError:
        time = math.nan
    if not math.isfinite(time):
        raise InvalidError(field_error(("after",), cursor, "expected the `next` of the previous page"))
    return (time, connection_id)
