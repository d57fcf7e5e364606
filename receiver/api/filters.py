"""Filters of clients and connections.

All of it is pure and runs in a thread beside the event loop. An instance or identity may change
meanwhile, so each value is read once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Final, TypeVar

from pydantic import Field

from receiver.api.pages import PageQuery
from receiver.telemetry.client_state import ClientState, state_of
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.instance import MIN_LIFETIME_S, ClientInstance
from receiver.telemetry.subscription import Assignment

_MAX_CHARS: Final = 1024

#: Kafka's text form of an id, for the OpenAPI document.
UUID_PATTERN: Final = "^[A-Za-z0-9_][A-Za-z0-9_-]{20}[AQgw]$"

_Item = TypeVar("_Item")

#: The parameters that compare a text of the identity, and its attribute.
_TEXTS: Final = {
    "client_id": "client_id",
    "software": "client_software_name",
    "version": "client_software_version",
    "principal": "principal",
    "listener": "listener",
}


class ConnectionState(StrEnum):
    """The state of a connection: that of its client instance, or that it has none."""

    NO_TELEMETRY = "no_telemetry"
    TERMINATED = "terminated"
    SILENT = "silent"
    FAILING = "failing"
    UNSUBSCRIBED = "unsubscribed"
    WAITING = "waiting"
    PUSHING = "pushing"


def _text(what: str) -> str | None:
    description = f"Only with exactly this {what}."
    field: str | None = Field(default=None, max_length=_MAX_CHARS, description=description)
    return field


class _Filters(PageQuery):
    """The parameters that clients and connections share. All that are given must hold."""

    client_id: str | None = _text("client id")
    software: str | None = _text("client software name")
    version: str | None = _text("client software version")
    principal: str | None = _text("principal")
    listener: str | None = _text("listener")
    subscription: str | None = Field(
        default=None,
        max_length=_MAX_CHARS,
        description="Only with this subscription among those that matched at the latest telemetry request.",
    )

    def select(self, items: Sequence[_Item], prefix: str) -> Sequence[_Item]:
        """Return the items whose identity has all texts; ``prefix`` leads to the identity."""
        given = {
            prefix + attribute: getattr(self, parameter)
            for parameter, attribute in _TEXTS.items()
            if getattr(self, parameter) is not None
        }
        if not given:
            return items
        read = attrgetter(*given)
        expected = tuple(given.values()) if len(given) > 1 else next(iter(given.values()))
        return [item for item in items if read(item) == expected]


class ClientQuery(_Filters):
    """The query parameters of ``/v1/clients``."""

    after: str | None = Field(
        default=None,
        description="The `next` of the previous page; omitted: the first page.",
        json_schema_extra={"pattern": UUID_PATTERN},
    )
    state: ClientState | None = Field(default=None, description="Only in this state.")


class ConnectionQuery(_Filters):
    """The query parameters of ``/v1/connections``."""

    after: str | None = Field(
        default=None,
        max_length=_MAX_CHARS,
        description="The `next` of the previous page; omitted: the first page.",
        json_schema_extra={"pattern": r"^[0-9]{1,11}(\.[0-9]{1,6})?/"},
    )
    state: ConnectionState | None = Field(default=None, description="Only in this state.")


def matching_clients(
    instances: Sequence[ClientInstance], query: ClientQuery, now: float
) -> Sequence[ClientInstance]:
    """Return the instances that pass the filters and have not expired."""
    found = query.select(instances, "identity.")
    if query.subscription is not None:
        subscribed = _Subscribed(query.subscription)
        found = [entry for entry in found if subscribed.by(entry.assignment)]
    # The first test is quick, and nearly always enough.
    since = now - MIN_LIFETIME_S
    found = [entry for entry in found if entry.last_request_at > since or not entry.is_expired(now)]
    if query.state is None:
        return found
    return [entry for entry in found if state_of(entry, now) is query.state]


def matching_connections(
    identities: Sequence[ClientIdentity],
    query: ConnectionQuery,
    by_connection: Mapping[str, ClientInstance],
    now: float,
) -> Sequence[ClientIdentity]:
    """Return the identities that pass the filters.

    ``by_connection`` has the client instance of each connection that has one.
    """
    found = query.select(identities, "")
    if query.subscription is not None:
        subscribed = _Subscribed(query.subscription)
        found = [
            entry
            for entry in found
            if (instance := by_connection.get(entry.id)) is not None and subscribed.by(instance.assignment)
        ]
    if query.state is None:
        return found
    return [entry for entry in found if connection_state(by_connection.get(entry.id), now) is query.state]


def connection_state(instance: ClientInstance | None, now: float) -> ConnectionState:
    """Return the state of a connection with this client instance."""
    return ConnectionState.NO_TELEMETRY if instance is None else ConnectionState(state_of(instance, now))


class _Subscribed:
    """Whether a subscription is among those of an assignment.

    Many instances share it.
    """

    def __init__(self, name: str | None) -> None:
        self._name = name
        # The assignment is kept, so that no other object gets its id.
        self._known: dict[int, tuple[Assignment, bool]] = {}

    def by(self, assignment: Assignment) -> bool:
        known = self._known.get(id(assignment))
        if known is None:
            known = self._known[id(assignment)] = assignment, self._name in assignment.matched
        return known[1]
