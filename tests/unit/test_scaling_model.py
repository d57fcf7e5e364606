"""The model of the roll-up on a cluster, with cases that were computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks.scaling_model import Batch, Limits, Parts, longest_share, predict
from benchmarks.scaling_report import Timed, parts_of, timed

#: A million points: 1 s to read, 2 s of tasks, 1 s of PostgreSQL, 0.1 s to commit.
PARTS = Parts(
    read_us=1.0,
    task_us=2.0,
    postgresql_us=1.0,
    commit_us=0.1,
    fixed_s=0.5,
    dispatch_s=0.0,
    shuffle_bytes=0.0,
    wal_bytes=100.0,
)
#: So many client ids that all tasks have nearly the same share.
BATCH = Batch(points=1e6, files=1_000, instances=[1] * 50_000, heavy=0.5)
NO_LIMITS = Limits(postgresql_cores=math.inf, wal_bytes_s=math.inf, network_bytes_s=math.inf)
TASKS = replace(PARTS, fixed_s=0.0, commit_us=0.0)


def test_one_core_does_everything_in_turn() -> None:
    found = predict(PARTS, BATCH, 1, NO_LIMITS)
    assert found.seconds == pytest.approx(0.5 + 0.1 + 1 + 3)
    assert found.points_s == pytest.approx(1e6 / 4.6)
    assert found.longest == 1
    assert found.ceiling == "cores"


def test_cores_divide_reading_and_tasks_but_not_the_driver() -> None:
    found = predict(PARTS, BATCH, 4, NO_LIMITS)
    assert found.seconds == pytest.approx(0.6 + 1 / 4 + 3 / 4, rel=0.01)
    assert found.ceiling == "cores"
    found = predict(PARTS, BATCH, 50, NO_LIMITS)
    assert found.seconds == pytest.approx(0.6 + 4 / 50, rel=0.01)
    assert found.ceiling == "driver"


def test_each_task_costs_the_driver_time() -> None:
    found = predict(replace(PARTS, dispatch_s=0.01), BATCH, 100, NO_LIMITS)
    assert found.seconds == pytest.approx(0.6 + 1 + 4 / 100, rel=0.01)


def test_one_core_reads_a_file() -> None:
    # Two of four cores read two of six files each, the others one.
    found = predict(PARTS, replace(BATCH, files=6), 4, NO_LIMITS)
    assert found.seconds == pytest.approx(0.6 + 2 / 6 + 3 / 4, rel=0.01)
    found = predict(TASKS, replace(BATCH, files=2), 40, NO_LIMITS)
    assert found.seconds == pytest.approx(1 / 2 + 3 / 40, rel=0.01)
    assert found.ceiling == "files"


def test_postgresql_has_as_many_cores_as_it_has() -> None:
    found = predict(TASKS, BATCH, 100, replace(NO_LIMITS, postgresql_cores=2))
    assert found.seconds == pytest.approx(1 / 100 + 1 / 2)
    assert found.ceiling == "PostgreSQL's cores"
    assert predict(TASKS, BATCH, 4, replace(NO_LIMITS, postgresql_cores=2)).ceiling == "cores"


def test_the_write_ahead_log_goes_to_one_disk() -> None:
    found = predict(TASKS, BATCH, 100, replace(NO_LIMITS, wal_bytes_s=200e6))
    assert found.seconds == pytest.approx(1 / 100 + 0.5)
    assert found.ceiling == "write-ahead log"


def test_the_network_brings_entries_to_their_tasks() -> None:
    found = predict(replace(TASKS, shuffle_bytes=500.0), BATCH, 2, replace(NO_LIMITS, network_bytes_s=50e6))
    # 500 MB to two cores, each of which takes 50 MB a second.
    assert found.seconds == pytest.approx(5 + 0.5 + 1.5, rel=0.01)
    assert found.ceiling == "shuffle"


def test_a_shared_machine_has_no_more_cores_than_it_has() -> None:
    found = predict(PARTS, BATCH, 4, replace(NO_LIMITS, all_cores=2))
    assert found.seconds == pytest.approx(0.6 + 1 / 4 + 3 / 2)


def test_a_larger_batch_pays_the_fixed_time_once() -> None:
    found = predict(PARTS, replace(BATCH, points=10e6), 100, NO_LIMITS)
    assert found.seconds == pytest.approx(0.5 + 10 * 0.14, rel=0.05)


def test_client_ids_are_dealt_to_tasks_evenly() -> None:
    two = replace(BATCH, instances=[1, 1], heavy=math.inf)
    assert longest_share(two, 2) == 0.5
    assert longest_share(replace(two, instances=[20] * 500), 8) == pytest.approx(0.125, rel=0.02)
    # The largest one is a task's share and more.
    assert longest_share(replace(two, instances=[5, 1, 1, 1]), 2) == 0.625


def test_the_instances_of_a_heavy_client_id_are_spread() -> None:
    one = replace(BATCH, instances=[50_000])
    assert longest_share(one, 4) == pytest.approx(0.25, abs=0.01)
    assert longest_share(replace(one, heavy=math.inf), 4) == 1


def test_client_ids_that_are_not_heavy_stay_together() -> None:
    # Each has 0.4 times the share of a task, and one of four tasks has at least three of the ten.
    ten = replace(BATCH, instances=[1_000] * 10)
    assert longest_share(ten, 4) == pytest.approx(0.3, abs=0.02)
    assert longest_share(replace(ten, heavy=0.3), 4) == pytest.approx(0.25, abs=0.02)


def test_the_parts_are_what_large_batches_have_more_than_small_ones() -> None:
    large = Timed(
        points=1_000_000,
        seconds=5.0,
        driver_s=0.7,
        cpu={"executor 0": 2.5, "tasks 0": 1.2, "postgresql": 1.1},
        wal_bytes=101e6,
        shuffle_bytes=20_000_100,
        read_share=0.8,
        longest=(0.5, 0.6),
    )
    small = Timed(
        points=1_000,
        seconds=1.0,
        driver_s=0.5,
        cpu={"executor 0": 0.5, "tasks 0": 0.2, "postgresql": 0.1},
        wal_bytes=1e6,
        shuffle_bytes=100,
        read_share=0.6,
        longest=(0.5, 0.5),
    )
    found = parts_of([large] * 3, [small], dispatch_s=0.004)
    # 2.5 s of the executor, of which 0.8 read, beside 0.5 s, of which 0.6 read.
    assert found.read_us == pytest.approx(2.0 - 0.3)
    assert found.task_us == pytest.approx(2.0 + 1.0 - 1.7)
    assert found.postgresql_us == pytest.approx(1.0)
    assert found.commit_us == pytest.approx(0.2)
    assert (found.fixed_s, found.dispatch_s) == (1.0, 0.004)
    assert found.shuffle_bytes == pytest.approx(20.0)
    assert found.wal_bytes == pytest.approx(100.0)


def test_a_batch_lasts_from_the_end_of_the_one_before() -> None:
    def ended(wall: float, executor_s: float, wal_bytes: float) -> dict[str, object]:
        return {"ended": {"wall": wall, "cpu": {"executor 0": executor_s}, "wal_bytes": wal_bytes}}

    stages = [
        {"seconds": 2.0, "task_seconds": [1.0, 1.5], "cpu_s": 3.0, "shuffle_bytes": 70},
        {"seconds": 1.5, "task_seconds": [1.0, 0.25], "cpu_s": 1.0, "shuffle_bytes": 0},
    ]
    one = ended(14.25, 3.5, 25) | {"measuring_s": 0.25, "stages": stages}
    assert timed([ended(10, 1, 5), one], [111, 222]) == [
        Timed(
            points=222,
            seconds=4,
            driver_s=0.5,
            cpu={"executor 0": 2.5},
            wal_bytes=20,
            shuffle_bytes=70,
            read_share=0.75,
            longest=(0.6, 0.8),
        )
    ]
