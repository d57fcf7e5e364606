"""``/livez``, ``/readyz`` and ``/metrics``: for whoever watches the receiver, man or machine.

Owns what the health endpoints mean: live, while this process answers at all; ready, while it takes clients.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import Response
from pydantic import BaseModel, Field

from receiver.api.dependencies import Dependencies
from receiver.api.problems import Problem, ProblemError

__all__ = ["HealthView", "router"]

router = APIRouter(tags=["health"])


class HealthView(BaseModel):
    """The receiver's health."""

    status: str = Field(description="`live` or `ready`.")
    version: str = Field(description="The receiver's version.")


@router.get("/livez", summary="Say that the process runs")
async def livez(dependencies: Dependencies) -> HealthView:
    """Say that the process runs. A watcher restarts it when this is not answered."""
    return HealthView(status="live", version=dependencies.version)


@router.get("/readyz", summary="Say whether clients are taken", responses={503: {"model": Problem}})
async def readyz(dependencies: Dependencies) -> HealthView:
    """Say whether clients are taken: not before all listeners are open, and not while the receiver drains."""
    reason = dependencies.not_ready_because()
    if reason is not None:
        raise ProblemError(503, reason)
    return HealthView(status="ready", version=dependencies.version)


@router.get(
    "/metrics",
    summary="The receiver's own metrics",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {}}, "description": "Prometheus' text format, or OpenMetrics."}
    },
)
async def metrics(dependencies: Dependencies, accept: Annotated[str | None, Header()] = None) -> Response:
    """The receiver's own metrics, in Prometheus' text format, or OpenMetrics where the scraper prefers it."""
    content, content_type = dependencies.metrics.exposition(accept)
    # Given as a header, because the content type is complete as it stands.
    return Response(content, headers={"content-type": content_type})
