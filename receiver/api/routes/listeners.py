"""``/v1/listeners``: each listener and the broker behind it."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from receiver.api.dependencies import ApiDependencies, Dependencies
from receiver.api.pages import Page
from receiver.api.problems import problem_answers
from receiver.api.queries import NO_QUERY
from receiver.brokers.bypass import bypass_problem
from receiver.brokers.crossed import crossed_upstreams
from receiver.brokers.hidden_telemetry import hidden_telemetry
from receiver.brokers.listener_broker import KnownBroker
from receiver.brokers.listener_state import ListenerState

router = APIRouter(prefix="/v1/listeners", tags=["listeners"], responses=problem_answers(422))


class BrokerView(BaseModel):
    """A broker, as far as it is known."""

    id: int | None = Field(description="Its node id; null: unknown.")
    cluster_id: str | None
    proven: bool = Field(description="Whether it has shown that the node id is its own.")
    advertised: str | None = Field(description="The address that it tells clients; null: unknown.")


class NodeView(BaseModel):
    """A node behind a listener that rewrites addresses."""

    address: str = Field(description="The address that clients get.")
    broker: BrokerView


class ListenerView(BaseModel):
    """A listener."""

    name: str
    bind: str
    upstream: str
    security_protocol: str
    connections: int = Field(description="Open connections.")
    broker: BrokerView
    bypass: str | None = Field(description="Why clients pass by the sidecar; null: nothing says so.")
    crossed: str | None = Field(
        description="Why its upstream is probably that of another listener; null: nothing says so."
    )
    hidden_telemetry: str | None = Field(
        description="What of the broker's own telemetry has no effect on clients of the listener; null: "
        "nothing is known."
    )
    nodes: list[NodeView] = Field(description="The known nodes, if the listener rewrites addresses.")


@router.get("", summary="List the listeners in the order of the configuration", dependencies=[NO_QUERY])
async def list_listeners(dependencies: Dependencies) -> Page[ListenerView]:
    """List the listeners in the order of the configuration, always on one page."""
    return Page(items=listener_views(dependencies))


def listener_views(dependencies: ApiDependencies) -> list[ListenerView]:
    """Return all listeners."""
    listeners = list(dependencies.listeners())
    crossed = crossed_upstreams(listeners)
    return [_view(listener, crossed.get(listener.settings.name)) for listener in listeners]


def _view(listener: ListenerState, crossed: str | None) -> ListenerView:
    settings = listener.settings
    return ListenerView(
        name=settings.name,
        bind=str(settings.bind),
        upstream=str(settings.upstream),
        security_protocol=settings.security_protocol,
        connections=listener.connections,
        broker=_broker(listener.known),
        bypass=bypass_problem(settings, listener.known),
        crossed=crossed,
        hidden_telemetry=hidden_telemetry(listener.known),
        nodes=[
            NodeView(address=str(public), broker=_broker(known))
            for node_id, known in sorted(listener.nodes.items())
            if (public := settings.public_address(node_id)) is not None
        ],
    )


def _broker(known: KnownBroker) -> BrokerView:
    broker = known.broker
    return BrokerView(
        id=broker.id, cluster_id=broker.cluster_id, proven=known.proven, advertised=known.advertised
    )
