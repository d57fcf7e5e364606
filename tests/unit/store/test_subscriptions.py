"""The subscriptions in force: durable first, then in force, never only one of them."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from receiver.store.files import FileSubscriptionStore
from receiver.store.sqlite import SqliteSubscriptionStore
from receiver.store.store import StoreError, StoreStatus
from receiver.store.subscriptions import ChangedMeanwhileError, Subscriptions
from receiver.telemetry.subscription import (
    MAX_SUBSCRIPTIONS,
    Subscription,
    SubscriptionError,
    SubscriptionSet,
)
from tests.unit.gateway.support import eventually

Scenario = Callable[[Subscriptions, list[SubscriptionSet]], Coroutine[Any, Any, None]]


def named(name: str, interval_ms: int = 1000) -> Subscription:
    return Subscription(name=name, metrics=("a.",), interval_ms=interval_ms, match={})


def run(path: Path, scenario: Scenario) -> None:
    store = SqliteSubscriptionStore(path)

    async def whole() -> None:
        in_force: list[SubscriptionSet] = []
        subscriptions = Subscriptions(store, in_force.append)
        await subscriptions.load()
        await scenario(subscriptions, in_force)

    try:
        asyncio.run(whole())
    finally:
        store.close()


def test_what_is_known_changes_with_what_is_in_force(tmp_path: Path) -> None:
    """An empty set that was read differs from one that was not."""
    folder = tmp_path / "absent"
    store = FileSubscriptionStore(folder, every_s=0.01)
    in_force: list[tuple[int, bool]] = []

    async def whole() -> None:
        subscriptions = Subscriptions(store, lambda one: in_force.append((len(one), subscriptions.known)))
        await subscriptions.load()
        assert in_force == [(0, False)]
        assert store.status().failures == 1
        folder.mkdir()
        await eventually(lambda: subscriptions.known, "the folder")
        assert in_force == [(0, False), (0, True)]
        (folder / "a.yaml").write_text("metrics: 5")
        await eventually(lambda: store.status().problem is not None, "the mistake")
        assert store.status().known  # the last good ones are

    try:
        asyncio.run(whole())
    finally:
        store.close()


def test_each_change_is_durable_and_in_force(tmp_path: Path) -> None:
    path = tmp_path / "s.db"

    async def scenario(subscriptions: Subscriptions, in_force: list[SubscriptionSet]) -> None:
        assert await subscriptions.put(named("b")) is True
        assert await subscriptions.put(named("a")) is True
        assert await subscriptions.put(named("b", 2000)) is False
        assert await subscriptions.put(named("c")) is True
        assert await subscriptions.delete("c") is True
        assert await subscriptions.delete("c") is False
        assert subscriptions.in_force.subscriptions == (named("a"), named("b", 2000))
        assert subscriptions.in_force.get("b") == named("b", 2000)
        assert subscriptions.in_force.get("c") is None
        names = [[one.name for one in each.subscriptions] for each in in_force]
        assert names == [[], ["b"], ["a", "b"], ["a", "b"], ["a", "b", "c"], ["a", "b"]]

    run(path, scenario)

    async def after_a_restart(subscriptions: Subscriptions, in_force: list[SubscriptionSet]) -> None:
        assert subscriptions.in_force.subscriptions == (named("a"), named("b", 2000))
        assert in_force[-1].subscriptions == subscriptions.in_force.subscriptions

    run(path, after_a_restart)


def test_a_change_that_cannot_be_written_is_not_in_force(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SqliteSubscriptionStore(path)

    async def scenario() -> None:
        in_force: list[SubscriptionSet] = []
        subscriptions = Subscriptions(store, in_force.append)
        await subscriptions.load()
        await subscriptions.put(named("a"))
        store.close()
        with pytest.raises(StoreError):
            await subscriptions.put(named("b"))
        with pytest.raises(StoreError):
            await subscriptions.delete("a")
        assert subscriptions.in_force.subscriptions == (named("a"),)
        assert len(in_force) == 2

    asyncio.run(scenario())


def test_too_many_subscriptions_are_refused_before_they_are_written(tmp_path: Path) -> None:
    store = SqliteSubscriptionStore(tmp_path / "s.db")
    for number in range(MAX_SUBSCRIPTIONS):
        store.put(named(f"s{number}"))
    store.close()

    async def scenario(subscriptions: Subscriptions, in_force: list[SubscriptionSet]) -> None:
        with pytest.raises(SubscriptionError, match=f"keep at most {MAX_SUBSCRIPTIONS}"):
            await subscriptions.put(named("another"))
        assert await subscriptions.put(named("s0", 2000)) is False
        assert len(subscriptions.in_force.subscriptions) == MAX_SUBSCRIPTIONS

    run(tmp_path / "s.db", scenario)


def test_a_condition_is_checked_under_the_lock(tmp_path: Path) -> None:
    async def scenario(subscriptions: Subscriptions, in_force: list[SubscriptionSet]) -> None:
        def only_new(existing: Subscription | None) -> bool:
            return existing is None

        outcomes = await asyncio.gather(
            *(subscriptions.put(named("a", 1000 + n), only_if=only_new) for n in range(10)),
            return_exceptions=True,
        )
        assert (
            sorted(isinstance(outcome, ChangedMeanwhileError) for outcome in outcomes) == [False] + [True] * 9
        )
        with pytest.raises(ChangedMeanwhileError, match="'a' has changed"):
            await subscriptions.delete("a", only_if=only_new)
        assert len(subscriptions.in_force.subscriptions) == 1

    run(tmp_path / "s.db", scenario)


class ReportedStore:
    """A store whose other parties change it when a test says so."""

    def __init__(self) -> None:
        self.content: tuple[Subscription, ...] = ()
        self.content_elsewhere: tuple[Subscription, ...] = ()
        self.changed: Callable[[], None] = lambda: None
        self.reads = 0

    def load_all(self) -> tuple[Subscription, ...]:
        self.reads += 1
        return self.content

    def put(self, subscription: Subscription) -> None:
        self.content = (*self.content, subscription)

    def delete(self, name: str) -> None:
        self.content = tuple(one for one in self.content if one.name != name)

    def refresh(self) -> None:
        self.content = self.content_elsewhere

    def follow(self, changed: Callable[[], None]) -> None:
        self.changed = changed

    def status(self) -> StoreStatus:
        return StoreStatus(problem="it is away")

    def close(self) -> None:
        pass


def test_changes_of_others_come_into_force() -> None:
    async def scenario() -> None:
        in_force: list[SubscriptionSet] = []
        first, second = ReportedStore(), ReportedStore()
        subscriptions = Subscriptions(first, in_force.append)
        assert subscriptions.status().problem == "it is away"
        await subscriptions.load()
        first.content = (named("a"),)
        await asyncio.to_thread(first.changed)
        await until(lambda: subscriptions.in_force.get("a") is not None)
        assert len(in_force) == 2

        # The same content again is no change.
        reads = first.reads
        await asyncio.to_thread(first.changed)
        await until(lambda: first.reads > reads)
        await subscriptions.put(named("b"))
        assert len(in_force) == 3

        # A store that is no longer used reports in vain.
        second.content = (named("c"),)
        await subscriptions.use(second)
        first.content = (named("d"),)
        await asyncio.to_thread(first.changed)
        second.content = (named("e"),)
        await asyncio.to_thread(second.changed)
        await until(lambda: subscriptions.in_force.get("e") is not None)
        assert subscriptions.in_force.subscriptions == (named("e"),)

    asyncio.run(scenario())


def test_a_refresh_puts_changes_of_others_in_force() -> None:
    async def scenario() -> None:
        in_force: list[SubscriptionSet] = []
        store = ReportedStore()
        subscriptions = Subscriptions(store, in_force.append)
        await subscriptions.load()
        store.content_elsewhere = (named("a"),)
        await subscriptions.refresh()
        assert subscriptions.in_force.subscriptions == (named("a"),)
        await subscriptions.refresh()
        assert len(in_force) == 2

    asyncio.run(scenario())


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(6000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came true")


def test_a_cancelled_caller_leaves_store_and_core_consistent(tmp_path: Path) -> None:
    path = tmp_path / "s.db"

    async def scenario(subscriptions: Subscriptions, in_force: list[SubscriptionSet]) -> None:
        change = asyncio.ensure_future(subscriptions.put(named("a")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        change.cancel()
        with pytest.raises(asyncio.CancelledError):
            await change
        # The next change waits for the cancelled caller's change.
        await subscriptions.put(named("b"))
        assert [one.name for one in subscriptions.in_force.subscriptions] == ["a", "b"]

    run(path, scenario)
    store = SqliteSubscriptionStore(path)
    assert [one.name for one in store.load_all()] == ["a", "b"]
    store.close()
