"""``/v1/connections``: open client connections (KIP-511, connection registry)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from receiver.api.dependencies import Dependencies
from receiver.api.pages import Page, PageQuery, first_page, in_portions
from receiver.api.problems import InvalidError, Problem, field_error
from receiver.telemetry.identity import ClientIdentity

__all__ = ["ConnectionFields", "ConnectionView", "router"]

router = APIRouter(prefix="/v1/connections", tags=["connections"])


def _rfc3339(seconds: float) -> str:
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


class ConnectionFields(BaseModel):
    """The fields that connections and client instances share."""

    model_config = ConfigDict(from_attributes=True)

    listener: str
    source_address: str
    source_port: int
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
        validation_alias="instance_text",
        description="In Kafka's text form, 22 characters; null until the client has sent one.",
    )
    since: Annotated[str, BeforeValidator(_rfc3339)] = Field(
        description="When it was accepted (RFC 3339, UTC)."
    )


@router.get("", summary="List the open connections, oldest first", responses={422: {"model": Problem}})
async def list_connections(
    dependencies: Dependencies, query: Annotated[PageQuery, Query()]
) -> Page[ConnectionView]:
    """List the open connections, oldest first."""
    start = None if query.after is None else _position(query.after)
    found = (one for one in dependencies.connections() if start is None or _order(one) > start)
    page, following = first_page(found, query.limit, _cursor, _order)
    views = [ConnectionView.model_validate(identity) async for identity in in_portions(page)]
    return Page(items=views, next=following)


def _order(identity: ClientIdentity) -> tuple[float, str]:
    return (identity.since, identity.id)


def _cursor(identity: ClientIdentity) -> str:
    # The cursor holds the position, because the connection may be closed when the next page is
    # asked for.
    return f"{identity.since!r}/{identity.id}"


def _position(cursor: str) -> tuple[float, str]:
    since, _, connection_id = cursor.partition("/")
    try:
        return (float(since), connection_id)
    except ValueError:
        detail = "expected the `next` of the previous page"
        raise InvalidError(field_error(("after",), cursor, detail)) from None
