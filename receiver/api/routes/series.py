"""``/v1/series``: the series budgets, their use, and the clients that use most."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from receiver.api.dependencies import Dependencies
from receiver.api.pages import MAX_LIMIT, LimitQuery, in_portions
from receiver.api.problems import problem_answers
from receiver.wire.uuid import uuid_to_text

router = APIRouter(prefix="/v1/series", tags=["series"], responses=problem_answers(422))


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


class _SeriesQuery(LimitQuery):
    limit: int = Field(default=10, ge=1, le=MAX_LIMIT, description="The most items of each kind.")


class UseView(BaseModel):
    """The use of a series budget."""

    model_config = ConfigDict(from_attributes=True)

    series: int = Field(description="Data points of the last pushes within the budgets.")
    overflowed: int = Field(description="Data points of the last pushes over a budget.")
    over_for_s: Annotated[float | None, AfterValidator(_rounded)] = Field(
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

    client_id: str = Field(
        validation_alias="name", description="The client id after folding, as in the label."
    )


class PrincipalUseView(SharedUseView):
    """The use by the instances of a principal."""

    principal: str = Field(validation_alias="name")


class BudgetsView(BaseModel):
    """The configured budgets; null: no budget."""

    model_config = ConfigDict(from_attributes=True)

    max_per_client: int | None
    max_per_principal: int | None
    max_total: int | None


class SeriesView(BaseModel):
    """The use of the budgets, first by data points over a budget, then by series."""

    budgets: BudgetsView
    total: SharedUseView
    clients: list[ClientUseView] = Field(description="The client instances that use most.")
    client_ids: list[ClientIdUseView] = Field(description="The client ids that use most.")
    principals: list[PrincipalUseView] = Field(description="The principals that use most.")


@router.get("", summary="Show the series budgets and the clients that use most")
async def show_series(dependencies: Dependencies, query: Annotated[_SeriesQuery, Query()]) -> SeriesView:
    """Show the series budgets, their use and the clients that use most."""
    report = dependencies.telemetry.series.report(query.limit, dependencies.monotonic())
    clients = ((use, dependencies.find_client(use.name)) for use in report.clients)
    return SeriesView(
        budgets=BudgetsView.model_validate(report.budgets),
        total=SharedUseView.model_validate(report.total),
        clients=[
            ClientUseView(
                client_instance_id=uuid_to_text(use.name),
                client_id=client.identity.client_id,
                principal=client.identity.principal,
                **UseView.model_validate(use).model_dump(),
            )
            async for use, client in in_portions(clients)
            if client is not None
        ],
        client_ids=[ClientIdUseView.model_validate(use) for use in report.client_ids],
        principals=[PrincipalUseView.model_validate(use) for use in report.principals],
    )
