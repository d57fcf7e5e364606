"""``/v1/series``: the series budgets, their use, and the clients that use most."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from receiver.api.dependencies import Dependencies
from receiver.api.pages import Limit, in_portions
from receiver.api.problems import Problem
from receiver.telemetry.series import SeriesUse
from receiver.wire.uuid import uuid_to_text

__all__ = ["SeriesView", "router"]

router = APIRouter(prefix="/v1/series", tags=["series"])


class UseView(BaseModel):
    """The use of a series budget."""

    series: int = Field(description="Data points of the last pushes within the budgets.")
    overflowed: int = Field(description="Data points of the last pushes over a budget.")
    over_for_s: float | None = Field(
        description="Seconds since a budget was exceeded first; null: none is exceeded."
    )


class SharedUseView(UseView):
    """The use by several client instances together."""

    instances: int = Field(description="Client instances that have pushed.")


class ClientUseView(UseView):
    """The use by a client instance."""

    client_instance_id: str = Field(description="In Kafka's text form, 22 characters.")
    client_id: str = Field(description="The client id as the client sends it.")
    principal: str


class ClientIdUseView(SharedUseView):
    """The use by the instances of a client id."""

    client_id: str = Field(description="The client id after folding, as in the label.")


class PrincipalUseView(SharedUseView):
    """The use by the instances of a principal."""

    principal: str


class BudgetsView(BaseModel):
    """The configured budgets; null: no budget."""

    max_per_client: int | None
    max_per_principal: int | None
    max_total: int | None


class SeriesView(BaseModel):
    """The use of the budgets. Most data points over a budget come first, then most series."""

    budgets: BudgetsView
    total: SharedUseView
    clients: list[ClientUseView] = Field(description="The client instances that use most.")
    client_ids: list[ClientIdUseView] = Field(description="The client ids that use most.")
    principals: list[PrincipalUseView] = Field(description="The principals that use most.")


@router.get(
    "", summary="Show the series budgets and the clients that use most", responses={422: {"model": Problem}}
)
async def show_series(dependencies: Dependencies, limit: Limit = 10) -> SeriesView:
    """Show the series budgets, their use, and ``limit`` each of the clients that use most."""
    report = dependencies.telemetry.series.report(limit, dependencies.monotonic())
    budgets = report.budgets
    clients = ((use, dependencies.find_client(use.name)) for use in report.clients)
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
                client_id=client.connection.client_id,
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
