from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from structlog.testing import capture_logs

from receiver.host.delivery.statistics import DELIVERY_BOUNDS_S, DropReason, PluginState
from receiver.host.host import PluginHost
from receiver.plugin import Push
from tests.unit.host.support import Batching, Single, hosted, push, took, total, wait_for


def test_no_plugins_is_a_host_too() -> None:
    host = PluginHost([])
    host.start()
    host.offer(push())
    assert host.statistics() == []
    assert host.stop(60)


def test_every_plugin_gets_every_push() -> None:
    plugins = [Single(took), Batching(took)]
    host = PluginHost([hosted(plugins[0], name="a"), hosted(plugins[1], name="b")])
    host.offer(push(0))
    host.start()
    host.offer(push(1))
    assert host.stop(60)
    assert [plugin.handed for plugin in plugins] == [[0, 1], [0, 1]]
    assert [statistics.name for statistics in host.statistics()] == ["a", "b"]


def test_a_slow_plugin_slows_neither_the_caller_nor_another_plugin() -> None:
    release = threading.Event()

    def hang(pushes: Sequence[Push]) -> None:
        release.wait(120)

    slow, quick = Single(hang), Batching(took)
    host = PluginHost([hosted(slow, name="slow", queue={"max_items": 100}), hosted(quick, name="quick")])
    host.start()
    host.offer(push(0))
    wait_for(lambda: slow.calls == [[0]])
    began = time.monotonic()
    for number in range(1, 2000):
        host.offer(push(number))
    assert time.monotonic() - began < 100
    wait_for(lambda: host.statistics()[1].exported_pushes == 2000)
    stuck, _ = host.statistics()
    assert stuck.queue_items == 100
    assert stuck.dropped[DropReason.QUEUE_FULL] == 2000 - 100 - 1
    assert total(stuck) == 2000
    release.set()
    assert host.stop(60)
    assert slow.calls[-1] == [1999], "the newest were kept"


def test_a_full_queue_is_logged() -> None:
    gate = threading.Event()

    def wait(pushes: Sequence[Push]) -> None:
        gate.wait(120)

    plugin = Single(wait)
    host = PluginHost([hosted(plugin, queue={"max_items": 2})])
    with capture_logs() as logs:
        host.start()
        for number in range(10):
            host.offer(push(number))
        gate.set()
        host.stop(60)
    assert sum(line["dropped"] for line in logs if line["event"].startswith("queue full")) >= 7


def test_the_time_of_each_delivery_is_counted_by_its_length() -> None:
    host = PluginHost([hosted(Single(took))])
    host.start()
    for number in range(3):
        host.offer(push(number))  # received in 2023
    wait_for(lambda: host.statistics()[0].exported_pushes == 3)
    (statistics,) = host.statistics()
    host.stop(60)
    assert statistics.deliveries == (*(0,) * len(DELIVERY_BOUNDS_S), 3)
    assert statistics.delivery_seconds > 3 * DELIVERY_BOUNDS_S[-1]


def test_offers_after_stop_are_dropped_and_counted() -> None:
    host = PluginHost([hosted(Single(took))])
    host.start()
    host.stop(60)
    host.offer(push())
    (statistics,) = host.statistics()
    assert statistics.dropped[DropReason.SHUTDOWN] == 1
    assert total(statistics) == 1


def test_stop_before_start_and_a_second_stop_are_harmless() -> None:
    plugin = Single(took)
    host = PluginHost([hosted(plugin)])
    host.offer(push())
    assert host.stop(60)
    assert host.stop(60)
    (statistics,) = host.statistics()
    assert (plugin.started, plugin.stopped) == (0, 0)
    assert statistics.state is PluginState.STOPPED
    assert statistics.dropped[DropReason.SHUTDOWN] == 1


def test_the_drain_time_is_for_all_plugins_together() -> None:
    release = threading.Event()

    def hang(pushes: Sequence[Push]) -> None:
        release.wait(120)

    host = PluginHost([hosted(Single(hang), name=f"p{n}") for n in range(50)])
    host.start()
    host.offer(push())
    began = time.monotonic()
    assert not host.stop(1.3)
    assert time.monotonic() - began < 60
    release.set()


def test_statistics_can_be_read_while_everything_runs() -> None:
    host = PluginHost([hosted(Batching(took), queue={"max_items": 50})])
    host.start()
    for number in range(3000):
        host.offer(push(number))
        if number % 100 == 0:
            (statistics,) = host.statistics()
            assert statistics.queue_items <= 50
            assert statistics.offered_pushes == number + 1
    host.stop(60)
    (statistics,) = host.statistics()
    assert total(statistics) == 3000
    assert statistics.queue_high_water_items <= 50
    assert set(statistics.dropped) == set(DropReason)


def test_a_hanging_plugin_is_logged_once_and_shown() -> None:
    release = threading.Event()

    def hang(pushes: Sequence[Push]) -> None:
        release.wait(120)

    quick = Single(took)
    host = PluginHost(
        [hosted(Single(hang), name="slow"), hosted(quick, name="quick")],
        hangs_after_s=0.05,
        watch_every_s=0.02,
    )
    with capture_logs() as logs:
        host.start()
        host.offer(push())
        wait_for(lambda: host.statistics()[0].state is PluginState.HANGS)
        wait_for(lambda: any(line["event"] == "plugin hangs" for line in logs))
        time.sleep(0.1)
        for number in range(1, 200):
            host.offer(push(number))
        wait_for(lambda: len(quick.handed) == 200)
        # On a slow machine the other one may have hung for a moment.
        wait_for(lambda: host.statistics()[1].state is PluginState.RUNNING)
        release.set()
        wait_for(lambda: host.statistics()[0].state is PluginState.RUNNING)
        host.stop(60)
    (line,) = (line for line in logs if line["event"] == "plugin hangs" and line["plugin"] == "slow")
    assert line["log_level"] == "error"


def test_the_lag_is_the_age_of_the_oldest_push_that_is_not_delivered() -> None:
    release = threading.Event()

    def hang(pushes: Sequence[Push]) -> None:
        release.wait(120)

    host = PluginHost([hosted(Single(hang))])
    assert host.statistics()[0].lag_seconds == 0.0
    host.start()
    one = push()
    context = replace(one.context, received_at_ns=time.time_ns() - 5_000_000_000)
    host.offer(replace(one, context=context))
    assert 5 <= host.statistics()[0].lag_seconds < 20
    wait_for(lambda: host.statistics()[0].in_flight_pushes == 1)
    assert 5 <= host.statistics()[0].lag_seconds < 20
    release.set()
    wait_for(lambda: host.statistics()[0].exported_pushes == 1)
    assert host.statistics()[0].lag_seconds == 0.0
    host.stop(60)
