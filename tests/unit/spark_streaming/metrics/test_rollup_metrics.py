"""Lag, failures and stages, with the clock as an argument."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from spark_streaming.metrics import RollupMetrics, Stage, StageClock

PREFIX = "kafka_telemetry_rollup_"


@dataclass
class Clock:
    """A clock that a test sets."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> RollupMetrics:
    return RollupMetrics(clock=clock)


def value(metrics: RollupMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(PREFIX + name, labels)


def commit(metrics: RollupMetrics, newest_s: float | None) -> None:
    metrics.batch_committed(
        pushes=1,
        repeats=0,
        points=2,
        entries=1,
        rows=2,
        loads=1,
        overflowed=3,
        refused_series={"client": 2, "minute": 0},
        dead_letters=0,
        newest_received_at_ns=None if newest_s is None else round(newest_s * 1e9),
        seconds=0.5,
    )


def test_the_lag_is_unknown_before_anything_was_read(metrics: RollupMetrics) -> None:
    assert math.isnan(value(metrics, "lag_seconds") or 0)
    commit(metrics, None)
    assert math.isnan(value(metrics, "lag_seconds") or 0)


def test_new_series_over_a_bound_are_counted(metrics: RollupMetrics) -> None:
    assert value(metrics, "refused_series_total", bound="principal") == 0
    for _ in range(2):
        commit(metrics, None)
    assert value(metrics, "overflowed_points_total") == 6
    by_bound = [value(metrics, "refused_series_total", bound=bound) for bound in ("client", "minute")]
    assert by_bound == [4, 0]


def test_the_lag_grows_until_more_is_read(metrics: RollupMetrics, clock: Clock) -> None:
    commit(metrics, 400)
    assert value(metrics, "lag_seconds") == 600
    clock.now += 5
    assert value(metrics, "lag_seconds") == 605
    # Late pushes of another receiver don't set it back.
    commit(metrics, 300)
    assert value(metrics, "lag_seconds") == 605
    metrics.source_is_read()
    assert value(metrics, "lag_seconds") == 0
    commit(metrics, 900)
    assert value(metrics, "read_until_timestamp_seconds") == clock.now


def test_a_receiver_whose_clock_is_ahead_hides_no_lag(metrics: RollupMetrics, clock: Clock) -> None:
    commit(metrics, clock.now + 3600)
    clock.now += 10
    assert value(metrics, "lag_seconds") == 10


@pytest.mark.parametrize("end", ["commit", "skip", "read"])
def test_failures_in_a_row_end_with_a_batch_or_without_pushes(metrics: RollupMetrics, end: str) -> None:
    for _ in range(3):
        metrics.failed("batch", ValueError("secret"))
    metrics.failed("maintenance", OSError())
    assert value(metrics, "consecutive_failures") == 3
    {
        "commit": lambda: commit(metrics, None),
        "skip": metrics.batch_skipped,
        "read": metrics.source_is_read,
    }[end]()
    assert value(metrics, "consecutive_failures") == 0
    assert value(metrics, "failures_total", during="batch") == 3
    assert value(metrics, "failures_total", during="maintenance") == 1


def test_an_error_is_shown_by_its_type_only(metrics: RollupMetrics, clock: Clock) -> None:
    metrics.failed("batch", ValueError("a client's text"))
    assert value(metrics, "last_error_timestamp_seconds", during="batch", error="ValueError") == clock.now
    assert b"client's" not in metrics.exposition("")[1]


def test_maintenance_is_due_since_the_job_began(metrics: RollupMetrics, clock: Clock) -> None:
    name = "maintenance_last_success_timestamp_seconds"
    assert math.isnan(value(metrics, name) or 0)
    metrics.maintenance_expected()
    clock.now += 60
    # After a failure the query begins again.
    metrics.maintenance_expected()
    assert value(metrics, name) == 1000
    metrics.maintained(seconds=0.1, backlog={"hours": 3, "days": 1})
    assert value(metrics, name) == 1060
    assert value(metrics, "maintenance_backlog", kind="hours") == 3


def test_spark_s_durations_become_stages(metrics: RollupMetrics) -> None:
    metrics.spark_finished({"latestOffset": 20, "getBatch": 10, "walCommit": 5, "addBatch": 900})
    found = {item: value(metrics, "stage_seconds_sum", stage=item) for item in ("find", "plan", "checkpoint")}
    assert found == {"find": 0.03, "plan": 0, "checkpoint": 0.005}


def test_a_stage_ends_with_the_next_one_or_with_an_error() -> None:
    clock, seen = Clock(), list[tuple[Stage, float]]()
    stages = StageClock(lambda stage, seconds: seen.append((stage, seconds)), clock=clock)
    with stages:
        stages.enter("begin")
        clock.now += 1
        stages.enter("decode")
        clock.now += 2
    clock.now += 4

    def fail() -> None:
        with stages:
            stages.enter("write")
            clock.now += 8
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        fail()
    assert seen == [("begin", 1), ("decode", 2), ("write", 8)]
