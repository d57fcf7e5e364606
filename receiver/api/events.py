"""The latest events: changes of subscriptions, and clients that come and go.

Owns their order and bound. All of it runs on the event loop. An event has an id, so that a reader
can go on where it stopped, over another connection too.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from receiver.clock import wall_time
from receiver.numbers import whole_number
from receiver.telemetry.instance import ClientInstance
from receiver.telemetry.owners import Owners
from receiver.telemetry.subscription import SubscriptionSet
from receiver.telemetry.subscription_document import time_to_text
from receiver.wire.uuid import Uuid, uuid_to_text

#: Events that are kept. A reader that is further behind learns that it missed some.
MAX_EVENTS: Final = 1_000

#: The highest number of an event that a reader may name. No process lives for so many.
_MAX_NUMBER: Final = 2**53


class EventType(StrEnum):
    """What happened."""

    SUBSCRIPTION_CREATED = "subscription_created"
    SUBSCRIPTION_CHANGED = "subscription_changed"
    SUBSCRIPTION_DELETED = "subscription_deleted"
    SUBSCRIPTION_EXPIRED = "subscription_expired"
    OWNER_CREATED = "owner_created"
    OWNER_CHANGED = "owner_changed"
    OWNER_DELETED = "owner_deleted"
    CLIENT_CREATED = "client_created"
    CLIENT_FORGOTTEN = "client_forgotten"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event."""

    number: int
    """Its place in the log, from 1."""
    time: str
    """When it happened (RFC 3339, UTC)."""
    type: EventType
    subscription: str | None = None
    """The subscription's name."""
    client_instance_id: str | None = None
    """The client instance's id in Kafka's text form."""
    client_id: str | None = None
    """The client's id, of a client that came."""
    owner: str | None = None
    """The owner's name."""


class EventLog:
    """The latest events.

    Args:
        wall_ns: Returns nanoseconds since the epoch. Its value at the start distinguishes this log
            from that of another process.
    """

    def __init__(self, wall_ns: Callable[[], int]) -> None:
        self._wall_ns = wall_ns
        self._name = f"{wall_ns():x}"
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._numbers = itertools.count(1)
        self._last = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def event_id(self, number: int) -> str:
        """Return the id of an event, by its number; of the log's begin, by 0."""
        return f"{self._name}-{number}"

    @property
    def last_id(self) -> str:
        """The id of the latest event."""
        return self.event_id(self._last)

    def after(self, event_id: str, limit: int) -> tuple[list[Event], bool]:
        """Return the first events after an id, and whether events between were lost.

        An id of another process, or of an event that is no longer kept, begins with the oldest.
        """
        name, _, number = event_id.rpartition("-")
        given = whole_number(number, _MAX_NUMBER) if name == self._name else None
        start = given or 0
        oldest = self._events[0].number if self._events else self._last + 1
        found = itertools.islice((event for event in self._events if event.number > start), limit)
        return list(found), given is None or start + 1 < oldest

    async def changed(self) -> None:
        """Wait for the next event."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def subscriptions_replaced(self, before: SubscriptionSet, after: SubscriptionSet) -> None:
        """Note what differs between two sets of subscriptions."""
        for subscription in after.subscriptions:
            existing = before.get(subscription.name)
            if existing is None:
                self._add(EventType.SUBSCRIPTION_CREATED, subscription=subscription.name)
            elif existing != subscription:
                self._add(EventType.SUBSCRIPTION_CHANGED, subscription=subscription.name)
        for subscription in before.subscriptions:
            if after.get(subscription.name) is None:
                self._add(EventType.SUBSCRIPTION_DELETED, subscription=subscription.name)

    def owners_replaced(self, before: Owners, after: Owners) -> None:
        """Note what differs between the owners in force before and now."""
        known = {owner.team: owner for owner in before.owners}
        for owner in after.owners:
            existing = known.pop(owner.team, None)
            if existing is None:
                self._add(EventType.OWNER_CREATED, owner=owner.team)
            elif existing != owner:
                self._add(EventType.OWNER_CHANGED, owner=owner.team)
        for team in known:
            self._add(EventType.OWNER_DELETED, owner=team)

    def subscription_expired(self, name: str) -> None:
        """Note a subscription that ended by itself."""
        self._add(EventType.SUBSCRIPTION_EXPIRED, subscription=name)

    def client_created(self, client: ClientInstance) -> None:
        """Note a new client instance."""
        client_id = client.identity.client_id
        self._add(EventType.CLIENT_CREATED, client_instance_id=client.text_id, client_id=client_id)

    def client_forgotten(self, client_instance_id: Uuid) -> None:
        """Note a client instance that was forgotten."""
        self._add(EventType.CLIENT_FORGOTTEN, client_instance_id=uuid_to_text(client_instance_id))

    def _add(
        self,
        type_: EventType,
        *,
        subscription: str | None = None,
        client_instance_id: str | None = None,
        client_id: str | None = None,
        owner: str | None = None,
    ) -> None:
        self._last = next(self._numbers)
        self._events.append(
            Event(
                number=self._last,
                time=time_to_text(wall_time(self._wall_ns())),
                type=type_,
                subscription=subscription,
                client_instance_id=client_instance_id,
                client_id=client_id,
                owner=owner,
            )
        )
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
