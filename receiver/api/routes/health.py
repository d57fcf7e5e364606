"""``/livez``, ``/readyz`` and ``/metrics``: for probes and Prometheus.

The receiver is live while its process answers and its supervisor asks for that. It is ready while
it accepts clients.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from receiver.api.dependencies import Dependencies
from receiver.api.problems import ProblemError, problem_answers
from receiver.api.queries import NO_QUERY, ForbiddingModel

router = APIRouter(tags=["health"], responses=problem_answers(422))


class HealthView(BaseModel):
    """The receiver's health."""

    status: str = Field(description="`live` or `ready`.")
    version: str = Field(description="The receiver's version.")
    warnings: list[str] | None = Field(
        default=None, description="What should be corrected, though clients are accepted; omitted: nothing."
    )


class _ReadyQuery(ForbiddingModel):
    listeners: Literal["all", "any"] = Field(
        default="all",
        description="`any`: ready while one listener at least is, for a load balancer in front of "
        "receivers with a listener for each broker.",
    )


@router.get(
    "/livez",
    summary="Tell whether the process runs",
    response_model_exclude_none=True,
    dependencies=[NO_QUERY],
    responses=problem_answers(503),
)
async def livez(dependencies: Dependencies) -> HealthView:
    """Answer 200 while the process and its supervisor run.

    Restart the receiver when this is not answered, or with 503.
    """
    if dependencies.supervisor_hangs():
        raise ProblemError(503, "the supervisor hangs: restart the receiver")
    return HealthView(status="live", version=dependencies.version)


@router.get(
    "/readyz",
    summary="Tell whether clients are accepted",
    response_model_exclude_none=True,
    responses=problem_answers(503),
)
async def readyz(dependencies: Dependencies, query: Annotated[_ReadyQuery, Query()]) -> HealthView:
    """Answer 503 with the reason before all listeners are open and during a drain."""
    reason = dependencies.not_ready_because()
    if reason is not None and not (query.listeners == "any" and dependencies.accepts_somewhere()):
        raise ProblemError(503, reason)
    warnings = list(dependencies.warnings())
    return HealthView(status="ready", version=dependencies.version, warnings=warnings or None)


@router.get(
    "/metrics",
    summary="The receiver's own metrics",
    response_class=Response,
    dependencies=[NO_QUERY],
    responses={
        200: {"content": {"text/plain": {}}, "description": "Prometheus text format, or OpenMetrics."},
    },
)
async def metrics(dependencies: Dependencies, accept: Annotated[str | None, Header()] = None) -> Response:
    """Expose the metrics in Prometheus text format or, on request, OpenMetrics."""
    await dependencies.refresh()
    content, content_type = dependencies.exposition(accept)
    # As a header, because Starlette would append a charset to `media_type`.
    return Response(content, headers={"content-type": content_type})
