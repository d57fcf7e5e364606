"""The tables of relays and the file of usage: each count once, whatever is killed between."""

from __future__ import annotations

import asyncio
import mmap
import os
import sqlite3
import threading
from pathlib import Path

import pytest

from receiver.settings.usage import UsageSettings
from receiver.traffic import table
from receiver.traffic import traffic as traffic_module
from receiver.traffic.table import CoreTable, RelayTable, new_table
from receiver.traffic.traffic import Traffic
from receiver.traffic.usage_store import (
    OTHER,
    Amounts,
    Key,
    Settlement,
    UsageError,
    UsageStore,
    UsageUnavailableError,
    open_usage,
)
from tests.unit.api.conftest import connection
from tests.unit.gateway.support import eventually

DAY = "2026-11-21"


def test_a_settlement_that_was_not_committed_counts_as_none() -> None:
    fd = new_table(64)
    relay, core = RelayTable(fd), CoreTable(fd, 0)
    slot = relay.take(7)
    words = core.words(slot.index)
    assert table.settled(words, 0) is None
    table.settle(words, (1, 2, 3), 1)
    assert table.settled(words, 0) is None  # its commit has failed
    table.settle(words, (10, 20, 30), 1)
    assert table.settled(words, 1) == (10, 20, 30)
    table.settle(words, (11, 21, 31), 2)
    # The core is killed before the commit; the next one commits other things under the same stamp.
    again = CoreTable(fd, 1)
    os.close(fd)
    assert table.settled(again.words(slot.index), 1) == (10, 20, 30)
    assert table.settled(again.words(slot.index), 2) == (10, 20, 30)


def test_a_slot_is_taken_again_when_the_core_has_freed_it() -> None:
    fd = new_table(64)
    relay, core = RelayTable(fd), CoreTable(fd, 0)
    os.close(fd)
    first, second = relay.take(1), relay.take(2)
    relay.close(first)
    assert relay.take(3).index == 2
    assert not relay.is_settled(first.index, 1)
    core.words(first.index)[table.NUMBER] = 0
    assert relay.is_settled(first.index, 1)
    again = relay.take(4)
    assert again.index == first.index
    assert (again.words[table.NUMBER], again.words[table.BYTES_IN]) == (4, 0)
    assert second.words[table.NUMBER] == 2


def test_a_full_table_leaves_connections_uncounted_and_loses_none() -> None:
    fd = new_table(2)
    relay, core = RelayTable(fd), CoreTable(fd, 0)
    assert [relay.take(number).index for number in (1, 2, 3)] == [0, 1, -1]
    assert core.used == 2
    relay.close(relay.take(4))  # a private one
    raw = memoryview(mmap.mmap(fd, 0)).cast("q")
    raw[1] = 99  # the layout of another version
    with pytest.raises(ValueError, match="layout 99"):
        CoreTable(fd, 0)
    os.close(fd)


def test_the_last_minute_forgets_what_is_older(monkeypatch: pytest.MonkeyPatch) -> None:
    words = table.private_slot().words
    now = [100.0]
    monkeypatch.setattr(table, "_clock_gettime", lambda _: now[0])
    for second in range(0, 200, 5):
        now[0] = 1000.0 + second
        table.arrived(words)
        words[table.BYTES_IN] += 1
    at = table.now_ms()
    assert words[table.BYTES_IN] == 40
    assert 10 <= table.last_minute(words, at)[0] <= 12
    assert table.last_minute(words, at + 60_000) == (0, 0, 0)


def store(path: Path | None = None, max_rows: int = 100) -> UsageStore:
    return UsageStore(path, days=2, max_rows=max_rows)


