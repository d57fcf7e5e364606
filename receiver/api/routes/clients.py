"""``/v1/clients``: the client instances that are known, and what each was asked and has sent (KIP-714).

Owns the JSON form of a client. It shows no metrics.
"""

from __future__ import annotations

import heapq
from typing import Annotated, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from receiver.api.dependencies import ClientState, Dependencies
from receiver.api.pages import After, Limit, Page, in_portions
from receiver.api.problems import Problem, ProblemError, field_error
from receiver.telemetry.control.offenders import Demand, Narrowed
from receiver.wire.uuid import Uuid, uuid_from_text, uuid_to_text

__all__ = ["ClientView", "router"]

router = APIRouter(prefix="/v1/clients", tags=["clients"])

_Id = Annotated[str, Path(description="The client instance id in Kafka's text form, 22 characters.")]


class NarrowedView(BaseModel):
    """Why a client instance is asked for less than its subscriptions want."""

    to: Literal["standard_metrics", "nothing"] = Field(description="What it is asked for, of that.")
    offence: Literal["too_large", "bytes_per_minute"] = Field(
        description="Its last: pushes in a row that were too large, or too many bytes in a minute."
    )
    relaxes_in_s: float = Field(
        description="In how many seconds it is asked for more, if it is without offence until then."
    )


class ClientView(BaseModel):
    """A client instance as it is shown."""

    client_instance_id: str = Field(description="In Kafka's text form, 22 characters.")
    client_id: str
    client_software_name: str
    client_software_version: str
    connection_id: str = Field(description="The connection of its latest telemetry request.")
    listener: str
    source_address: str
    source_port: int
    principal: str
    sasl_mechanism: str | None = Field(description="Of the login; null without SASL.")
    subscription_id: int = Field(description="What it pushes under.")
    push_interval_ms: int
    requested_metrics: list[str] = Field(description='Prefixes it is asked for; `[""]`: every metric.')
    subscriptions: list[str] = Field(description="Names of the subscriptions that match it.")
    quirks: list[str] = Field(description="Why its software is treated in its own way, if it is.")
    interval_factor: int = Field(
        description="How many times as long as its subscriptions want its interval is, as far as it can be."
    )
    plugin_behind: str | None = Field(description="The plugin that is why; null: none is any more.")
    narrowed: NarrowedView | None = Field(description="Null: it is asked for what its subscriptions want.")
    pushes: int = Field(description="Its pushes that were taken.")
    last_request_age_s: float = Field(description="Seconds since its latest telemetry request.")
    last_push_age_s: float | None = Field(
        description="Seconds since its latest push that was taken; null before."
    )
    last_error: str = Field(description="Name of the error it was answered last; `NONE` after a success.")
    terminating: bool = Field(description="Whether it said that its latest push is its last.")


@router.get("", summary="List the client instances, by id", responses={422: {"model": Problem}})
async def list_clients(
    dependencies: Dependencies, limit: Limit = 100, after: After = None
) -> Page[ClientView]:
    """List the client instances, in the order of their ids' bytes, which is not that of their text."""
    start = None if after is None else _id("after", after)
    ids = [one for one in dependencies.clients.ids() if start is None or one > start]
    page = heapq.nsmallest(limit, ids)
    found = (dependencies.clients.get(one) for one in page)
    return Page(
        items=[_view(client) async for client in in_portions(found) if client is not None],
        next=uuid_to_text(page[-1]) if len(ids) > len(page) else None,
    )


@router.get(
    "/{client_instance_id}",
    summary="Show a client instance",
    responses={status: {"model": Problem} for status in (404, 422)},
)
async def show_client(dependencies: Dependencies, client_instance_id: _Id) -> ClientView:
    """Show a client instance."""
    client = dependencies.clients.get(_id("client_instance_id", client_instance_id))
    if client is None:
        raise ProblemError(
            404,
            f"no client instance {client_instance_id} is known: it has not asked yet, or was silent for long",
        )
    return _view(client)


def _id(field: str, text: str) -> Uuid:
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise ProblemError(422, f"{field}: {error}", [field_error((field,), text, str(error))]) from None


def _view(client: ClientState) -> ClientView:
    connection = client.connection
    return ClientView(
        client_instance_id=uuid_to_text(client.client_instance_id),
        client_id=client.client_id,
        client_software_name=client.client_software_name,
        client_software_version=client.client_software_version,
        connection_id=connection.id,
        listener=connection.listener,
        source_address=connection.source_address,
        source_port=connection.source_port,
        principal=connection.principal,
        sasl_mechanism=connection.sasl_mechanism,
        subscription_id=client.subscription_id,
        push_interval_ms=client.push_interval_ms,
        requested_metrics=list(client.requested_metrics),
        subscriptions=list(client.subscriptions),
        quirks=list(client.quirks),
        interval_factor=client.interval_factor,
        plugin_behind=client.plugin_behind,
        narrowed=None if client.narrowed is None else _narrowed(client.narrowed),
        pushes=client.pushes,
        last_request_age_s=round(client.last_request_age_s, 3),
        last_push_age_s=None if client.last_push_age_s is None else round(client.last_push_age_s, 3),
        last_error=client.last_error,
        terminating=client.terminating,
    )


def _narrowed(narrowed: Narrowed) -> NarrowedView:
    return NarrowedView(
        to="nothing" if narrowed.demand is Demand.NOTHING else "standard_metrics",
        offence=narrowed.offence.value,
        relaxes_in_s=round(narrowed.relaxes_in_s, 3),
    )
