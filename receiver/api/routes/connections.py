"""``/v1/connections``: the open client connections (KIP-511, "Connection registry")."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter
from pydantic import BaseModel, Field

from receiver.api.dependencies import Dependencies
from receiver.api.pages import After, Limit, Page, first_page, in_portions
from receiver.api.problems import Problem, ProblemError, field_error
from receiver.telemetry.connection import Connection
from receiver.wire.uuid import uuid_to_text

__all__ = ["ConnectionView", "router"]

router = APIRouter(prefix="/v1/connections", tags=["connections"])


class ConnectionView(BaseModel):
    """An open client connection."""

    id: str = Field(description="Unique until the receiver restarts.")
    listener: str
    security_protocol: str
    source_address: str
    source_port: int
    client_id: str
    client_software_name: str
    client_software_version: str
    client_instance_id: str | None = Field(description="Null until the client has sent one.")
    principal: str
    sasl_mechanism: str | None = Field(description="The SASL mechanism of the login; null without SASL.")
    since: str = Field(description="When it was accepted (RFC 3339, UTC).")


@router.get("", summary="List the open connections, oldest first", responses={422: {"model": Problem}})
async def list_connections(
    dependencies: Dependencies, limit: Limit = 100, after: After = None
) -> Page[ConnectionView]:
    """List the open connections, oldest first."""
    start = None if after is None else _position(after)
    found = (one for one in dependencies.connections() if start is None or _order(one) > start)
    page, following = first_page(found, limit, _cursor, _order)
    return Page(items=[_view(connection) async for connection in in_portions(page)], next=following)


def _order(connection: Connection) -> tuple[float, str]:
    return (connection.since, connection.id)


def _cursor(connection: Connection) -> str:
    # The cursor holds the position, because the connection may be closed when the next page is
    # asked for.
    return f"{connection.since!r}/{connection.id}"


def _position(cursor: str) -> tuple[float, str]:
    since, _, connection_id = cursor.partition("/")
    try:
        return (float(since), connection_id)
    except ValueError:
        detail = "expected the `next` of the previous page"
        raise ProblemError(422, f"after: {detail}", [field_error(("after",), cursor, detail)]) from None


def _view(connection: Connection) -> ConnectionView:
    since = datetime.fromtimestamp(connection.since, UTC).isoformat(timespec="milliseconds")
    instance = connection.client_instance_id
    return ConnectionView(
        id=connection.id,
        listener=connection.listener,
        security_protocol=connection.security_protocol,
        source_address=connection.source_address,
        source_port=connection.source_port,
        client_id=connection.client_id,
        client_software_name=connection.client_software_name,
        client_software_version=connection.client_software_version,
        client_instance_id=None if instance is None else uuid_to_text(instance),
        principal=connection.principal,
        sasl_mechanism=connection.sasl_mechanism,
        since=since.replace("+00:00", "Z"),
    )
