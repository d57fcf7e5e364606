"""``/v1/plugins``: the state, queues and counters of each plugin."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from receiver.api.dependencies import ApiDependencies, Dependencies
from receiver.api.pages import Page
from receiver.api.problems import problem_answers
from receiver.api.queries import NO_QUERY
from receiver.host.delivery.backlog import Backlog
from receiver.host.delivery.statistics import PluginState, PluginStatistics

router = APIRouter(prefix="/v1/plugins", tags=["plugins"], responses=problem_answers(422))


class QueueView(BaseModel):
    """The pushes that wait in memory."""

    pushes: int
    bytes: int = Field(description="OTLP bytes.")
    max_pushes: int
    max_bytes: int


class SpoolView(BaseModel):
    """The pushes that wait on disk."""

    pushes: int
    bytes: int = Field(description="Compressed bytes on disk.")
    max_bytes: int
    problem: str | None = Field(description="What is wrong with the spool; null: nothing.")


class WaitingView(BaseModel):
    """All pushes that wait for the destination."""

    pushes: int = Field(description="In memory, on disk, and in flight.")
    bytes: int = Field(description="OTLP bytes in memory, and compressed bytes on disk.")
    used_percent: float = Field(description="Used part of the spool, or of the memory without a spool.")
    full_in_s: float | None = Field(
        description="Seconds until it is full at the rate of the last five minutes; null: it does not grow."
    )
    away_s: float = Field(
        description="Seconds since the destination began to fail; 0 while the circuit is closed."
    )


class PluginView(BaseModel):
    """A plugin. Counters start at 0 when the receiver starts."""

    name: str
    type: str
    state: PluginState
    delivery: str = Field(description="`memory`, `spool_when_behind` or `spool_always`.")
    isolation: str = Field(description="`thread` or `process`.")
    circuit: str = Field(
        description="State of the circuit breaker: `closed` (exports run), `open` (exports are paused) or "
        "`half_open` (one export tries whether the destination is back)."
    )
    queue: QueueView
    spool: SpoolView | None = Field(description="Null with `delivery: memory`.")
    files_problem: str | None = Field(
        description="Why changed secrets or certificates can't be used, so that the old ones stay; null: "
        "the files are in use."
    )
    waiting: WaitingView
    in_flight: int = Field(description="Pushes in an export, or waiting for its retry.")
    lag_s: float = Field(description="Age of the oldest push that is not delivered yet, in seconds.")
    offered: int = Field(description="Pushes offered to the plugin.")
    recovered: int = Field(description="Pushes found on disk at the start.")
    exported: int = Field(
        description="Pushes that the destination accepted, and those that had no metrics for it."
    )
    dropped: dict[str, int] = Field(description="Pushes that will never reach the destination, by reason.")
    rejected_points: int = Field(description="Data points that the destination rejected.")
    failures: int = Field(description="Failed calls of the plugin.")
    consecutive_failures: int = Field(description="Failed calls since the last success.")
    restarts: int = Field(description="Restarts after a crash.")
    call_s: float = Field(
        description="Duration of its current call in seconds; a large value means that it hangs."
    )
    last_error: str | None = Field(description="Error of the last failed call, without secrets.")


@router.get("", summary="List the plugins in the order of the configuration", dependencies=[NO_QUERY])
async def list_plugins(dependencies: Dependencies) -> Page[PluginView]:
    """List the plugins in the order of the configuration, always on one page."""
    return Page(items=plugin_views(dependencies))


def plugin_views(dependencies: ApiDependencies) -> list[PluginView]:
    """Return all plugins."""
    return [_view(plugin) for plugin in dependencies.plugins()]


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
        files_problem=plugin.files_problem,
        waiting=_waiting(plugin.backlog),
        in_flight=plugin.in_flight_pushes,
        lag_s=round(plugin.lag_seconds, 3),
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


def _waiting(backlog: Backlog) -> WaitingView:
    return WaitingView(
        pushes=backlog.pushes,
        bytes=backlog.bytes,
        used_percent=round(backlog.used * 100, 1),
        full_in_s=None if backlog.full_in_s is None else round(backlog.full_in_s),
        away_s=round(backlog.away_s),
    )
