"""The objects that the REST API shows and changes.

Every call into them runs on the core's event loop, so none may block, and the work of each is
bounded.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, cast

from fastapi import Depends, Request

from receiver.api.cluster import Cluster
from receiver.api.events import EventLog
from receiver.api.sessions import Sessions
from receiver.brokers.listener_state import ListenerState
from receiver.clock import wall_time
from receiver.cluster.rollup import Rollup
from receiver.host.delivery.statistics import PluginStatistics
from receiver.metrics import ProcessNumbers
from receiver.store.declared_owners import DeclaredOwners
from receiver.store.subscriptions import Subscriptions
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.instance import ClientInstance
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.traffic.traffic import Traffic
from receiver.wire.uuid import Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiDependencies:
    """Everything that the REST API shows and changes."""

    version: str
    subscriptions: Subscriptions
    telemetry: ClientTelemetry
    monotonic: Callable[[], float]
    connections: Callable[[], Sequence[ClientIdentity]]
    #: What connections move and have moved.
    traffic: Traffic
    plugins: Callable[[], Sequence[PluginStatistics]]
    #: Each listener, what is known of its broker, and its open connections.
    listeners: Callable[[], Sequence[ListenerState]]
    #: Whether the supervisor no longer asks whether this process is alive.
    supervisor_hangs: Callable[[], bool]
    #: Why the receiver takes no clients, in one sentence; None while it does.
    not_ready_because: Callable[[], str | None]
    #: What works and should be otherwise, in one sentence each.
    warnings: Callable[[], Sequence[str]]
    #: Whether it takes clients on one listener at least.
    accepts_somewhere: Callable[[], bool]
    #: Reads the numbers of other processes that the metrics show.
    refresh: Callable[[], Awaitable[None]]
    #: The receiver's metrics and their content type, for an ``Accept`` header.
    exposition: Callable[[str | None], tuple[bytes, str]]
    #: Counts a request that was refused for its caller, by reason.
    count_refusal: Callable[[str], None]

    #: The numbers of each process.
    processes: Callable[[], Iterable[ProcessNumbers]]
    #: How many relays run, and how many should.
    relays: Callable[[], tuple[int, int]]
    #: Processes that died and were started again, by kind.
    restarts: Callable[[], Mapping[str, int]]
    #: The listener, side and expiry, in seconds since the epoch, of each certificate in use.
    certificates: Callable[[], Iterable[tuple[str, str, float]]]
    #: Where subscriptions are kept, as in the configuration.
    store: Callable[[], str]
    #: Why a change by Kafka's tools reaches this receiver alone; None if nothing says so.
    scattered: Callable[[], str | None]
    #: The latest events.
    events: EventLog
    #: This receiver among those of its cluster.
    cluster: Cluster
    #: The roll-up; None: the configuration names none.
    rollup: Rollup | None = None
    #: The owners of clients, and their changes.
    owners: DeclaredOwners = field(default_factory=lambda: DeclaredOwners(lambda before, after: None))
    #: The sessions of browsers.
    sessions: Sessions = field(default_factory=lambda: Sessions(time.monotonic))
    #: Nanoseconds since the epoch.
    wall_ns: Callable[[], int] = time.time_ns

    def now(self) -> datetime:
        """Return the wall clock's time to the millisecond."""
        return wall_time(self.wall_ns())

    def find_client(self, client_instance_id: Uuid) -> ClientInstance | None:
        """Find a client instance that has not expired."""
        instance = self.telemetry.instances.find(client_instance_id)
        return None if instance is None or instance.is_expired(self.monotonic()) else instance


def _dependencies(request: Request) -> ApiDependencies:
    return cast("ApiDependencies", request.app.state.dependencies)


#: An endpoint takes a parameter of this type to use the dependencies.
Dependencies = Annotated[ApiDependencies, Depends(_dependencies)]
