"""What waits in an outage, in the log, for REST and as a warning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from receiver.host.delivery.backlog import Backlog, FillRate
from receiver.host.delivery.plugin_delivery import PluginDelivery
from receiver.plugin import Push, RetryableError
from tests.unit.host.support import Batching, hosted, push, wait_for

WAITS = "the destination takes no pushes, they wait"


@pytest.mark.parametrize(
    ("samples", "full_in_s"),
    [
        ([], None),
        ([(0.0, 0.1)], None),
        ([(0.0, 0.1), (10.0, 0.2)], None),
        ([(0.0, 0.1), (100.0, 0.2)], 800.0),
        ([(0.0, 0.1), (100.0, 0.1)], None),
        ([(0.0, 0.5), (100.0, 0.2)], None),
        ([(0.0, 0.5), (100.0, 1.0)], 0.0),
        ([(0.0, 0.0), (400.0, 0.1), (500.0, 0.2), (600.0, 0.4)], 400.0),
    ],
    ids=str,
)
def test_the_time_left_follows_from_the_last_minutes(
    samples: list[tuple[float, float]], full_in_s: float | None
) -> None:
    rate = FillRate()
    for now, used in samples:
        rate.add(now, used)
    assert rate.full_in_s() == pytest.approx(full_in_s)


def test_a_backlog_in_words() -> None:
    backlog = Backlog(
        pushes=1204, bytes=3_100_000, used=0.1251, full_in_s=12_000.0, away_s=90.0, has_spool=True
    )
    assert str(backlog) == "1204 pushes (3.1 MB) wait, spool 12.5 % full, full in 3 h 20 min at this rate"
    memory = Backlog(pushes=2, bytes=20, used=1.0, full_in_s=None, away_s=0.0, has_spool=False)
    assert str(memory) == "2 pushes (20 B) wait, memory 100.0 % full, does not grow"


class Outage:
    """A plugin whose destination is away, on a clock that the test moves."""

    def __init__(self, **settings: Any) -> None:
        self.now = 1000.0
        self.away = True
        self.plugin = Batching(self._export)
        self.delivery = PluginDelivery(
            hosted(self.plugin, breaker={"failures": 1}, retry={"initial_ms": 1, "max_ms": 1}, **settings),
            clock=lambda: self.now,
        )
        self.delivery.start()

    def _export(self, pushes: Sequence[Push]) -> None:
        if self.away:
            raise RetryableError("HTTP 401: who are you?")

    def pass_time(self, seconds: int) -> None:
        """Let time pass, with the watch that the host keeps every five seconds."""
        for _ in range(seconds // 5):
            self.now += 5.0
            self.delivery.watch()

    def end(self) -> None:
        self.delivery.request_stop(self.now + 60, 1.0)
        self.delivery.join(self.now + 60)


def test_an_outage_is_one_line_a_minute_with_its_amounts(tmp_path: Path) -> None:
    spool = {"path": str(tmp_path / "spool"), "max_bytes": 1_048_576, "after_ms": 0}
    with capture_logs() as logs:
        outage = Outage(delivery="spool_when_behind", spool=spool)
        for number in range(20):
            outage.delivery.offer(push(number, size=10))
        wait_for(lambda: outage.delivery.statistics().failures > 0)
        wait_for(lambda: outage.delivery.statistics().spool_bytes > 0)
        outage.pass_time(60)
        for number in range(20, 400):
            outage.delivery.offer(push(number, data=bytes(range(250)) * 4))
        before = outage.delivery.statistics().spool_bytes
        wait_for(lambda: outage.delivery.statistics().queue_items == 0)
        assert outage.delivery.statistics().spool_bytes > before
        outage.pass_time(240)
        backlog = outage.delivery.statistics().backlog
        outage.away = False
        outage.now += 5
        wait_for(lambda: outage.delivery.statistics().exported_pushes == 400)
        assert outage.delivery.statistics().backlog.away_s == 0
        outage.pass_time(120)
        outage.end()
    lines = [line for line in logs if line["event"] == WAITS]
    assert len(lines) == 5, "at once, and once a minute"
    assert [line["pushes"] for line in lines] == [20, 400, 400, 400, 400]
    last = lines[-1]
    assert last["away_s"] == pytest.approx(backlog.away_s, abs=60)
    assert last["bytes"] == backlog.bytes > 0
    assert last["used_percent"] == round(backlog.used * 100, 1) > 0
    assert last["full_in_s"] > 0
    assert last["error"] == "HTTP 401: who are you?"
    others = [line["event"] for line in logs if line["log_level"] == "warning" and line["event"] != WAITS]
    assert sorted(others) == ["circuit opened", "export failed, will be retried"]


def test_a_destination_that_works_has_no_line() -> None:
    with capture_logs() as logs:
        outage = Outage()
        outage.away = False
        outage.delivery.offer(push())
        wait_for(lambda: outage.delivery.statistics().exported_pushes == 1)
        outage.pass_time(120)
        outage.end()
    assert WAITS not in [line["event"] for line in logs]
    assert outage.delivery.statistics().backlog.pushes == 0
