"""``/v1/series``: the series budgets, how much of them is used, and by whom most.

Owns the JSON form of the report.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from receiver.api.dependencies import Dependencies
from receiver.api.pages import Limit, in_portions
from receiver.api.problems import Problem
from receiver.telemetry.control.series import SeriesUse
from receiver.wire.uuid import uuid_to_text

__all__ = ["SeriesView", "router"]

router = APIRouter(prefix="/v1/series", tags=["series"])


class UseView(BaseModel):
    """How many series somebody has."""

    series: int = Field(description="Data points of the last pushes that were within budgets.")
    overflowed: int = Field(description="Data points of the last pushes that were not.")
    over_for_s: float | None = Field(
        description="For how many seconds there were some; null: there are none."
    )


class SharedUseView(UseView):
    """How many series several client instances have together."""

    instances: int = Field(description="The client instances that have pushed.")


class ClientUseView(UseView):
    """How many series a client instance has."""

    client_instance_id: str = Field(description="In Kafka's text form, 22 characters.")
    client_id: str = Field(description="As the client says it.")
    principal: str


class ClientIdUseView(SharedUseView):
    """How many series the instances of a client id have."""

    client_id: str = Field(description="As its label says it: folded.")


class PrincipalUseView(SharedUseView):
    """How many series the instances of a principal have."""

    principal: str


class BudgetsView(BaseModel):
    """What is allowed; null: no budget."""

    max_per_client: int | None
    max_per_principal: int | None
    max_total: int | None


class SeriesView(BaseModel):
    """The report. The worst come first: those with the most points over a budget, then the most series."""

    budgets: BudgetsView
    total: SharedUseView
    clients: list[ClientUseView] = Field(description="The worst client instances.")
    client_ids: list[ClientIdUseView] = Field(description="The worst client ids.")
    principals: list[PrincipalUseView] = Field(description="The worst principals.")


@router.get("", summary="Show who has the most series", responses={422: {"model": Problem}})
async def show_series(dependencies: Dependencies, limit: Limit = 10) -> SeriesView:
    """Show the series budgets, how much of them is used, and who has the most, so many of each kind."""
    report = dependencies.series(limit)
    budgets = report.budgets
    clients = ((use, dependencies.clients.get(use.name)) for use in report.clients)
    return SeriesView(
        budgets=BudgetsView(
            max_per_client=budgets.max_per_client,
            max_per_principal=budgets.max_per_principal,
            max_total=budgets.max_total,
        ),
        total=SharedUseView(**_shared(report.total)),
        clients=[
            ClientUseView(
                client_instance_id=uuid_to_text(use.name),
                client_id=client.client_id,
                principal=client.connection.principal,
                **_use(use),
            )
            async for use, client in in_portions(clients)
            if client is not None
        ],
        client_ids=[ClientIdUseView(client_id=use.name, **_shared(use)) for use in report.client_ids],
        principals=[PrincipalUseView(principal=use.name, **_shared(use)) for use in report.principals],
    )


def _use(use: SeriesUse[Any]) -> dict[str, Any]:
    return {
        "series": use.series,
        "overflowed": use.overflowed,
        "over_for_s": None if use.over_for_s is None else round(use.over_for_s, 3),
    }


def _shared(use: SeriesUse[Any]) -> dict[str, Any]:
    return {"instances": use.instances, **_use(use)}
