"""``/v1/connections``: connections and what they move (KIP-511, registry)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final, TypeAlias

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from receiver.api.background import in_background, json_response
from receiver.api.cluster import Cluster, ClusterPage, answer_list, use_answers
from receiver.api.dependencies import Dependencies
from receiver.api.filters import (
    ConnectionQuery,
    ConnectionState,
    connection_owner,
    connection_state,
    matching_connections,
)
from receiver.api.pages import MAX_LIMIT, first_page
from receiver.api.problems import InvalidError, field_error, problem_answers
from receiver.cluster.merge import Item, Order
from receiver.numbers import whole_number
from receiver.settings.cluster import AnswerScope
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.instance import ClientInstance
from receiver.telemetry.owners import Owners
from receiver.telemetry.subscription_document import time_from_text
from receiver.traffic.order import ConnectionGroup, ConnectionOrder
from receiver.traffic.traffic import ClosedConnection, Counters, Traffic
from receiver.wire.api_keys import api_name

router = APIRouter(prefix="/v1/connections", tags=["connections"], responses=problem_answers(422))


#: The value that the list is ordered by (negative for the greatest first), connection and receiver.
_Place: TypeAlias = tuple[int, str, str]

_GREATEST: Final = 10**18


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1e6) // 1000


def rfc3339(milliseconds: int) -> str:
    """Return milliseconds since the epoch in RFC 3339, in UTC."""
    text = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


class ConnectionFields(BaseModel):
    """The fields that connections and client instances share."""

    listener: str
    source_address: str
    source_port: int | None = Field(description="null: Kafka 3.7 does not show it to a bridge.")
    client_id: str
    client_software_name: str
    client_software_version: str
    principal: str
    sasl_mechanism: str | None = Field(description="The SASL mechanism of the login; null without SASL.")
    owner: str | None = Field(description="The name of its owner (`owners`); null: nobody declares it.")


class LastMinute(BaseModel):
    """What was moved in the last 50 to 60 seconds."""

    bytes_in: int
    bytes_out: int
    requests: int


class Moved(BaseModel):
    """What connections have moved: bytes of Kafka's protocol, without TLS.

    Null: the connection is not counted, because the core does not see its relay's counters.
    """

    bytes_in: int | None = Field(description="Bytes from clients.")
    bytes_out: int | None = Field(description="Bytes to clients.")
    requests: int | None = Field(description="Requests of clients that have begun.")
    in_flight: int | None = Field(
        description="Requests without a response; a Produce with acks=0 stays among them."
    )
    last_minute: LastMinute | None = Field(description="What was moved in the last 50 to 60 seconds.")
    idle_ms: int | None = Field(description="Milliseconds since the latest bytes of either direction.")


class VersionsView(BaseModel):
    """The versions in which an API was used."""

    lowest: int
    highest: int


class ConnectionView(ConnectionFields, Moved):
    """A client connection."""

    id: str = Field(description="Unique in its receiver until that restarts.")
    security_protocol: str
    client_instance_id: str | None = Field(
        description="In Kafka's text form, 22 characters; null until the client has sent one.",
    )
    since: str = Field(description="When it was accepted (RFC 3339, UTC).")
    age_ms: int = Field(description="Milliseconds since then, or from then until it closed.")
    state: ConnectionState = Field(
        description="The state of the client instance whose latest telemetry request came over it."
    )
    broker_id: int | None = Field(description="The broker that it leads to; null: not known.")
    relay: str | None = Field(description="The relay process that has it.")
    tls_version: str | None = Field(description="Of the client's side; null without TLS.")
    tls_cipher: str | None = Field(description="The same, in OpenSSL's words.")
    last_api: str | None = Field(description="The API of the latest request; null before the first.")
    api_versions: dict[str, VersionsView] | None = Field(
        description="The versions of each API that was used, of every request."
    )
    closed_at: str | None = Field(description="When it closed (RFC 3339, UTC); null: it is open.")
    reason: str | None = Field(
        description="Why it closed, as in `kafka_telemetry_connections_closed_total`; `relay_ended`: its "
        "relay has ended. null: it is open."
    )
    receiver: str | None = Field(default=None, description="With `scope=cluster`: the receiver that has it.")


class GroupView(Moved):
    """Connections with the same value."""

    principal: str | None = Field(default=None, description="With `by=principal`.")
    client_id: str | None = Field(default=None, description="With `by=client_id`.")
    software: str | None = Field(default=None, description="With `by=software`: name and version.")
    address: str | None = Field(default=None, description="With `by=address`.")
    listener: str | None = Field(default=None, description="With `by=listener`.")
    owner: str | None = Field(default=None, description="With `by=owner`; empty: those without an owner.")
    connections: int


_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": ClusterPage[ConnectionView] | ClusterPage[GroupView], "description": "A page."},
}


@dataclass(frozen=True, slots=True)
class _Entry:
    """A connection that is listed."""

    identity: ClientIdentity
    traffic: Traffic
    closed: ClosedConnection | None = None

    def counters(self) -> Counters | None:
        return self.traffic.counters(self.identity.id) if self.closed is None else self.closed.counters

    def totals(self) -> tuple[int, int, int]:
        if self.closed is None:
            return self.traffic.totals(self.identity.id)
        counters = self.closed.counters
        return (0, 0, 0) if counters is None else (counters.bytes_in, counters.bytes_out, counters.requests)


@router.get("", summary="List connections and what they move", responses=_RESPONSES)
async def list_connections(
    dependencies: Dependencies, query: Annotated[ConnectionQuery, Query()]
) -> Response:
    """List the open connections, or those that have closed, and what they move.

    With filters, only those that pass all of them.
    """
    traffic = dependencies.traffic
    entries = (
        [_Entry(closed.identity, traffic, closed) for closed in traffic.closed]
        if query.closed
        else [_Entry(identity, traffic) for identity in dependencies.connections()]
    )
    read = partial(
        _page,
        entries,
        list(dependencies.telemetry.instances),
        start=None if query.after is None else _place_of(query.after, query.by),
        owners=dependencies.telemetry.owners,
        receiver=dependencies.cluster.receiver_id,
        now=dependencies.monotonic(),
        wall_ms=dependencies.wall_ns() // 1_000_000,
    )
    if query.by is not None and query.scope is AnswerScope.CLUSTER:
        return await _answer_groups(dependencies.cluster, query, query.by, read)
    return await answer_list(dependencies.cluster, "/v1/connections", query, read, _order(query))


def _page(
    entries: Sequence[_Entry],
    instances: Sequence[ClientInstance],
    query: ConnectionQuery,
    *,
    start: tuple[int, str, str] | None,
    owners: Owners,
    receiver: str,
    now: float,
    wall_ms: int,
) -> dict[str, Any]:
    by_connection = {instance.identity.id: instance for instance in instances if not instance.is_expired(now)}

    def owner_of(identity: ClientIdentity) -> str | None:
        return connection_owner(identity, by_connection.get(identity.id), owners)

    passing = matching_connections([entry.identity for entry in entries], query, by_connection, owners, now)
    known = {entry.identity.id: entry for entry in entries}
    found = [known[identity.id] for identity in passing]
    if query.by is not None:
        documents = list(_groups(found, query.by, owner_of).values())
        return _sorted_page([(_value_of(document, query), document) for document in documents], query, start)
    value, sign = _VALUES[query.order[0]], _sign(query)
    places = [((sign * value(entry), entry.identity.id, receiver), entry) for entry in found]
    if start is not None:
        begin = (sign * start[0], *start[1:])
        places = [placed for placed in places if placed[0] > begin]
    # The cursor holds the position, because the connection may be closed when the next page is
    # asked for.
    page, following = first_page(
        places, query.limit, lambda placed: _cursor(placed[0], sign), lambda placed: placed[0]
    )
    return {
        "items": [
            _document(entry, by_connection, owner_of(entry.identity), now, wall_ms) for _, entry in page
        ],
        "next": following,
    }


def _sign(query: ConnectionQuery) -> int:
    return -1 if query.order[1] else 1


def _cursor(place: _Place, sign: int) -> str:
    value, connection_id, receiver = place
    return f"{sign * value}/{receiver}/{connection_id}"


def _order(query: ConnectionQuery) -> Order:
    sign = _sign(query)

    def position(item: Item) -> _Place:
        return sign * _value_of(item, query), str(item["id"]), item["receiver"]

    return Order(position=position, cursor=lambda item: _cursor(position(item), sign))


def _value_of(item: Item, query: ConnectionQuery) -> int:
    """Return the value of an item that the list is ordered by."""
    order, _ = query.order
    if order in {ConnectionOrder.SINCE, ConnectionOrder.CLOSED_AT}:
        return _milliseconds(time_from_text(item[order.value]).timestamp())
    if order is ConnectionOrder.LAST_MINUTE:
        last = item["last_minute"]
        return 0 if last is None else int(last["bytes_in"] + last["bytes_out"])
    return int(item[order.value] or 0)


def connection_fields(identity: ClientIdentity, owner: str | None) -> dict[str, Any]:
    """Return what :class:`ConnectionFields` describes."""
    return {
        "listener": identity.listener,
        "source_address": identity.source_address,
        "source_port": identity.source_port or None,
        "client_id": identity.client_id,
        "client_software_name": identity.client_software_name,
        "client_software_version": identity.client_software_version,
        "principal": identity.principal,
        "sasl_mechanism": identity.sasl_mechanism,
        "owner": owner,
    }


def _document(
    entry: _Entry, by_connection: dict[str, ClientInstance], owner: str | None, now: float, wall_ms: int
) -> dict[str, Any]:
    identity, counters, closed = entry.identity, entry.counters(), entry.closed
    since_ms = _milliseconds(identity.since)
    ended_ms = wall_ms if closed is None else closed.closed_ms
    state = ConnectionState.CLOSED
    if closed is None:
        state = connection_state(by_connection.get(identity.id), now)
    return {
        **connection_fields(identity, owner),
        **_moved(counters),
        "id": identity.id,
        "security_protocol": identity.security_protocol,
        "client_instance_id": identity.instance_text,
        "since": rfc3339(since_ms),
        "age_ms": max(ended_ms - since_ms, 0),
        "state": state,
        "broker_id": identity.broker.id,
        "relay": entry.traffic.relay(identity.id) if closed is None else closed.relay,
        "tls_version": identity.tls_version,
        "tls_cipher": identity.tls_cipher,
        "last_api": None if counters is None or counters.last_key is None else api_name(counters.last_key),
        "api_versions": None
        if counters is None
        else {
            api_name(key): {"lowest": lowest, "highest": highest}
            for key, (lowest, highest) in counters.api_versions.items()
        },
        "closed_at": None if closed is None else rfc3339(closed.closed_ms),
        "reason": None if closed is None else closed.reason,
    }


def _moved(counters: Counters | None) -> dict[str, Any]:
    """Return what :class:`Moved` describes."""
    if counters is None:
        return dict.fromkeys(Moved.model_fields)
    bytes_in, bytes_out, requests = counters.last_minute
    return {
        "bytes_in": counters.bytes_in,
        "bytes_out": counters.bytes_out,
        "requests": counters.requests,
        "in_flight": counters.in_flight,
        "last_minute": {"bytes_in": bytes_in, "bytes_out": bytes_out, "requests": requests},
        "idle_ms": counters.idle_ms,
    }


# -- groups ----------------------------------------------------------------------------------------

#: The values of groups; an owner depends on the client instance too.
_GROUPED: Final[dict[ConnectionGroup, Callable[[ClientIdentity], str]]] = {
    ConnectionGroup.PRINCIPAL: lambda identity: identity.principal,
    ConnectionGroup.CLIENT_ID: lambda identity: identity.client_id,
    ConnectionGroup.SOFTWARE: lambda identity: (
        f"{identity.client_software_name} {identity.client_software_version}"
    ),
    ConnectionGroup.ADDRESS: lambda identity: identity.source_address,
    ConnectionGroup.LISTENER: lambda identity: identity.listener,
}


#: The counters of a group that are sums.
_SUMS: Final = ("connections", "bytes_in", "bytes_out", "requests", "in_flight")


def _groups(
    found: Iterable[_Entry], by: ConnectionGroup, owner_of: Callable[[ClientIdentity], str | None]
) -> dict[str, Item]:
    """Return what :class:`GroupView` describes, by value."""
    groups: dict[str, Item] = {}
    value_of = _GROUPED.get(by)
    for entry in found:
        value = value_of(entry.identity) if value_of is not None else owner_of(entry.identity) or ""
        moved = {**_moved(entry.counters()), "connections": 1, by.value: value}
        known = groups.get(value)
        groups[value] = _sum((moved,) if known is None else (known, moved), by)
    return groups


def _sum(members: Sequence[Item], by: ConnectionGroup) -> Item:
    last = [member["last_minute"] for member in members if member["last_minute"] is not None]
    idle = [int(member["idle_ms"]) for member in members if member["idle_ms"] is not None]
    return {
        by.value: members[0][by.value],
        **{name: sum(int(member[name] or 0) for member in members) for name in _SUMS},
        "last_minute": {name: sum(int(moved[name]) for moved in last) for name in LastMinute.model_fields},
        "idle_ms": min(idle, default=None),
    }


def _sorted_page(
    rows: Sequence[tuple[int, Item]], query: ConnectionQuery, start: tuple[int, str, str] | None
) -> dict[str, Any]:
    sign, by = _sign(query), ConnectionGroup.PRINCIPAL if query.by is None else query.by
    places = [((sign * value, str(item[by.value])), item) for value, item in rows]
    if start is not None:
        begin = sign * start[0], start[1]
        places = [placed for placed in places if placed[0] > begin]
    page, following = first_page(
        places,
        query.limit,
        lambda placed: f"{sign * placed[0][0]}/{placed[0][1]}",
        lambda placed: placed[0],
    )
    return {"items": [item for _, item in page], "next": following}


async def _answer_groups(
    cluster: Cluster, query: ConnectionQuery, by: ConnectionGroup, read: Callable[[ConnectionQuery], Any]
) -> Response:
    """Add up the groups of all receivers: the first 1,000 of each."""
    asked = query.model_copy(update={"scope": AnswerScope.RECEIVER, "limit": MAX_LIMIT, "after": None})
    parameters = asked.model_dump(mode="json", exclude_none=True)
    own, answers = await asyncio.gather(
        in_background(read, asked), cluster.ask("/v1/connections", parameters)
    )
    groups: dict[str, Item] = {}

    def add(_: str, document: object) -> None:
        match document:
            case {"items": list(items)}:
                pass
            case _:
                raise ValueError("it is no list")
        try:
            summed = [(str(item[by.value]), _sum((item,), by)) for item in items]
        except (KeyError, TypeError, AttributeError):
            raise ValueError("an item lacks what the list is grouped by") from None
        for value, item in summed:
            groups[value] = _sum((groups[value], item), by) if value in groups else item

    add(cluster.receiver_id, own)
    members = use_answers(cluster, answers, add)
    start = None if query.after is None else _place_of(query.after, by)
    page = _sorted_page([(_value_of(item, query), item) for item in groups.values()], query, start)
    return json_response({**page, "members": members})


# -- order -----------------------------------------------------------------------------------------


def _counted(read: Callable[[Counters], int]) -> Callable[[_Entry], int]:
    def value(entry: _Entry) -> int:
        counters = entry.counters()
        return 0 if counters is None else read(counters)

    return value


_VALUES: Final[dict[ConnectionOrder, Callable[[_Entry], int]]] = {
    ConnectionOrder.SINCE: lambda entry: _milliseconds(entry.identity.since),
    ConnectionOrder.CLOSED_AT: lambda entry: 0 if entry.closed is None else entry.closed.closed_ms,
    ConnectionOrder.BYTES_IN: lambda entry: entry.totals()[0],
    ConnectionOrder.BYTES_OUT: lambda entry: entry.totals()[1],
    ConnectionOrder.REQUESTS: lambda entry: entry.totals()[2],
    ConnectionOrder.IN_FLIGHT: _counted(lambda counters: counters.in_flight),
    ConnectionOrder.LAST_MINUTE: _counted(lambda counters: sum(counters.last_minute[:2])),
    ConnectionOrder.IDLE_MS: _counted(lambda counters: counters.idle_ms),
}


def _place_of(cursor: str, by: ConnectionGroup | None) -> tuple[int, str, str]:
    """Return value, connection (or a group's value) and receiver of a cursor."""
    text, _, rest = cursor.partition("/")
    value = whole_number(text, _GREATEST)
    if value is None:
        raise InvalidError(field_error(("after",), cursor, "expected the `next` of the previous page"))
    if by is not None:
        return value, rest, ""
    receiver, _, connection_id = rest.partition("/")
    return value, connection_id, receiver
