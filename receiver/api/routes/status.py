"""``/v1/status``: the whole receiver in one answer, for one screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from receiver.api.background import in_background, json_response
from receiver.api.dependencies import ApiDependencies, Dependencies
from receiver.api.problems import problem_answers
from receiver.api.queries import NO_QUERY
from receiver.api.routes.listeners import ListenerView, listener_views
from receiver.api.routes.plugins import PluginView, plugin_views
from receiver.telemetry.client_state import ClientState, state_of
from receiver.telemetry.instance import ClientInstance
from receiver.telemetry.prefixes import misspelt
from receiver.telemetry.subscription import State, SubscriptionSet
from receiver.telemetry.subscription_document import time_to_text

router = APIRouter(prefix="/v1/status", tags=["health"], responses=problem_answers(422))

#: Most names of subscriptions that match no client.
_MAX_NAMES: Final = 10
#: Most versions.
_MAX_VERSIONS: Final = 5


class ProcessView(BaseModel):
    """A process of the receiver."""

    name: str = Field(description="`core`, or `relay-1` and so on.")
    cpu_s: float = Field(description="Seconds of CPU time since its start.")
    resident_bytes: int = Field(description="Resident memory, with the pages that it shares.")


class RelaysView(BaseModel):
    """The relays that run, and how many should."""

    running: int
    expected: int


class CertificateView(BaseModel):
    """A certificate in use."""

    listener: str = Field(description="The listener's name, `rest` or `bridge`.")
    side: str = Field(description="To whom it is shown: `client` or `upstream`.")
    expires_at: str = Field(description="RFC 3339, UTC.")


class VersionView(BaseModel):
    """The client instances of a version."""

    client_software_name: str
    client_software_version: str
    clients: int


class ClientsView(BaseModel):
    """The known client instances."""

    known: int
    by_state: dict[ClientState, int] = Field(description="The number in each state.")
    disconnected: int = Field(
        description="Client instances that were forgotten since the start, because their connection ended."
    )
    versions: list[VersionView] = Field(
        description=f"The versions that most of them run, at most {_MAX_VERSIONS}."
    )


class SubscriptionsView(BaseModel):
    """The subscriptions."""

    store: str = Field(description="Where they are kept, as in `subscriptions.store`.")
    problem: str | None = Field(description="Why the store can't be used; null: it can.")
    scattered: str | None = Field(
        description="Why a change by Kafka's tools reaches this receiver alone; null: nothing says so."
    )
    by_state: dict[State, int] = Field(description="The number in each state.")
    unmatched: list[str] = Field(
        description=f"Active ones that match no known client, at most {_MAX_NAMES} names."
    )
    misspelt: dict[str, str] = Field(
        description="Active ones for which clients that push have nothing, with the reason, at most 10."
    )


class StatusView(BaseModel):
    """The whole receiver."""

    version: str
    problem: str | None = Field(description="Why clients are not accepted everywhere; null: they are.")
    warnings: list[str] = Field(description="What should be corrected, as in `/readyz`.")
    relays: RelaysView
    processes: list[ProcessView]
    restarts: dict[str, int] = Field(description="Processes that died and were started again, by kind.")
    certificates: list[CertificateView] = Field(description="The first to expire comes first.")
    listeners: list[ListenerView]
    connections: int = Field(description="Open connections.")
    clients: ClientsView
    subscriptions: SubscriptionsView
    destinations: list[PluginView]


@router.get(
    "",
    summary="Show the whole receiver",
    dependencies=[NO_QUERY],
    responses={200: {"model": StatusView, "description": "The state."}},
)
async def show_status(dependencies: Dependencies) -> Response:
    """Show processes, listeners, clients, subscriptions, destinations and warnings."""
    return json_response(await status_of(dependencies))


async def status_of(dependencies: ApiDependencies) -> dict[str, Any]:
    """Return what :class:`StatusView` describes."""
    await dependencies.refresh()
    now, wall = dependencies.monotonic(), dependencies.now()
    telemetry = dependencies.telemetry
    instances = list(telemetry.instances)
    subscriptions = dependencies.subscriptions.in_force
    document = {
        "version": dependencies.version,
        "problem": dependencies.not_ready_because(),
        "warnings": list(dependencies.warnings()),
        **_machine(dependencies),
        "listeners": [view.model_dump() for view in listener_views(dependencies)],
        "connections": len(dependencies.connections()),
        "destinations": [view.model_dump() for view in plugin_views(dependencies)],
    }
    active = telemetry.subscriptions.active
    document |= await in_background(_telemetry, instances, subscriptions, active, now, wall)
    document["subscriptions"] |= {
        "store": dependencies.store(),
        "problem": dependencies.subscriptions.status().problem,
        "scattered": dependencies.scattered(),
        "misspelt": misspelt(telemetry.subscriptions.asked, instances, telemetry.profiles),
    }
    document["clients"]["disconnected"] = telemetry.instances.statistics.disconnected
    return document


def _machine(dependencies: ApiDependencies) -> dict[str, Any]:
    running, expected = dependencies.relays()
    return {
        "relays": {"running": running, "expected": expected},
        "processes": [
            {
                "name": process.process,
                "cpu_s": round(process.cpu_s, 3),
                "resident_bytes": process.resident_bytes,
            }
            for process in dependencies.processes()
        ],
        "restarts": dict(dependencies.restarts()),
        "certificates": [
            {
                "listener": listener,
                "side": side,
                "expires_at": time_to_text(datetime.fromtimestamp(int(expires), UTC)),
            }
            for listener, side, expires in sorted(dependencies.certificates(), key=lambda entry: entry[2])
        ],
    }


def _telemetry(
    instances: Sequence[ClientInstance],
    subscriptions: SubscriptionSet,
    active: SubscriptionSet,
    now: float,
    wall: datetime,
) -> dict[str, Any]:
    known = [instance for instance in instances if not instance.is_expired(now)]
    states = {subscription.name: subscription.state(wall) for subscription in subscriptions.subscriptions}
    matched = _matched(known, active)
    versions = Counter(
        (instance.identity.client_software_name, instance.identity.client_software_version)
        for instance in known
    )
    most = [
        {"client_software_name": name, "client_software_version": version, "clients": clients}
        for (name, version), clients in versions.most_common(_MAX_VERSIONS)
    ]
    unmatched = [name for name, state in states.items() if state is State.ACTIVE and name not in matched]
    return {
        "clients": {
            "known": len(known),
            "by_state": Counter(state_of(instance, now) for instance in known),
            "versions": most,
        },
        "subscriptions": {"by_state": Counter(states.values()), "unmatched": unmatched[:_MAX_NAMES]},
    }


def _matched(instances: Iterable[ClientInstance], active: SubscriptionSet) -> set[str]:
    """Return the names of the active subscriptions that match.

    Many instances share an assignment. One that has not asked since a change is matched here.
    """
    assignments = {}
    for instance in instances:
        assignment = instance.assignment
        if instance.subscriptions is not active:
            assignment = active.assignment(instance.identity, instance.revealed)
        assignments[id(assignment)] = assignment
    return {name for assignment in assignments.values() for name in assignment.matched}
