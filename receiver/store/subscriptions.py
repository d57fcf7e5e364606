"""The subscriptions in force, and the one way to change them.

Owns the order of a change: first it is durable, then the telemetry core has it, then the caller hears of it.
So a subscription that was answered for survives a crash, and the next request of every client sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias

from receiver.store.store import SubscriptionStore
from receiver.telemetry.subscription import Subscription, SubscriptionSet

__all__ = [
    "ChangedMeanwhileError",
    "Condition",
    "Subscriptions",
]

#: Says whether a change may happen to the subscription that is there, or to None.
Condition: TypeAlias = Callable[[Subscription | None], bool]


@dataclass(eq=False)
class ChangedMeanwhileError(Exception):
    """The subscription is not the one that the change was meant for.

    Attributes:
        name: Its name.
        exists: Whether there is one of that name now.
    """

    name: str
    exists: bool

    def __str__(self) -> str:
        if not self.exists:
            return f"there is no subscription named {self.name!r} to change: read what there is"
        return f"the subscription {self.name!r} is not what it was: read it again and decide anew"


class Subscriptions:
    """The subscriptions in force. Used from the event loop's thread; the store works on another.

    Args:
        store: Keeps them.
        replace: Puts all of them in force at once (``ClientTelemetry.replace_subscriptions``).
    """

    def __init__(self, store: SubscriptionStore, replace: Callable[[SubscriptionSet], object]) -> None:
        self._store = store
        self._replace = replace
        self._in_force = SubscriptionSet()
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[bool]] = set()

    async def load(self) -> None:
        """Read all subscriptions from the store and put them in force.

        Raises:
            StoreError: They cannot be read.
            SubscriptionError: All of them together are over a bound.
        """
        async with self._changing:
            self._put_in_force(SubscriptionSet(await asyncio.to_thread(self._store.load_all)))

    def list(self) -> tuple[Subscription, ...]:
        """All subscriptions, by name."""
        return self._in_force.subscriptions

    def get(self, name: str) -> Subscription | None:
        """The subscription of a name, None where there is none."""
        return self._in_force.get(name)

    async def put(self, subscription: Subscription, *, only_if: Condition | None = None) -> bool:
        """Keep a subscription and put it in force, in place of the one of its name.

        Args:
            subscription: The new one.
            only_if: Asked, when nothing else can change it any more, about the one of its name, or None.

        Returns:
            True where there was none of its name before.

        Raises:
            ChangedMeanwhileError: ``only_if`` said no.
            StoreError: It could not be written, and nothing has changed.
            SubscriptionError: All subscriptions together would be over a bound.
        """
        return await self._to_its_end(self._put(subscription, only_if))

    async def delete(self, name: str, *, only_if: Condition | None = None) -> bool:
        """Forget a subscription.

        Args:
            name: Its name.
            only_if: As with :meth:`put`.

        Returns:
            False where there was none of that name.

        Raises:
            ChangedMeanwhileError: ``only_if`` said no.
            StoreError: It could not be written, and nothing has changed.
        """
        return await self._to_its_end(self._delete(name, only_if))

    async def _put(self, subscription: Subscription, only_if: Condition | None) -> bool:
        async with self._changing:
            existing = self._existing(subscription.name, only_if)
            others = (other for other in self._in_force.subscriptions if other is not existing)
            changed = SubscriptionSet((*others, subscription))
            await asyncio.to_thread(self._store.put, subscription)
            self._put_in_force(changed)
            return existing is None

    async def _delete(self, name: str, only_if: Condition | None) -> bool:
        async with self._changing:
            existing = self._existing(name, only_if)
            if existing is None:
                return False
            await asyncio.to_thread(self._store.delete, name)
            self._put_in_force(
                SubscriptionSet(other for other in self._in_force.subscriptions if other is not existing)
            )
            return True

    def _existing(self, name: str, only_if: Condition | None) -> Subscription | None:
        existing = self._in_force.get(name)
        if only_if is not None and not only_if(existing):
            raise ChangedMeanwhileError(name, existing is not None)
        return existing

    async def _to_its_end(self, change: Coroutine[Any, Any, bool]) -> bool:
        # A caller that gives up half-way must not leave the store and the core with different subscriptions.
        task = asyncio.ensure_future(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    def _put_in_force(self, subscriptions: SubscriptionSet) -> None:
        self._in_force = subscriptions
        self._replace(subscriptions)
