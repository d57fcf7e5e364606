"""Filters of clients and connections.

All of it is pure and runs in a thread beside the event loop. An instance or identity may change
meanwhile, so each value is read once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import AfterValidator, Field, field_validator, model_validator

from receiver.api.cluster import ScopedPageQuery
from receiver.patterns import compile_pattern
from receiver.telemetry.client_state import ClientState, state_of
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.instance import MIN_LIFETIME_S, ClientInstance
from receiver.telemetry.owners import Owners
from receiver.telemetry.quirks import software_identities
from receiver.telemetry.selectors import NOTHING_REVEALED
from receiver.telemetry.subscription import Assignment
from receiver.traffic.order import ConnectionGroup, ConnectionOrder

_MAX_CHARS: Final = 1024

#: Kafka's text form of an id, for the OpenAPI document.
UUID_PATTERN: Final = "^[A-Za-z0-9_][A-Za-z0-9_-]{20}[AQgw]$"

_Item = TypeVar("_Item")

#: The parameters that match one text of the identity, which has the same name.
_TEXTS: Final = ("client_id", "principal", "listener")


class ConnectionState(StrEnum):
    """The state of a connection: its client instance's, or one of its own."""

    NO_TELEMETRY = "no_telemetry"
    TERMINATED = "terminated"
    SILENT = "silent"
    FAILING = "failing"
    UNSUBSCRIBED = "unsubscribed"
    WAITING = "waiting"
    PUSHING = "pushing"
    CLOSED = "closed"


def _checked(pattern: str) -> str:
    """Return a pattern that RE2 accepts; ValueError says why it doesn't."""
    try:
        compile_pattern(pattern)
    except ValueError as error:
        raise ValueError(f"is no regular expression (RE2): {error}; write \\ in front of . * + ( [") from None
    return pattern


def pattern_field(what: str, note: str = "") -> Any:
    """Describe a parameter that is a pattern."""
    description = f"Only where this regular expression (RE2) matches the whole {what}{note}."
    return Field(default=None, description=description)


#: A parameter that is a regular expression.
Pattern = Annotated[
    str,
    Field(max_length=_MAX_CHARS, json_schema_extra={"format": "regex"}),
    AfterValidator(_checked),
]

#: A pattern without these matches itself only.
_SYNTAX: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")

_EMBEDDED: Final = ", or that of the librdkafka in it"


class _Filters(ScopedPageQuery):
    """The parameters that clients and connections share. All that are given must hold."""

    client_id: Pattern | None = pattern_field("client id")
    software: Pattern | None = pattern_field("client software name", _EMBEDDED)
    version: Pattern | None = pattern_field("client software version", _EMBEDDED)
    principal: Pattern | None = pattern_field("principal")
    listener: Pattern | None = pattern_field("listener")
    owner: Pattern | None = pattern_field("name of its owner", "; empty: of those without an owner")
    subscription: str | None = Field(
        default=None,
        max_length=_MAX_CHARS,
        description="Only with this subscription among those that matched at the latest telemetry request.",
    )

    def select(self, items: Sequence[_Item], prefix: str) -> Sequence[_Item]:
        """Return the items whose identity passes all patterns.

        ``prefix`` leads to the identity.
        """
        for parameter in _TEXTS:
            pattern = getattr(self, parameter)
            if pattern is not None:
                items = _passing(items, attrgetter(prefix + parameter), _Texts(pattern))
        if self.software is not None or self.version is not None:
            read = attrgetter(f"{prefix}client_software_name", f"{prefix}client_software_version")
            items = _passing(items, read, _Software(self.software, self.version))
        return items


class ClientQuery(_Filters):
    """The query parameters of ``/v1/clients``."""

    after: str | None = Field(
        default=None,
        description="The `next` of the previous page; omitted: the first page.",
        json_schema_extra={"pattern": UUID_PATTERN},
    )
    state: ClientState | None = Field(default=None, description="Only in this state.")


#: With what only connections, and only closed ones, and only groups have.
_NOT_OF_GROUPS: Final = {ConnectionOrder.SINCE, ConnectionOrder.CLOSED_AT}


