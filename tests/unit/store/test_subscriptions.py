"""The subscriptions in force: durable first, then in force, never only one of them."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from receiver.store import subscriptions as subscriptions_module
from receiver.store.files import FileSubscriptionStore
from receiver.store.sqlite import SqliteSubscriptionStore
from receiver.store.store import StoreError, StoreStatus, SubscriptionStore
from receiver.store.subscriptions import Subscriptions, read_store
from receiver.telemetry.current_subscriptions import CurrentSubscriptions
from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.subscription import Subscription, SubscriptionSet
from receiver.telemetry.subscription_checks import MAX_SUBSCRIPTIONS
from tests.unit.gateway.support import eventually

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
Scenario = Callable[[Subscriptions, list[SubscriptionSet]], Coroutine[Any, Any, None]]


def named(name: str, interval_ms: int = 1000) -> Subscription:
    return Subscription(name=name, metrics=("a.",), interval_ms=interval_ms, match={})


def made(store: SubscriptionStore, in_force: list[SubscriptionSet]) -> Subscriptions:
    """Changes of a store's subscriptions; the list gets each set that is in force."""
    current = CurrentSubscriptions()

    def changed(before: SubscriptionSet, after: SubscriptionSet) -> None:
        assert current.every is after
        assert not in_force or before is in_force[-1]
        in_force.append(after)

    return Subscriptions(store, current, now=lambda: NOW, changed=changed)


async def put(subscriptions: Subscriptions, one: Subscription) -> None:
    await subscriptions.edit(one.name, lambda existing: one)


async def delete(subscriptions: Subscriptions, name: str) -> None:
    await subscriptions.edit(name, lambda existing: None)


def run(path: Path, scenario: Scenario) -> None:
    store = SqliteSubscriptionStore(path)

    async def whole() -> None:
        in_force: list[SubscriptionSet] = []
        subscriptions = made(store, in_force)
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
        subscriptions = Subscriptions(
            store,
            CurrentSubscriptions(),
            now=lambda: NOW,
            changed=lambda _, after: in_force.append((len(after), subscriptions.known)),
        )
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
        await put(subscriptions, named("b"))
        await put(subscriptions, named("a"))
        await put(subscriptions, named("b", 2000))
        await put(subscriptions, named("c"))
        await delete(subscriptions, "c")
        await delete(subscriptions, "c")
        assert subscriptions.in_force.subscriptions == (named("a"), named("b", 2000))
        assert subscriptions.in_force.get("b") == named("b", 2000)
        assert subscriptions.in_force.get("c") is None
        names = [[subscription.name for subscription in each.subscriptions] for each in in_force]
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
        subscriptions = made(store, in_force)
        await subscriptions.load()
        await put(subscriptions, named("a"))
        store.close()
        with pytest.raises(StoreError):
            await put(subscriptions, named("b"))
        with pytest.raises(StoreError):
            await delete(subscriptions, "a")
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
            await put(subscriptions, named("another"))
        await put(subscriptions, named("s0", 2000))
        assert len(subscriptions.in_force.subscriptions) == MAX_SUBSCRIPTIONS

    run(tmp_path / "s.db", scenario)


def test_an_edit_sees_what_is_there_and_no_other_change_can_happen_between(tmp_path: Path) -> None:
    class ExistsError(Exception):
        pass

    def only_new(existing: Subscription | None) -> Subscription:
        if existing is not None:
            raise ExistsError
        return named("a")

    def longer(existing: Subscription | None) -> Subscription:
        assert existing is not None
        return replace(existing, interval_ms=existing.interval_ms + 1000)

    async def scenario(subscriptions: Subscriptions, in_force: list[SubscriptionSet]) -> None:
        outcomes = await asyncio.gather(
            *(subscriptions.edit("a", only_new) for _ in range(10)), return_exceptions=True
        )
        assert sorted(isinstance(outcome, ExistsError) for outcome in outcomes) == [False] + [True] * 9
        await asyncio.gather(*(subscriptions.edit("a", longer) for _ in range(10)))
        assert subscriptions.in_force.get("a") == named("a", 11_000)
        written = len(in_force)
        await subscriptions.edit("a", lambda existing: existing)
        await subscriptions.edit("a", longer, only_check=True)
        assert len(in_force) == written, "what stays the same or is only checked is not put in force"

    run(tmp_path / "s.db", scenario)


class ReportedStore:
    """A store whose other parties change it when a test says so."""

    def __init__(self) -> None:
        self.content: tuple[Subscription, ...] = ()
        self.content_elsewhere: tuple[Subscription, ...] | None = None
        self.changed: Callable[[], None] = lambda: None
        self.reads = 0

    def load_all(self) -> tuple[Subscription, ...]:
        self.reads += 1
        return self.content

    def put(self, subscription: Subscription) -> None:
        self.content = (*self.content, subscription)

    def delete(self, name: str) -> None:
        self.content = tuple(item for item in self.content if item.name != name)

    def refresh(self) -> None:
        if self.content_elsewhere is not None:
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
        subscriptions = made(first, in_force)
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
        await put(subscriptions, named("b"))
        assert len(in_force) == 3

        # A store that is no longer used reports in vain.
        second.content = (named("c"),)
        await subscriptions.use(second, read_store(second))
        first.content = (named("d"),)
        await asyncio.to_thread(first.changed)
        second.content = (named("e"),)
        await asyncio.to_thread(second.changed)
        await until(lambda: subscriptions.in_force.get("e") is not None)
        assert subscriptions.in_force.subscriptions == (named("e"),)

    asyncio.run(scenario())


def test_a_change_of_others_is_read_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions_module, "_AGAIN_S", 0.01)

    async def scenario() -> None:
        store = ReportedStore()
        subscriptions = made(store, [])
        await subscriptions.load()
        store.content = (named("a"),)
        load_all, failures = store.load_all, [LookupError(), StoreError("store", "is away")]

        def failing() -> tuple[Subscription, ...]:
            if failures:
                raise failures.pop()
            return load_all()

        store.load_all = failing  # type: ignore[method-assign]  # as a store with a defect
        with capture_logs() as logs:
            await asyncio.to_thread(store.changed)
            await until(lambda: subscriptions.in_force.get("a") is not None)
        failed = [(line["worker"], line["error"]) for line in logs if "worker" in line]
        assert failed == [("subscriptions", "StoreError"), ("subscriptions", "LookupError")]

    asyncio.run(scenario())


def test_an_edit_begins_with_what_others_have_changed() -> None:
    async def scenario() -> None:
        in_force: list[SubscriptionSet] = []
        store = ReportedStore()
        subscriptions = made(store, in_force)
        await subscriptions.load()
        store.content_elsewhere = (named("a"),)
        found: list[Subscription | None] = []

        def look(existing: Subscription | None) -> Subscription | None:
            found.append(existing)
            return existing

        await subscriptions.edit("a", look)
        assert found == [named("a")]
        assert subscriptions.in_force.subscriptions == (named("a"),)
        await subscriptions.edit("a", look)
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
        change = asyncio.ensure_future(put(subscriptions, named("a")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        change.cancel()
        with pytest.raises(asyncio.CancelledError):
            await change
        # The next change waits for the cancelled caller's change.
        await put(subscriptions, named("b"))
        assert [subscription.name for subscription in subscriptions.in_force.subscriptions] == ["a", "b"]

    run(path, scenario)
    store = SqliteSubscriptionStore(path)
    assert [item.name for item in store.load_all()] == ["a", "b"]
    store.close()
