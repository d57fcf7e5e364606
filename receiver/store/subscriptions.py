"""The only way to change the subscriptions in force.

A change is first durable, then in force, and then answered. So an answered change survives a crash,
and the next request of every client sees it. Changes that others make in the store come into force
when the store reports them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import structlog

from receiver.store.store import StoreStatus, SubscriptionStore
from receiver.telemetry.current_subscriptions import CurrentSubscriptions
from receiver.telemetry.subscription import Subscription, SubscriptionSet
from receiver.workers import call_in_loop, start_task

#: Makes a new subscription of the existing one; None: there is none.
Edit: TypeAlias = Callable[[Subscription | None], Subscription | None]

#: Called after each change with all subscriptions before, and now.
Changed: TypeAlias = Callable[[SubscriptionSet, SubscriptionSet], object]
#: The subscriptions of a store, and whether they are known and not only assumed.
StoreContent: TypeAlias = tuple[SubscriptionSet, bool]

_Result = TypeVar("_Result")

#: Seconds until a store is read again that could not be read.
_AGAIN_S: Final = 1.0

_log = structlog.get_logger("receiver.store")


def _ignore(before: SubscriptionSet, after: SubscriptionSet) -> None:
    pass


class Subscriptions:
    """Changes the subscriptions in force. Use it from the event loop's thread only.

    The store makes them durable, on a worker thread.

    Args:
        current: Holds those in force; nobody else may change it.
        now: Returns the time of the wall clock.
    """

    def __init__(
        self,
        store: SubscriptionStore,
        current: CurrentSubscriptions,
        *,
        now: Callable[[], datetime],
        changed: Changed = _ignore,
    ) -> None:
        self._store = store
        self._current = current
        self._now = now
        self._changed = changed
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[Any]] = set()
        self._reading = False

    @property
    def in_force(self) -> SubscriptionSet:
        """All subscriptions, whether they apply now or not."""
        return self._current.every

    @property
    def known(self) -> bool:
        """Whether they are the store's.

        A store that could not be read yet has none.
        """
        return self._current.known

    async def load(self) -> None:
        """Read all subscriptions from the store, and follow its changes.

        Raises:
            StoreError: The store cannot be read.
            SubscriptionError: There are too many subscriptions.
        """
        async with self._changing:
            self._take(await asyncio.to_thread(read_store, self._store))
        self._follow(self._store)

    async def use(self, store: SubscriptionStore, content: StoreContent) -> None:
        """Use another store, once a change in the present one is complete."""
        async with self._changing:
            self._store = store
            self._take(content)
        self._follow(store)
        self._read_again(store)  # it may have changed since it was read

    def status(self) -> StoreStatus:
        """Return whether the store can be used."""
        return self._store.status()

    async def edit(self, name: str, make: Edit, *, only_check: bool = False) -> None:
        """Replace a subscription by what ``make`` returns, or delete it if that is None.

        ``make`` gets what is in the store now, and no other change can happen between. A
        subscription that stays the same is not written.

        Args:
            make: Makes the new subscription; its errors are raised, and nothing has changed.
            only_check: Change nothing. The store is not asked.

        Raises:
            ReadOnlyError: Subscriptions of this store are changed elsewhere.
            StoreError: The store could not be read or written; nothing has changed.
            SubscriptionError: There would be too many subscriptions.
        """
        await self._complete(self._edit(name, make, only_check))

    async def _edit(self, name: str, make: Edit, only_check: bool) -> None:  # noqa: FBT001 - see edit
        async with self._changing:
            if not only_check:
                # What another sidecar has changed is the basis of the change.
                await asyncio.to_thread(self._store.refresh)
                await self._use_content(self._store)
            existing = self._current.every.get(name)
            made = make(existing)
            if made == existing:
                return
            kept = self._others(name)
            changed = await asyncio.to_thread(
                SubscriptionSet.prepared, kept if made is None else (*kept, made)
            )
            if only_check:
                return
            if made is None:
                await asyncio.to_thread(self._store.delete, name)
            else:
                await asyncio.to_thread(self._store.put, made)
            self._put_in_force(changed)

    def _others(self, name: str) -> tuple[Subscription, ...]:
        return tuple(other for other in self._current.every.subscriptions if other.name != name)

    async def _complete(self, change: Coroutine[Any, Any, _Result]) -> _Result:
        # A caller that is cancelled must not leave the store and the core with different
        # subscriptions.
        return await asyncio.shield(self._task(change))

    def _task(self, change: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        return self._kept(asyncio.get_running_loop().create_task(change))

    def _kept(self, task: asyncio.Task[_Result]) -> asyncio.Task[_Result]:
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return task

    def _follow(self, store: SubscriptionStore) -> None:
        store.follow(partial(call_in_loop, asyncio.get_running_loop(), self._read_again, store))

    def _read_again(self, store: SubscriptionStore) -> None:
        # The reading that waits for the lock will see this change too.
        if store is self._store and not self._reading:
            self._reading = True
            # After a failure too, which is reported: the store says only once that it has changed.
            again = partial(asyncio.get_running_loop().call_later, _AGAIN_S, self._read_again, store)
            self._kept(start_task("subscriptions", self._reread(store), on_defect=again))

    async def _reread(self, store: SubscriptionStore) -> None:
        async with self._changing:
            self._reading = False
            if store is not self._store:
                return
            await self._use_content(store)

    async def _use_content(self, store: SubscriptionStore) -> bool:
        """Put a store's subscriptions in force, and return whether they differ."""
        subscriptions, known = await asyncio.to_thread(read_store, store)
        if (subscriptions.subscriptions, known) == (self.in_force.subscriptions, self.known):
            return False
        self._take((subscriptions, known))
        _log.info("subscriptions changed", subscriptions=len(subscriptions), version=subscriptions.version)
        return True

    def _take(self, read: StoreContent) -> None:
        subscriptions, self._current.known = read
        self._put_in_force(subscriptions)

    def _put_in_force(self, subscriptions: SubscriptionSet) -> None:
        before = self._current.every
        self._current.replace(subscriptions, self._now())
        self._changed(before, subscriptions)


def read_store(store: SubscriptionStore) -> StoreContent:
    """Return a store's subscriptions, and whether they are known.

    Raises:
        StoreError: The store cannot be read.
        SubscriptionError: There are too many subscriptions.
    """
    # The status first: once it says so, they are there.
    known = store.status().known
    return SubscriptionSet.prepared(store.load_all()), known
