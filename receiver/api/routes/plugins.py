"""``/v1/plugins``: how each destination does, and what waits for it.

Owns the JSON form of a plugin.
"""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from receiver.api.dependencies import Dependencies
from receiver.api.pages import Page
from receiver.host.delivery.statistics import PluginState, PluginStatistics

__all__ = ["PluginView", "router"]

router = APIRouter(prefix="/v1/plugins", tags=["plugins"])


class QueueView(BaseModel):
    """What waits in memory."""

    pushes: int
    bytes: int = Field(description="OTLP bytes.")
    max_pushes: int
    max_bytes: int


class SpoolView(BaseModel):
    """What waits on disk."""

    pushes: int
    bytes: int = Field(description="On disk, compressed.")
    max_bytes: int
    problem: str | None = Field(description="Why it can't be used as it should; null while it can.")


class PluginView(BaseModel):
    """A plugin as it is shown. Counts are since the start of the receiver."""

    name: str
    type: str
    state: PluginState
    delivery: str = Field(description="`memory`, `spool_when_behind` or `spool_always`.")
    isolation: str = Field(description="`thread` or `process`.")
    circuit: str = Field(description="Whether the destination is asked: `closed`: yes; `open`, `half_open`.")
    queue: QueueView
    spool: SpoolView | None = Field(description="Null with `delivery: memory`.")
    in_flight: int = Field(description="Pushes in an export, or waiting for its next try.")
    lag_s: float = Field(description="Seconds since the oldest push was received that is still to deliver.")
    offered: int = Field(description="Pushes handed to it.")
    recovered: int = Field(description="Pushes found on disk from before.")
    exported: int = Field(description="Pushes that the destination took.")
    dropped: dict[str, int] = Field(description="Pushes that will never reach the destination, by reason.")
    rejected_points: int = Field(description="Data points that the destination refused.")
    failures: int = Field(description="Failed calls.")
    consecutive_failures: int = Field(description="Failed calls since the last success.")
    restarts: int = Field(description="How often it was started again after a crash.")
    call_s: float = Field(description="How long its current call has lasted, in seconds: shows a hang.")
    last_error: str | None = Field(description="What the last failed call said, without secrets.")


@router.get("", summary="List the plugins, as configured")
async def list_plugins(dependencies: Dependencies) -> Page[PluginView]:
    """List the plugins in the order of the configuration, which bounds them: there is always one page."""
    return Page(items=[_view(plugin) for plugin in dependencies.plugins()])


def _view(plugin: PluginStatistics) -> PluginView:
    spool = SpoolView(
        pushes=plugin.spool_pushes,
        bytes=plugin.spool_bytes,
        max_bytes=plugin.spool_max_bytes,
        problem=plugin.spool_problem,
    )
    return PluginView(
        name=plugin.name,
        type=plugin.type,
        state=plugin.state,
        delivery=plugin.delivery,
        isolation=plugin.isolation,
        circuit=plugin.circuit,
        queue=QueueView(
            pushes=plugin.queue_items,
            bytes=plugin.queue_bytes,
            max_pushes=plugin.queue_max_items,
            max_bytes=plugin.queue_max_bytes,
        ),
        spool=spool if plugin.spool_max_bytes else None,
        in_flight=plugin.in_flight_pushes,
        lag_s=round(plugin.lag_s, 3),
        offered=plugin.offered_pushes,
        recovered=plugin.recovered_pushes,
        exported=plugin.exported_pushes,
        dropped={str(reason): count for reason, count in plugin.dropped.items()},
        rejected_points=plugin.rejected_points,
        failures=plugin.failures,
        consecutive_failures=plugin.consecutive_failures,
        restarts=plugin.restarts,
        call_s=round(plugin.call_seconds, 3),
        last_error=plugin.last_error,
    )
