"""The host with spools: outages, hanging plugins, restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from receiver.host.delivery.statistics import DropReason, PluginState, PluginStatistics
from receiver.host.discovery import HostedPlugin
from receiver.host.host import PluginHost
from receiver.plugin import Push, RetryableError
from tests.unit.host.disks import HangingDisk, full_disk
from tests.unit.host.support import Batching, Export, Single, hosted, numbers, push, took, total, wait_for

MODES = ("spool_when_behind", "spool_always")


def _keep(stored: list[int], number: int, _: bool) -> None:
    stored.append(number)


def away(pushes: Sequence[Push]) -> None:
    raise RetryableError("away")


def spooling(
    folder: Path, export: Export, delivery: str = "spool_always", after_ms: int = 20, **settings: Any
) -> HostedPlugin:
    spool = {"path": str(folder), "after_ms": after_ms}
    return hosted(Batching(export), delivery=delivery, spool=spool, **settings)


def statistics_of(host: PluginHost) -> PluginStatistics:
    (statistics,) = host.statistics()
    assert total(statistics) == statistics.offered_pushes + statistics.recovered_pushes
    return statistics


def delivered(folder: Path, delivery: str, count: int) -> list[int]:
    """What a host that finds a folder delivers, and one more push after it."""
    got: list[int] = []

    def take(pushes: Sequence[Push]) -> None:
        got.extend(numbers(pushes))

    host = PluginHost([spooling(folder, take, delivery)])
    host.offer(push(999))
    host.start()
    wait_for(lambda: statistics_of(host).exported_pushes >= count + 1)
    assert host.stop(60)
    statistics = statistics_of(host)
    assert (statistics.recovered_pushes, statistics.exported_pushes) == (count, count + 1)
    assert got[-1] == 999, "what is on disk goes first"
    return got[:-1]


def test_always_stored_and_delivered(tmp_path: Path) -> None:
    stored: list[int] = []
    host = PluginHost([spooling(tmp_path / "spool", took)])
    host.start()
    for number in range(100):
        assert host.offer(push(number), partial(_keep, stored, number))
    wait_for(lambda: statistics_of(host).exported_pushes == 100)
    assert stored == list(range(100))
    assert host.stop(60)
    assert statistics_of(host).spool_pushes == 0


def test_when_behind_nothing_is_written_while_all_is_well(tmp_path: Path) -> None:
    host = PluginHost([spooling(tmp_path / "spool", took, "spool_when_behind", after_ms=60_000)])
    host.start()
    for number in range(100):
        assert not host.offer(push(number), partial(pytest.fail, "nobody has to wait"))
    wait_for(lambda: statistics_of(host).exported_pushes == 100)
    assert host.stop(60)
    assert not (tmp_path / "spool").exists()


@pytest.mark.parametrize("delivery", MODES)
def test_a_destination_that_is_away_fills_the_disk_and_has_everything_in_order_when_it_is_back(
    tmp_path: Path, delivery: str
) -> None:
    state = {"away": True}
    got: list[int] = []

    def export(pushes: Sequence[Push]) -> None:
        if state["away"]:
            raise RetryableError("away")
        got.extend(numbers(pushes))

    host = PluginHost([spooling(tmp_path / "spool", export, delivery)])
    host.start()
    for number in range(100):
        host.offer(push(number))
    wait_for(lambda: statistics_of(host).spool_pushes + statistics_of(host).in_flight_pushes == 100)
    wait_for(lambda: statistics_of(host).spool_pushes >= 92)
    wait_for(lambda: statistics_of(host).circuit == "open")
    assert statistics_of(host).queue_items == 0
    state["away"] = False
    for number in range(100, 110):
        host.offer(push(number))
    wait_for(lambda: statistics_of(host).exported_pushes == 110)
    assert got == list(range(110))
    assert host.stop(60)
    assert statistics_of(host).spool_pushes == 0


@pytest.mark.parametrize("delivery", MODES)
def test_what_is_left_at_shutdown_is_delivered_after_the_restart(tmp_path: Path, delivery: str) -> None:
    folder = tmp_path / "spool"
    host = PluginHost([spooling(folder, away, delivery)])
    host.start()
    for number in range(20):
        host.offer(push(number))
    with capture_logs() as logs:
        host.stop(1)
        wait_for(lambda: statistics_of(host).state is PluginState.STOPPED)
    statistics = statistics_of(host)
    assert (statistics.spool_pushes, sum(statistics.dropped.values())) == (20, 0)
    assert not [line for line in logs if "dropped" in line["event"]]
    assert delivered(folder, delivery, 20) == list(range(20))


@pytest.mark.parametrize("delivery", MODES)
def test_also_when_the_plugin_hangs(tmp_path: Path, delivery: str) -> None:
    folder = tmp_path / "spool"
    release = threading.Event()

    def hang(pushes: Sequence[Push]) -> None:
        release.wait(120)

    host = PluginHost([spooling(folder, hang, delivery)])
    host.start()
    for number in range(20):
        host.offer(push(number))
    wait_for(lambda: statistics_of(host).in_flight_pushes > 0)
    with capture_logs() as logs:
        assert not host.stop(0.3)
    statistics = statistics_of(host)
    assert statistics.state is PluginState.ABANDONED
    assert (statistics.spool_pushes, sum(statistics.dropped.values())) == (20, 0)
    (line,) = [line for line in logs if "abandoned" in line["event"]]
    assert line["pushes_lost"] == 0
    release.set()
    time.sleep(0.02)
    assert statistics_of(host).exported_pushes == 0, "they are the disk's"
    assert delivered(folder, delivery, 20) == list(range(20))


@pytest.mark.parametrize("delivery", MODES)
def test_a_host_that_never_started_writes_too(tmp_path: Path, delivery: str) -> None:
    host = PluginHost([spooling(tmp_path / "spool", took, delivery)])
    for number in range(3):
        host.offer(push(number))
    assert host.stop(0)
    assert host.stop(0)
    assert statistics_of(host).spool_pushes == 3


def test_no_time_to_drain_is_time_to_write(tmp_path: Path) -> None:
    host = PluginHost([spooling(tmp_path / "spool", away, "spool_when_behind")])
    host.start()
    for number in range(50):
        host.offer(push(number))
    host.stop(0)
    assert statistics_of(host).spool_pushes == 50


def test_an_unusable_spool_is_reported_and_loses_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    host = PluginHost([spooling(file / "spool", took)])
    with capture_logs() as logs:
        host.start()
        wait_for(lambda: statistics_of(host).spool_problem is not None)
        told: list[bool] = []
        for number in range(20):
            assert host.offer(push(number), told.append)
        wait_for(lambda: told == [True] * 20)
        assert statistics_of(host).exported_pushes == 20
        host.stop(60)
    assert str(file) in (statistics_of(host).spool_problem or "")
    (line,) = [line for line in logs if line["event"] == "spool can't be written, pushes stay in memory"]
    assert str(file) in line["problem"]


def test_a_full_disk_leaves_memory_and_recovery_is_logged(tmp_path: Path) -> None:
    state = {"away": True}

    def export(pushes: Sequence[Push]) -> None:
        if state["away"]:
            raise RetryableError("away")

    host = PluginHost([spooling(tmp_path / "spool", export)])
    host.start()
    wait_for(lambda: (tmp_path / "spool" / "lock").exists())
    told: list[bool] = []
    with capture_logs() as logs:
        with full_disk():
            assert host.offer(push(0), told.append)
            wait_for(lambda: statistics_of(host).spool_problem is not None)
        assert not told, "it is neither on disk nor delivered"
        wait_for(lambda: statistics_of(host).spool_problem is None)
    assert [line["event"] for line in logs if "spool" in line["event"]] == [
        "spool can't be written, pushes stay in memory",
        "spool works again",
    ]
    wait_for(lambda: told == [True])
    state["away"] = False
    wait_for(lambda: statistics_of(host).exported_pushes == 1)
    assert host.stop(60)


def test_a_disk_that_hangs_stops_neither_offers_nor_another_plugin_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.host.delivery.plugin_delivery._LAST_WRITES_S", 0.2)
    monkeypatch.setattr("receiver.host.delivery.plugin_delivery._SLOW_WRITE_S", 0.05)
    disk = HangingDisk(monkeypatch)
    quick = Single(took)
    host = PluginHost(
        [
            spooling(tmp_path / "spool", took, queue={"max_items": 10}),
            hosted(quick, name="quick"),
        ]
    )
    host.start()
    stored: list[int] = []
    host.offer(push(0), partial(_keep, stored, 0))
    assert disk.waits.wait(120)
    began = time.monotonic()
    for number in range(1, 1000):
        assert host.offer(push(number), partial(_keep, stored, number))
    assert time.monotonic() - began < 100
    assert stored == list(range(1, 991)), "whoever had to go out of memory gets its callback"
    wait_for(lambda: len(quick.handed) == 1000)
    wait_for(lambda: "a write has taken" in (host.statistics()[0].spool_problem or ""))
    began = time.monotonic()
    with capture_logs() as logs:
        host.stop(0.2)
    assert time.monotonic() - began < 100
    stuck, _ = host.statistics()
    assert (stuck.dropped[DropReason.QUEUE_FULL], stuck.dropped[DropReason.SHUTDOWN]) == (990, 10)
    assert any(line["event"].startswith("spool hangs") for line in logs)
    disk.go_on()


def test_disks_that_hang_have_their_last_time_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.host.delivery.plugin_delivery._LAST_WRITES_S", 1.0)
    disk = HangingDisk(monkeypatch)
    host = PluginHost([spooling(tmp_path / str(index), took, name=f"p{index}") for index in range(70)])
    host.start()
    host.offer(push())
    assert disk.waits.wait(120)
    began = time.monotonic()
    host.stop(0.1)
    assert 1 <= time.monotonic() - began < 60
    disk.go_on()


@pytest.mark.parametrize("delivery", MODES)
def test_a_leftover_spool_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delivery: str) -> None:
    monkeypatch.chdir(tmp_path)
    for name, path in (("first", None), ("second", tmp_path / "elsewhere"), ("third", None)):
        before = PluginHost([hosted(Batching(away), name=name, delivery=delivery, spool={"path": path})])
        before.offer(push())
        before.stop(0)
    (tmp_path / "spool" / "other").mkdir()
    with capture_logs() as logs:
        host = PluginHost(
            [
                hosted(Batching(took), name="renamed", delivery=delivery),
                hosted(Batching(took), name="second", spool={"path": tmp_path / "elsewhere"}),
                hosted(Batching(took), name="third", delivery=delivery),
            ]
        )
        host.start()
        wait_for(lambda: len([line for line in logs if "no plugin" in line["event"]]) == 2)
        assert host.stop(60)
    assert [line["path"] for line in logs if "no plugin" in line["event"]] == [
        str(tmp_path / "elsewhere"),
        "spool/first",
    ]


def test_a_push_waits_for_all_plugins_that_write_first(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    plugins = [
        spooling(tmp_path / "a", took, name="a"),
        spooling(tmp_path / "b", took, name="b"),
        spooling(tmp_path / "file" / "c", took, name="c"),
        hosted(Single(took), name="d"),
    ]
    host = PluginHost(plugins)
    host.start()
    wait_for(lambda: host.statistics()[2].spool_problem is not None)
    stored: list[int] = []
    for number in range(50):
        assert host.offer(push(number), partial(_keep, stored, number))
    wait_for(lambda: len(stored) == 50)
    assert sorted(stored) == list(range(50))
    assert host.stop(60)
    assert all(statistics.exported_pushes == 50 for statistics in host.statistics())
    told: list[bool] = []
    assert host.offer(push(50), told.append)
    assert told == [False], "it is over"