def test_usage_outlives_the_process_and_old_days_end(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    first = store(path)
    for stamp, day in enumerate(("2026-11-18", "2026-11-19", "2026-11-20"), 1):
        settlement = Settlement(stamp, day, 0)
        settlement.add(Key("User:ann", "a"), Amounts(1, 2, 3, 1))
        first.commit(settlement)
    first.close()
    again = store(path)
    assert again.committed == 3
    assert [row.day for row in again.usage("2026-01-01", "2026-12-31")] == ["2026-11-19", "2026-11-20"]
    again.close()


def test_a_day_has_room_for_so_many_pairs_and_sums_stay_exact() -> None:
    kept = store(max_rows=3)
    settlement = Settlement(1, DAY, 0)
    for number in range(20):
        settlement.add(Key(f"User:{number // 5}", str(number)), Amounts(1, 0, 0, 0))
    kept.commit(settlement)
    rows = kept.usage(DAY, DAY)
    assert sum(row.amounts.bytes_in for row in rows) == 20
    assert len(rows) <= 7
    assert {row.client_id for row in rows} >= {"0", "1", "2", OTHER}
    kept.close()


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    with pytest.raises(UsageError, match="is no usage file"):
        open_usage(UsageSettings(path=path), None)
    open_usage(UsageSettings(), path).close()  # in memory: nobody chose the file


def test_another_store_goes_on_where_the_one_before_ended(tmp_path: Path) -> None:
    async def main() -> None:
        first, second = store(tmp_path / "first.db"), store(tmp_path / "second.db")
        traffic = Traffic(first)
        fd = new_table(64)
        relay = RelayTable(fd)
        traffic.attach("relay", fd)
        slot = relay.take(1)
        slot.words[table.BYTES_IN] = 100
        identity = connection(1, id="relay-1", principal="User:ann")
        traffic.opened(identity, "relay", "relay-1", 1, slot.index)
        await traffic.settle()
        slot.words[table.BYTES_IN] = 130
        await traffic.use(second)
        slot.words[table.BYTES_IN] = 137
        await traffic.settle()
        amounts = [row.amounts.bytes_in for row in second.usage("2020-01-01", "2999-01-01")]
        assert (amounts, second.committed) == ([7], 3)
        again = store(tmp_path / "first.db")
        assert [row.amounts.bytes_in for row in again.usage("2020-01-01", "2999-01-01")] == [130]
        again.close()
        await traffic.close()

    asyncio.run(main())


def test_a_caller_that_is_gone_makes_nothing_count_twice() -> None:
    async def main() -> None:
        kept = store()
        traffic = Traffic(kept)
        fd = new_table(4)
        slot = RelayTable(fd).take(1)
        traffic.attach("relay", fd)
        slot.words[table.BYTES_IN] = 100
        traffic.opened(connection(1, id="relay-1"), "relay", "relay-1", 1, slot.index)
        commit, begun, go_on = kept.commit, asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def slow(settlement: Settlement) -> dict[str, int]:
            loop.call_soon_threadsafe(begun.set)
            assert go_on.wait(120)
            return commit(settlement)

        kept.commit = slow  # type: ignore[method-assign]  # as with a slow disk
        caller = asyncio.create_task(traffic.settle())
        await begun.wait()
        caller.cancel()
        await asyncio.wait([caller])
        go_on.set()
        await traffic.settle()
        assert [row.amounts.bytes_in for row in kept.usage("2020-01-01", "2999-01-01")] == [100]
        await traffic.close()

    asyncio.run(main())


@pytest.mark.parametrize("failure", ["a disk that hangs", "a defect"])
def test_a_scrape_waits_for_no_disk_and_no_defect(failure: str) -> None:
    async def main() -> None:
        kept = store()
        traffic = Traffic(kept)
        fd = new_table(4)
        RelayTable(fd).take(1).words[table.BYTES_IN] = 100
        traffic.attach("relay", fd)
        traffic.opened(connection(1, id="relay-1"), "relay", "relay-1", 1, 0)
        traffic._timer = None  # as when it is due
        commit, go_on = kept.commit, threading.Event()

        def fail(settlement: Settlement) -> dict[str, int]:
            if failure == "a defect":
                raise UnicodeError
            assert go_on.wait(120)
            return commit(settlement)

        kept.commit = fail  # type: ignore[method-assign]  # as with such a disk
        async with asyncio.timeout(100):
            await traffic.settle_within(0.01)
        if failure == "a defect":
            await eventually(lambda: traffic._timer is not None, "the next settlement")
        go_on.set()
        if failure == "a defect":
            kept.commit = commit  # type: ignore[method-assign]
        await traffic.settle()
        assert [row.amounts.bytes_in for row in kept.usage("2020-01-01", "2999-01-01")] == [100]
        await traffic.close()

    asyncio.run(main())


@pytest.mark.parametrize("failure", ["a disk that hangs", "an error"])
def test_a_read_tells_of_a_disk_that_hangs_or_fails(failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_module, "_READ_S", 0.01 if failure == "a disk that hangs" else 100)

    async def main() -> None:
        traffic = Traffic(store())
        go_on = threading.Event()

        def fail(_: UsageStore) -> list[int]:
            if failure == "an error":
                raise sqlite3.OperationalError("disk I/O error")
            assert go_on.wait(120)
            return []

        expected = "no answer within 0.01 s" if failure == "a disk that hangs" else "disk I/O error"
        with pytest.raises(UsageUnavailableError, match=expected):
            await traffic.read(fail)
        go_on.set()
        monkeypatch.setattr(traffic_module, "_READ_S", 100)
        assert await traffic.read(lambda _: [1]) == [1]
        await traffic.close()

    asyncio.run(main())


def test_what_a_relay_repeats_over_a_new_link_counts_once() -> None:
    async def main() -> None:
        kept = store()
        traffic = Traffic(kept)
        fd = new_table(4)
        relay = RelayTable(fd)
        slot = relay.take(1)
        traffic.attach("relay", fd)
        slot.words[table.BYTES_IN] = 100
        identity = connection(1, id="relay-1")
        for _ in range(2):
            traffic.opened(identity, "relay", "relay-1", 1, slot.index)
            relay.close(slot)
            traffic.ended(identity.id, "client_closed")
        await traffic.settle()
        assert [row.amounts for row in kept.usage("2020-01-01", "2999-01-01")] == [Amounts(100, 0, 0, 1)]
        assert len(traffic.closed) == 1
        assert relay.is_settled(slot.index, 1)
        await traffic.close()

    asyncio.run(main())


def test_connections_of_a_dead_relay_that_told_nothing_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_module, "_LOST_S", 0.0)

    async def main() -> None:
        kept = store()
        traffic = Traffic(kept)
        fd = new_table(4)
        relay = RelayTable(fd)
        traffic.attach("relay", fd)
        for number in (1, 2):
            relay.take(number).words[table.BYTES_IN] = 100 * number
        identity = connection(1, id="relay-1", principal="User:ann")
        traffic.opened(identity, "relay", "relay-1", 1, 0)
        traffic.lost("relay", lambda _: False, lambda _: False)
        await eventually(lambda: bool(traffic.closed), "the end of its connections")
        await traffic.settle()
        found = {row.principal: row.amounts.bytes_in for row in kept.usage("2020-01-01", "2999-01-01")}
        assert found == {"User:ann": 100, "User:ANONYMOUS": 200}
        assert [entry.reason for entry in traffic.closed] == ["relay_ended"]
        await traffic.close()

    asyncio.run(main())
