"""Entries of one instance always get one task, and tasks get about as many points."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_streaming.routing import MAX_NAMES, SLOTS, Routes

ENTRIES = [("orders", "a"), ("orders", "b"), ("billing", "c"), (None, "d"), (None, "a")]


@pytest.fixture
def routes() -> Routes:
    return Routes()


def selected(frame: DataFrame, column: Column) -> list[int]:
    found: list[int] = frame.select(column).toArrow()[0].to_pylist()
    return found


def slots_of(spark: SparkSession, *texts: str) -> list[int]:
    frame = spark.createDataFrame(pa.table({"text": list(texts)}))
    return selected(frame, f.pmod(f.hash("text"), f.lit(SLOTS)))


def slots(spark: SparkSession, routes: Routes) -> list[int]:
    client_ids, instances = map(list, zip(*ENTRIES, strict=True))
    frame = spark.createDataFrame(pa.table({"client_id": client_ids, "instance": instances}))
    return selected(frame, routes.slot(f.col("client_id"), f.col("instance")))


def test_instances_of_a_client_id_go_together(spark: SparkSession, routes: Routes) -> None:
    assert slots(spark, routes) == slots_of(spark, "orders", "orders", "billing", "d", "a")


def test_an_instance_in_two_tasks_is_routed_by_itself(spark: SparkSession, routes: Routes) -> None:
    routes.by_instance(["a"])
    assert slots(spark, routes) == slots_of(spark, "a", "orders", "billing", "d", "a")


def test_a_client_id_with_more_than_half_of_a_tasks_share_is_spread(
    spark: SparkSession, routes: Routes
) -> None:
    routes.learn("billing", points=24, of=100, tasks=2)
    routes.learn("orders", points=26, of=100, tasks=2)
    assert slots(spark, routes) == slots_of(spark, "a", "b", "billing", "d", "a")


def test_one_task_needs_no_spreading(spark: SparkSession, routes: Routes) -> None:
    routes.learn("orders", points=100, of=100, tasks=1)
    assert slots(spark, routes)[:1] == slots_of(spark, "orders")


def test_names_that_clients_choose_are_bounded(spark: SparkSession, routes: Routes) -> None:
    routes.by_instance(f"instance {number}" for number in range(MAX_NAMES))
    assert slots(spark, routes)[:1] == slots_of(spark, "orders")
    routes.learn("orders", points=1, of=1, tasks=2)
    assert slots(spark, routes) == slots_of(spark, "a", "b", "c", "d", "a")


def test_a_slot_goes_to_the_task_that_it_is_dealt_to(spark: SparkSession, routes: Routes) -> None:
    routes.weigh({7: 30, 11: 20, 900: 20})
    dealt = routes.deal(3)
    assert len({dealt[7], dealt[11], dealt[900]}) == 3
    frame = spark.createDataFrame(pa.table({"slot": pa.array(range(SLOTS), pa.int32())}))
    assert selected(frame, routes.task(f.col("slot"), 3)) == dealt


def test_tasks_keep_their_slots_until_they_are_uneven(routes: Routes) -> None:
    even = dict.fromkeys(range(0, SLOTS, 8), 100)
    routes.weigh(even)
    dealt = routes.deal(4)
    routes.weigh(even | {8: 101})
    assert routes.deal(4) is dealt
    routes.weigh(even | {8: 2_000})
    assert routes.deal(4) != dealt
    assert max(routes.deal(3)) == 2


@given(
    batches=st.lists(
        st.dictionaries(st.integers(0, SLOTS - 1), st.integers(0, 10**9)), min_size=1, max_size=3
    ),
    tasks=st.integers(1, 200),
)
def test_tasks_differ_by_their_largest_slot_at_most(batches: list[dict[int, int]], tasks: int) -> None:
    routes = Routes()
    for points in batches:
        routes.weigh(points)
    dealt = routes.deal(tasks)
    assert set(dealt) == set(range(tasks))
    # What was learned of the last batch: each earlier one counts half as much as the next.
    points_of: dict[int, float] = defaultdict(float)
    for age, points in enumerate(reversed([batch for batch in batches if any(batch.values())])):
        total = sum(points.values())
        for slot, count in points.items():
            points_of[slot] += count / total * 0.5**age
    of_tasks = dict.fromkeys(range(tasks), 0.0)
    for slot, share in points_of.items():
        of_tasks[dealt[slot]] += share
    assert max(of_tasks.values()) - min(of_tasks.values()) <= max(points_of.values(), default=0) + 0.05
