"""The sender and the lifecycle with plugins that fail in many ways."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, cast

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from receiver.host.delivery.statistics import DropReason, PluginState
from receiver.host.host import PluginHost
from receiver.plugin import (
    BatchRefusedError,
    ExportResult,
    PermanentError,
    PluginConfig,
    Push,
    RetryableError,
    UnclearError,
)
from tests.unit.host.support import Batching, Single, hosted, numbers, push, run, took, total, wait_for


def test_the_lifecycle_is_on_one_thread_of_the_plugins_own() -> None:
    plugin = Single(took)
    statistics = run(plugin, 3)
    assert plugin.calls == [[0], [1], [2]]
    assert (plugin.started, plugin.stopped) == (1, 1)
    assert len(plugin.threads) == 1
    assert threading.get_ident() not in plugin.threads
    assert statistics.state is PluginState.STOPPED
    assert (statistics.exported_pushes, statistics.exported_batches, statistics.exports) == (3, 3, 3)
    assert statistics.failures == statistics.consecutive_failures == statistics.retries == 0
    assert statistics.last_error is None


def test_batches_keep_the_plugins_limit_and_the_operators() -> None:
    plugin = Batching(took)
    assert run(plugin, 20).exported_pushes == 20
    assert max(map(len, plugin.calls)) <= Batching.max_batch_items
    assert plugin.handed == list(range(20))
    smaller = Batching(took)
    run(smaller, 20, batch={"max_items": 3, "linger_ms": 0})
    assert max(map(len, smaller.calls)) <= 3


def test_a_retryable_failure_brings_the_same_pushes_back() -> None:
    failures = iter([RetryableError("away"), RetryableError("away", retry_after_s=0.001)])

    def export(pushes: Sequence[Push]) -> None:
        if error := next(failures, None):
            raise error

    plugin = Single(export)
    statistics = run(plugin, 2)
    assert plugin.calls == [[0], [0], [0], [1]]
    assert (statistics.exported_pushes, statistics.failures, statistics.retries) == (2, 2, 2)
    assert statistics.consecutive_failures == 0
    assert statistics.last_error == "away"


def test_retries_end_and_the_next_pushes_get_their_turn() -> None:
    def export(pushes: Sequence[Push]) -> None:
        if numbers(pushes) == [0]:
            raise RetryableError("never now")

    plugin = Single(export)
    statistics = run(plugin, 2, retry={"initial_ms": 1, "max_ms": 2, "max_elapsed_s": 0.05})
    assert statistics.dropped[DropReason.RETRIES_EXHAUSTED] == 1
    assert statistics.exported_pushes == 1
    assert statistics.retries >= 3
    assert plugin.calls[-1] == [1]


def test_the_destinations_wish_is_waited_for() -> None:
    at: list[float] = []

    def export(pushes: Sequence[Push]) -> None:
        at.append(time.monotonic())
        if len(at) == 1:
            raise RetryableError("busy", retry_after_s=0.2)

    host = PluginHost([hosted(Single(export))])
    host.start()
    host.offer(push())
    wait_for(lambda: len(at) == 2)
    host.stop(60)
    assert 0.2 <= at[1] - at[0] < 2


@pytest.mark.parametrize(
    "error", [PermanentError("wrong", rejected_points=4), BatchRefusedError("over 4 MiB", rejected_points=4)]
)
def test_refused_content_is_dropped_at_once(error: PermanentError) -> None:
    def export(pushes: Sequence[Push]) -> None:
        if numbers(pushes) == [1]:
            raise error

    plugin = Single(export)
    statistics = run(plugin, 3)
    assert plugin.calls == [[0], [1], [2]]
    assert statistics.dropped[DropReason.PERMANENT] == 1
    assert (statistics.exported_pushes, statistics.failures, statistics.restarts) == (2, 1, 0)
    assert error.reason in (statistics.last_error or "")
    assert statistics.rejected_points == 4


class NastyError(Exception):
    def __str__(self) -> str:
        raise SystemExit("from __str__")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UnclearError("HTTP 500"), "HTTP 500"),
        (ValueError("a bug"), "a bug"),
        (UnicodeError("label empty or too long"), "label empty or too long"),
        (SystemExit("leave me"), "leave me"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (BaseException("base"), "base"),
        (RetryableError("x", retry_after_s=cast("Any", "soon")), "soon"),
        (PermanentError("x", rejected_points=cast("Any", None)), "NoneType"),
        (PermanentError(cast("Any", None)), "__str__ returned non-string"),
        (NastyError(), "its text raised SystemExit"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
@pytest.mark.parametrize("kind", [Single, Batching])
def test_a_push_is_at_fault_if_others_are_accepted(
    kind: type[Single], error: BaseException, message: str
) -> None:
    def export(pushes: Sequence[Push]) -> None:
        if 1 in numbers(pushes):
            raise error

    plugin = kind(export)
    statistics = run(plugin, 12)
    crashed = not isinstance(error, UnclearError)
    assert plugin.calls.count([1]) == 4, "alone, and after each of three others"
    assert statistics.exported_pushes == 11
    assert statistics.dropped[DropReason.CRASH if crashed else DropReason.PERMANENT] == 1
    assert (statistics.restarts > 0) == crashed
    assert plugin.started == plugin.stopped == statistics.restarts + 1
    assert message in (statistics.last_error or "")


@pytest.mark.parametrize("error", [UnclearError("HTTP 500"), UnicodeError("a bug"), MemoryError()])
@pytest.mark.parametrize("kind", [Single, Batching])
def test_a_destination_is_at_fault_if_no_push_is_accepted(kind: type[Single], error: BaseException) -> None:
    away = {"away": True}

    def export(pushes: Sequence[Push]) -> None:
        if away["away"]:
            raise error

    plugin = kind(export)
    host = PluginHost([hosted(plugin, breaker={"failures": 3})])
    for number in range(8):
        host.offer(push(number))
    host.start()
    wait_for(lambda: len(plugin.calls) > 40)
    assert host.statistics()[0].circuit != "closed"
    away["away"] = False
    wait_for(lambda: host.statistics()[0].exported_pushes == 8)
    assert host.statistics()[0].circuit == "closed"
    host.stop(60)
    (statistics,) = host.statistics()
    assert sum(statistics.dropped.values()) == 0
    assert total(statistics) == 8


def test_a_lone_push_waits_for_another_one_to_compare_with() -> None:
    def export(pushes: Sequence[Push]) -> None:
        if 0 in numbers(pushes):
            raise UnclearError("HTTP 500")

    plugin = Single(export)
    host = PluginHost([hosted(plugin)])
    host.start()
    host.offer(push(0))
    wait_for(lambda: len(plugin.calls) > 20)
    assert host.statistics()[0].dropped[DropReason.PERMANENT] == 0
    for number in range(1, 5):
        host.offer(push(number))
    wait_for(lambda: host.statistics()[0].exported_pushes == 4)
    assert host.statistics()[0].dropped[DropReason.PERMANENT] == 1
    host.stop(60)


@pytest.mark.parametrize("error", [UnclearError("HTTP 500"), RetryableError("HTTP 503")])
def test_a_push_with_nothing_to_send_does_not_prove_that_the_destination_works(error: Exception) -> None:
    away = {"away": True}

    def export(pushes: Sequence[Push]) -> ExportResult | None:
        if numbers(pushes)[0] % 2:
            return ExportResult(sent=False)
        if away["away"]:
            raise error
        return None

    plugin = Single(export)
    host = PluginHost([hosted(plugin, breaker={"failures": 3})])
    for number in range(12):
        host.offer(push(number))
    with capture_logs() as logs:
        host.start()
        wait_for(lambda: len(plugin.calls) > 40)
        (statistics,) = host.statistics()
        assert (sum(statistics.dropped.values()), statistics.exported_batches) == (0, 0)
        assert statistics.consecutive_failures == statistics.failures
        assert "circuit closed" not in [line["event"] for line in logs]
        away["away"] = False
        wait_for(lambda: host.statistics()[0].exported_pushes == 12)
        host.stop(60)
    (statistics,) = host.statistics()
    assert (sum(statistics.dropped.values()), statistics.exported_batches) == (0, 6)
    assert sum(statistics.deliveries) == 6


def test_a_result_that_is_none_of_ours_is_a_crash() -> None:
    def export(pushes: Sequence[Push]) -> ExportResult | None:
        return cast("Any", "done") if numbers(pushes) == [0] else None

    assert run(Single(export), 6).dropped[DropReason.CRASH] == 1


def test_a_batch_refused_as_a_whole_is_halved_until_it_passes_and_only_the_hopeless_are_dropped() -> None:
    def export(pushes: Sequence[Push]) -> None:
        if len(pushes) > 2 or 5 in numbers(pushes):
            raise BatchRefusedError("too large")

    plugin = Batching(export)
    host = PluginHost([hosted(plugin)])
    for number in range(8):
        host.offer(push(number))
    host.start()
    host.stop(60)
    (statistics,) = host.statistics()
    assert plugin.calls[0] == list(range(8))
    assert [call for call in plugin.calls if len(call) <= 2] == [[0, 1], [2, 3], [4, 5], [4], [5], [6, 7]]
    assert statistics.exported_pushes == 7
    assert statistics.dropped[DropReason.PERMANENT] == 1
    assert total(statistics) == 8


def test_a_half_that_fails_retryably_does_not_repeat_the_other() -> None:
    state = {"failed": False}

    def export(pushes: Sequence[Push]) -> None:
        if len(pushes) > 2:
            raise BatchRefusedError("too large")
        if numbers(pushes) == [2, 3] and not state["failed"]:
            state["failed"] = True
            raise RetryableError("away")

    plugin = Batching(export)
    host = PluginHost([hosted(plugin)])
    for number in range(4):
        host.offer(push(number))
    host.start()
    host.stop(60)
    assert plugin.calls == [[0, 1, 2, 3], [0, 1], [2, 3], [2, 3]]


def test_partial_success_is_success_and_counted() -> None:
    statistics = run(Batching(lambda pushes: ExportResult(rejected_points=3, message="old points")), 1)
    assert statistics.exported_pushes == 1
    assert statistics.rejected_points == 3
    assert statistics.failures == 0


def test_more_refused_points_than_a_float_holds_are_counted_as_many() -> None:
    statistics = run(Batching(lambda pushes: ExportResult(rejected_points=10**400)), 2)
    assert statistics.exported_pushes == 2
    assert 10**15 < float(statistics.rejected_points) < 10**17


def test_a_failed_start_is_tried_again_and_pushes_wait_for_it() -> None:
    class Late(Single):
        def start(self) -> None:
            super().start()
            if self.started < 4:
                raise OSError("not yet")

    plugin = Late(took)
    statistics = run(plugin, 2)
    assert (plugin.started, plugin.stopped) == (4, 1)
    assert statistics.exported_pushes == 2
    assert statistics.failures == 3
    assert statistics.consecutive_failures == 0


@pytest.mark.parametrize("error", [OSError("no"), SystemExit(1)])
def test_a_start_that_never_succeeds_ends_at_the_drain_deadline_with_one_stop(error: BaseException) -> None:
    class Never(Single):
        def start(self) -> None:
            super().start()
            raise error

    plugin = Never(took)
    host = PluginHost([hosted(plugin)])
    host.start()
    host.offer(push())
    wait_for(lambda: plugin.started > 1)
    assert host.statistics()[0].state is PluginState.STARTING
    host.stop(1)
    wait_for(lambda: host.statistics()[0].state is PluginState.STOPPED)
    (statistics,) = host.statistics()
    assert (plugin.calls, plugin.stopped) == ([], 1)
    assert statistics.dropped[DropReason.SHUTDOWN] == 1


def test_a_failing_stop_is_contained() -> None:
    class Clumsy(Single):
        def stop(self) -> None:
            super().stop()
            raise SystemExit("in stop")

    statistics = run(Clumsy(took), 1)
    assert statistics.state is PluginState.STOPPED
    assert "in stop" in (statistics.last_error or "")


@pytest.mark.parametrize("where", ["start", "export", "stop"])
def test_a_hang_never_blocks_shutdown(where: str) -> None:
    release = threading.Event()

    class Hanging(Single):
        def start(self) -> None:
            super().start()
            self._hang("start")

        def stop(self) -> None:
            super().stop()
            self._hang("stop")

        def _hang(self, at: str) -> None:
            if at == where:
                release.wait(120)

    def export(pushes: Sequence[Push]) -> None:
        if where == "export":
            release.wait(120)

    plugin = Hanging(export)
    host = PluginHost([hosted(plugin)])
    host.start()
    for number in range(3):
        host.offer(push(number))
    if where == "export":
        wait_for(lambda: host.statistics()[0].call_seconds > 0.01)
    began = time.monotonic()
    with capture_logs() as logs:
        assert not host.stop(0.3)
    assert 0.3 <= time.monotonic() - began < 100
    (statistics,) = host.statistics()
    lost = 0 if where == "stop" else 3
    assert statistics.state is PluginState.ABANDONED
    assert statistics.dropped[DropReason.SHUTDOWN] == lost
    assert total(statistics) == 3
    (line,) = [line for line in logs if "abandoned" in line["event"]]
    assert (line["log_level"], line["plugin"], line["pushes_lost"]) == ("error", "p", lost)

    release.set()
    wait_for(lambda: plugin.stopped == 1)
    (late,) = host.statistics()
    assert late.state is PluginState.ABANDONED, "what the thread does later is not counted again"
    assert total(late) == 3


def test_stop_drains_the_queue_in_spite_of_a_back_off() -> None:
    failures = iter([RetryableError("away", retry_after_s=600)])

    def export(pushes: Sequence[Push]) -> None:
        if error := next(failures, None):
            raise error

    plugin = Single(export)
    host = PluginHost([hosted(plugin)])
    host.start()
    for number in range(3):
        host.offer(push(number))
    wait_for(lambda: host.statistics()[0].failures == 1)
    began = time.monotonic()
    assert host.stop(250)
    assert time.monotonic() - began < 100
    assert plugin.calls == [[0], [0], [1], [2]]


def test_stop_gives_up_at_the_deadline_what_a_dead_destination_does_not_take() -> None:
    def export(pushes: Sequence[Push]) -> None:
        raise RetryableError("away")

    plugin = Single(export)
    host = PluginHost([hosted(plugin)])
    host.start()
    for number in range(3):
        host.offer(push(number))
    host.stop(1)
    wait_for(lambda: host.statistics()[0].dropped[DropReason.SHUTDOWN] == 3)
    assert plugin.stopped == 1


def test_a_crash_that_comes_once_costs_nothing() -> None:
    crashes = iter([SystemExit("now")])

    def export(pushes: Sequence[Push]) -> None:
        if error := next(crashes, None):
            raise error

    plugin = Single(export)
    statistics = run(plugin, 2)
    assert plugin.calls == [[0], [1], [0]], "another push told that the destination works"
    assert (statistics.exported_pushes, statistics.restarts) == (2, 1)


def test_a_plugin_that_crashed_and_does_not_start_again_is_restarting() -> None:
    class Gone(Single):
        def start(self) -> None:
            super().start()
            if self.started > 1:
                raise OSError("gone")

    def export(pushes: Sequence[Push]) -> None:
        raise ValueError

    plugin = Gone(export)
    host = PluginHost([hosted(plugin)])
    host.start()
    host.offer(push())
    wait_for(lambda: plugin.started > 2)
    assert host.statistics()[0].state is PluginState.RESTARTING
    host.stop(1)
    wait_for(lambda: host.statistics()[0].state is PluginState.STOPPED)
    (statistics,) = host.statistics()
    assert statistics.dropped[DropReason.SHUTDOWN] == 1


def test_an_open_circuit_asks_the_destination_with_one_push_and_then_as_before() -> None:
    away = {"away": True}

    def export(pushes: Sequence[Push]) -> None:
        if away["away"]:
            raise RetryableError("away")

    plugin = Batching(export)
    host = PluginHost([hosted(plugin, breaker={"failures": 3}, retry={"initial_ms": 1, "max_ms": 20})])
    for number in range(8):
        host.offer(push(number))
    with capture_logs() as logs:
        host.start()
        wait_for(lambda: plugin.calls[-1:] == [[0]])
        wait_for(lambda: host.statistics()[0].circuit == "open")
        away["away"] = False
        wait_for(lambda: host.statistics()[0].exported_pushes == 8)
        assert host.statistics()[0].circuit == "closed"
        host.stop(60)
    failed = len(plugin.calls) - 2
    assert plugin.calls[:3] == [list(range(8))] * 3
    assert plugin.calls[3:failed] == [[0]] * (failed - 3)
    assert plugin.calls[failed:] == [[0], list(range(1, 8))]
    events = [line["event"] for line in logs if line["event"].startswith(("circuit", "export failed"))]
    assert events == ["export failed, will be retried", "circuit opened", "circuit closed"]


def test_a_new_batch_waits_for_an_open_circuit() -> None:
    at: list[float] = []

    def export(pushes: Sequence[Push]) -> None:
        at.append(time.monotonic())
        if len(at) == 1:
            raise RetryableError("busy")

    settings = {"initial_ms": 1, "max_ms": 150, "max_elapsed_s": 0.02}
    host = PluginHost([hosted(Single(export), breaker={"failures": 1}, retry=settings)])
    host.start()
    host.offer(push(0))
    wait_for(lambda: len(at) == 2)
    assert at[1] - at[0] < 0.15, "the last attempt falls on the end of the allowed time"
    host.stop(60)

    at.clear()
    host = PluginHost(
        [hosted(Single(export), breaker={"failures": 1}, retry=settings | {"max_elapsed_s": 1e-9})]
    )
    host.start()
    host.offer(push(0))
    wait_for(lambda: host.statistics()[0].dropped[DropReason.RETRIES_EXHAUSTED] == 1)
    host.offer(push(1))
    wait_for(lambda: len(at) == 2)
    assert at[1] - at[0] >= 0.15
    host.stop(60)


def test_what_a_dead_destination_does_not_take_in_time_is_dropped_as_one() -> None:
    def export(pushes: Sequence[Push]) -> None:
        raise RetryableError("away")

    plugin = Batching(export)
    host = PluginHost(
        [hosted(plugin, breaker={"failures": 2}, retry={"initial_ms": 1, "max_ms": 5, "max_elapsed_s": 0.1})]
    )
    for number in range(8):
        host.offer(push(number))
    host.start()
    began = time.monotonic()
    wait_for(lambda: host.statistics()[0].dropped[DropReason.RETRIES_EXHAUSTED] == 8)
    assert time.monotonic() - began < 60
    assert {len(call) for call in plugin.calls[2:]} == {1}
    host.stop(60)


def test_a_refusal_is_an_answer_and_closes_the_circuit() -> None:
    outcomes = iter([RetryableError("away"), PermanentError("malformed")])

    def export(pushes: Sequence[Push]) -> None:
        if error := next(outcomes, None):
            raise error

    plugin = Batching(export)
    host = PluginHost([hosted(plugin, breaker={"failures": 1})])
    for number in range(4):
        host.offer(push(number))
    host.start()
    host.stop(60)
    assert plugin.calls == [[0, 1, 2, 3], [0], [1, 2, 3]]


@pytest.mark.full
def test_the_log_is_limited_and_holds_no_secret() -> None:
    class Config(PluginConfig):
        token: SecretStr

    def export(pushes: Sequence[Push]) -> None:
        raise ValueError("refused token hunter2-hunter2\nsecond line")

    plugin = Single(export, Config(token=SecretStr("hunter2-hunter2")))
    with capture_logs() as logs:
        statistics = run(plugin, 50, drain_s=1)
    crashes = [line for line in logs if line["event"].startswith("plugin crashed")]
    assert len(crashes) == 1
    assert "test_sender.py" in crashes[0]["error"]
    assert "ValueError" in crashes[0]["error"]
    assert "hunter2" not in repr(logs) + repr(statistics)
    assert "\n" not in crashes[0]["error"]


def test_recovery_is_logged_once() -> None:
    failures = iter([RetryableError("away")] * 2)

    def export(pushes: Sequence[Push]) -> None:
        if error := next(failures, None):
            raise error

    with capture_logs() as logs:
        run(Single(export), 3)
    assert [line["failures"] for line in logs if line["event"] == "plugin works again"] == [2]


def test_a_decoded_view_does_not_outlive_the_export() -> None:
    seen: list[object] = []

    def export(pushes: Sequence[Push]) -> None:
        seen.extend(item.payload.metrics for item in pushes)

    one = push(data=b"")
    host = PluginHost([hosted(Batching(export))])
    host.start()
    host.offer(one)
    host.stop(60)
    assert len(seen) == 1
    assert "metrics" not in vars(one.payload)