class ConnectionQuery(_Filters):
    """The query parameters of ``/v1/connections``."""

    after: str | None = Field(
        default=None,
        max_length=_MAX_CHARS,
        description="The `next` of the previous page; omitted: the first page.",
        json_schema_extra={"pattern": "^[0-9]{1,18}/"},
    )
    state: ConnectionState | None = Field(default=None, description="Only in this state.")
    closed: bool = Field(
        default=False, description="List the latest 10,000 connections that have closed, not the open ones."
    )
    order_by: str | None = Field(
        default=None,
        description=f"One of {', '.join(ConnectionOrder)}; a minus in front: the greatest first. "
        "`last_minute` orders by the bytes of both directions. A connection whose value changes between two "
        "pages may be on both or none. By default the oldest comes first, of closed ones the latest, and of "
        "groups the one with most bytes from clients.",
        json_schema_extra={"pattern": f"^-?({'|'.join(ConnectionOrder)})$"},
    )
    by: ConnectionGroup | None = Field(
        default=None, description="Add the connections up by this; the items are groups then."
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        order, _ = self.order
        wrong = (
            order in _NOT_OF_GROUPS
            if self.by is not None
            else order is ConnectionOrder.CONNECTIONS
            or (order is ConnectionOrder.CLOSED_AT and not self.closed)
        )
        if wrong:
            raise ValueError(f"order_by: {order} is no field of what is listed; choose another one")
        return self

    @property
    def order(self) -> tuple[ConnectionOrder, bool]:
        """What to order by, and whether the greatest comes first."""
        if self.order_by is None:
            if self.by is not None:
                return ConnectionOrder.BYTES_IN, True
            return (ConnectionOrder.CLOSED_AT, True) if self.closed else (ConnectionOrder.SINCE, False)
        return ConnectionOrder(self.order_by.removeprefix("-")), self.order_by.startswith("-")

    @field_validator("order_by")
    @classmethod
    def _known_order(cls, value: str | None) -> str | None:
        if value is not None and value.removeprefix("-") not in set(ConnectionOrder):
            raise ValueError(f"must be one of {', '.join(ConnectionOrder)}, perhaps with a minus in front")
        return value


def matching_clients(
    instances: Sequence[ClientInstance], query: ClientQuery, owners: Owners, now: float
) -> Sequence[ClientInstance]:
    """Return the instances that pass the filters and have not expired."""
    found = query.select(instances, "identity.")
    if query.owner is not None:
        found = _passing(found, lambda entry: client_owner(entry, owners) or "", _Texts(query.owner))
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
    owners: Owners,
    now: float,
) -> Sequence[ClientIdentity]:
    """Return the identities that pass the filters.

    ``by_connection`` has the client instance of each connection that has one.
    """
    found = query.select(identities, "")
    if query.owner is not None:
        found = _passing(
            found,
            lambda entry: connection_owner(entry, by_connection.get(entry.id), owners) or "",
            _Texts(query.owner),
        )
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


def client_owner(client: ClientInstance, owners: Owners) -> str | None:
    """Return the name of a client instance's owner."""
    return owners.team_of(client.identity, client.revealed)


def connection_owner(identity: ClientIdentity, instance: ClientInstance | None, owners: Owners) -> str | None:
    """Return the name of a connection's owner; ``instance`` is its client instance."""
    return owners.team_of(identity, NOTHING_REVEALED if instance is None else instance.revealed)


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


def _passing(
    items: Iterable[_Item], read: Callable[[_Item], Any], test: Callable[[Any], bool]
) -> list[_Item]:
    """Return the items whose value passes.

    Each value is tested once, because many items share it.
    """
    known: dict[Any, bool] = {}
    found = []
    for item in items:
        value = read(item)
        passes = known.get(value)
        if passes is None:
            passes = known[value] = test(value)
        if passes:
            found.append(item)
    return found


class _Texts:
    """Tests texts by a pattern.

    A text that equals the pattern passes too, so that nobody need escape a principal.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._compiled = compile_pattern(pattern) if _SYNTAX.search(pattern) else None

    def __call__(self, text: str) -> bool:
        if text == self._pattern or self._compiled is None:
            return text == self._pattern
        return self._compiled.fullmatch(text.encode("utf-8", "replace")) is not None


def matches(pattern: str | None) -> Callable[[str], bool]:
    """Return a test by a parameter; None passes everything."""
    return (lambda _: True) if pattern is None else _Texts(pattern)


class _Software:
    """Tests software by its name and version, or those of its librdkafka."""

    def __init__(self, name: str | None, version: str | None) -> None:
        self._name = None if name is None else _Texts(name)
        self._version = None if version is None else _Texts(version)

    def __call__(self, software: tuple[str, str]) -> bool:
        return any(
            (self._name is None or self._name(name)) and (self._version is None or self._version(version))
            for name, version in software_identities(*software)
        )
