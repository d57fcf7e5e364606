"""Entries of one instance always have one route."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_streaming.routing import MAX_NAMES, Routes

ENTRIES = [("orders", "a"), ("orders", "b"), ("billing", "c"), (None, "d"), (None, "a")]


@pytest.fixture
def routes() -> Routes:
    return Routes()


def routed(spark: SparkSession, routes: Routes) -> list[str]:
    client_ids, instances = map(list, zip(*ENTRIES, strict=True))
    frame = spark.createDataFrame(pa.table({"client_id": client_ids, "instance": instances}))
    column = routes.column(f.col("client_id"), f.col("instance")).alias("route")
    found: list[str] = frame.select(column).toArrow()["route"].to_pylist()
    return found


def test_instances_of_a_client_id_go_together(spark: SparkSession, routes: Routes) -> None:
    assert routed(spark, routes) == ["orders", "orders", "billing", "d", "a"]


def test_an_instance_in_two_tasks_is_routed_by_itself(spark: SparkSession, routes: Routes) -> None:
    routes.by_instance(["a"])
    assert routed(spark, routes) == ["a", "orders", "billing", "d", "a"]


def test_a_client_id_with_more_than_half_of_a_tasks_share_is_spread(
    spark: SparkSession, routes: Routes
) -> None:
    routes.learn("billing", points=24, of=100, tasks=2)
    routes.learn("orders", points=26, of=100, tasks=2)
    assert routed(spark, routes) == ["a", "b", "billing", "d", "a"]


def test_one_task_needs_no_spreading(spark: SparkSession, routes: Routes) -> None:
    routes.learn("orders", points=100, of=100, tasks=1)
    assert routed(spark, routes)[0] == "orders"


def test_names_that_clients_choose_are_bounded(spark: SparkSession, routes: Routes) -> None:
    routes.by_instance(f"instance {number}" for number in range(MAX_NAMES))
    assert routed(spark, routes)[0] == "orders"
    routes.learn("orders", points=1, of=1, tasks=2)
    assert routed(spark, routes) == ["a", "b", "c", "d", "a"]
