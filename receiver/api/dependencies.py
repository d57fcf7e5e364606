"""What the REST edge is handed: who keeps the things that it shows and changes.

Owns the shapes only. Every call runs on the event loop that carries clients' traffic, so none may block, and
each is bounded by what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, cast

from fastapi import Depends, Request

from receiver.host.delivery.statistics import PluginStatistics
from receiver.store.subscriptions import Condition
from receiver.telemetry.connection import Connection
from receiver.telemetry.offenders import Narrowed
from receiver.telemetry.series import SeriesReport
from receiver.telemetry.subscription import Subscription
from receiver.wire.uuid import Uuid

__all__ = [
    "ApiDependencies",
    "ClientState",
    "ClientStates",
    "Dependencies",
    "Exposition",
    "SubscriptionService",
]


class SubscriptionService(Protocol):
    """Keeps and changes subscriptions; :class:`receiver.store.Subscriptions` is one."""

    def list(self) -> tuple[Subscription, ...]:
        """All subscriptions, by name."""

    def get(self, name: str) -> Subscription | None:
        """The subscription of a name, None where there is none."""

    async def put(self, subscription: Subscription, *, only_if: Condition | None = None) -> bool:
        """Keep a subscription and put it in force; True where it is new."""

    async def delete(self, name: str, *, only_if: Condition | None = None) -> bool:
        """Forget a subscription; False where there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientState:
    """A client instance, as the telemetry core and the registry of connections know it now.

    Attributes:
        client_instance_id: Its id (KIP-714, "Client instance id").
        connection: The connection of its latest telemetry request.
        client_id: What it calls itself there.
        client_software_name: KIP-511's software name.
        client_software_version: KIP-511's software version.
        subscription_id: What it pushes under.
        push_interval_ms: How often it was asked to push, in milliseconds.
        requested_metrics: The prefixes it is asked for; one empty prefix means all.
        subscriptions: Names of the subscriptions that match it.
        quirks: Reasons of the rules that its software is treated by.
        interval_factor: How many times as long as its subscriptions want its push interval is.
        plugin_behind: The plugin that is why, None where none is any more.
        narrowed: Why it is asked for less than its subscriptions want; None where it is not.
        pushes: Its pushes that were taken.
        last_request_age_s: Seconds since its latest telemetry request.
        last_push_age_s: Seconds since its latest push that was taken; None before the first.
        last_error: Name of the latest error it was answered; NONE after a success.
        terminating: Whether its latest accepted push said that it is the last.
    """

    client_instance_id: Uuid
    connection: Connection
    client_id: str
    client_software_name: str
    client_software_version: str
    subscription_id: int
    push_interval_ms: int
    requested_metrics: tuple[str, ...]
    subscriptions: tuple[str, ...]
    quirks: tuple[str, ...]
    interval_factor: int
    plugin_behind: str | None
    narrowed: Narrowed | None
    pushes: int
    last_request_age_s: float
    last_push_age_s: float | None
    last_error: str
    terminating: bool


class ClientStates(Protocol):
    """The client instances that are known."""

    def ids(self) -> Collection[Uuid]:
        """The ids of all of them, in any order."""

    def get(self, client_instance_id: Uuid) -> ClientState | None:
        """One of them; None where the id is not known (any more)."""


class Exposition(Protocol):
    """Writes metrics for a scraper; :class:`receiver.metrics.ReceiverMetrics` is one."""

    def exposition(self, accept: str | None = None) -> tuple[bytes, str]:
        """The text and its content type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiDependencies:
    """Everything that the REST edge shows and changes.

    Attributes:
        version: The receiver's version.
        subscriptions: Keeps and changes subscriptions.
        clients: The client instances.
        series: Says who has the most series, so many of each kind.
        connections: The open connections (``ConnectionRegistry.snapshot``).
        plugins: One look at each plugin (``PluginHost.statistics``).
        not_ready_because: Why the receiver takes no clients, in one sentence; None while it does.
        metrics: Writes the receiver's metrics.
        refused: Counts a request that was refused for who sent it, by reason.
    """

    version: str
    subscriptions: SubscriptionService
    clients: ClientStates
    series: Callable[[int], SeriesReport]
    connections: Callable[[], Sequence[Connection]]
    plugins: Callable[[], Sequence[PluginStatistics]]
    not_ready_because: Callable[[], str | None]
    metrics: Exposition
    refused: Callable[[str], None]


def _dependencies(request: Request) -> ApiDependencies:
    return cast("ApiDependencies", request.app.state.dependencies)


#: An endpoint's parameter of this type gets what :func:`receiver.api.create_api` was given.
Dependencies = Annotated[ApiDependencies, Depends(_dependencies)]
