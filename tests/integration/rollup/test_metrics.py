"""The roll-up's metrics: a real job, scraped over HTTP, beside its documentation."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from spark_streaming.job import Job
from spark_streaming.metrics import MetricsServer, RollupMetrics, Stage
from spark_streaming.postgres import Store
from spark_streaming.settings import RollupSettings
from tests.integration.rollup.pushes import MINUTE_NS, Client, Spooled, Values, push, spool
from tests.testbed.postgres import Postgres
from tests.testbed.process import wait_until

PAGE = (Path(__file__).parents[3] / "docs" / "rollup-metrics.md").read_text()
ORDERS = Client(instance="AAAAAAAAAAAAAAAAAAAAAA")
NOW = (time.time_ns() // MINUTE_NS - 10) * MINUTE_NS
PREFIX = "kafka_telemetry_rollup_"
WITHIN_S = 300


class Scraped:
    """Scrapes a metrics server."""

    def __init__(self, metrics: RollupMetrics) -> None:
        self._server = MetricsServer("127.0.0.1", 0, metrics)
        self.url = f"http://127.0.0.1:{self._server.port}/metrics"

    def close(self) -> None:
        self._server.close()

    def families(self) -> list[Metric]:
        response = httpx.get(self.url, trust_env=False, timeout=60)
        response.raise_for_status()
        return list(text_string_to_metric_families(response.text))

    def value(self, name: str, **labels: str) -> float:
        """The value of one series, without the prefix of its name."""
        return next(
            sample.value
            for family in self.families()
            for sample in family.samples
            if sample.name == PREFIX + name and sample.labels == labels
        )


@pytest.fixture
def metrics() -> RollupMetrics:
    return RollupMetrics()


@pytest.fixture
def scraped(metrics: RollupMetrics) -> Iterator[Scraped]:
    opened = Scraped(metrics)
    yield opened
    opened.close()


def at(minute: int) -> Spooled:
    return push(ORDERS, NOW + minute * MINUTE_NS, Values(sums={"a": 1.0, "b": 2.0}))


@pytest.mark.full
def test_a_job_says_what_it_did(
    folder: Path,
    spark: SparkSession,
    store: Store,
    settings: Callable[..., RollupSettings],
    metrics: RollupMetrics,
    scraped: Scraped,
) -> None:
    unreadable = Spooled(client=ORDERS, received_at_ns=NOW, otlp=b"\xff\xff")
    spool(folder, "one", [at(0), at(0), at(1), unreadable])
    began_s = time.time()
    Job(spark, store, settings(), threading.Event(), metrics=metrics).run_once()
    assert {
        name: scraped.value(f"{name}_total")
        for name in ("batches", "pushes", "repeated_pushes", "points", "entries", "dead_letters")
    } == {
        "batches": 1,
        "pushes": 3,
        "repeated_pushes": 1,
        "points": 4,
        "entries": 2,
        "dead_letters": 1,
    }
    assert 1 <= scraped.value("loads_total") <= spark.sparkContext.defaultParallelism
    assert scraped.value("rows_total") >= 4
    newest_s = at(1).received_at_ns / 1e9
    assert scraped.value("read_until_timestamp_seconds") == pytest.approx(newest_s)
    before_s = time.time()
    lag_s = scraped.value("lag_seconds")
    assert before_s - newest_s <= lag_s <= time.time() - newest_s
    assert scraped.value("batch_seconds_count") == 1
    stages = {
        sample.labels["stage"]: sample.value
        for family in scraped.families()
        for sample in family.samples
        if sample.name == f"{PREFIX}stage_seconds_sum"
    }
    assert stages.keys() == set(get_args(Stage))
    inside = sum(stages[name] for name in ("begin", "run", "lake", "commit"))
    # Nearly everything is in a stage.
    assert 0.9 * scraped.value("batch_seconds_sum") < inside <= scraped.value("batch_seconds_sum")
    assert {name for name, seconds in stages.items() if not seconds} == {"lake"}
    assert scraped.value("maintenance_seconds_count") == 1
    assert scraped.value("maintenance_backlog", kind="hours") == 0
    assert began_s <= scraped.value("maintenance_last_success_timestamp_seconds") <= time.time()


def test_the_page_is_what_a_job_is_scraped_for(
    folder: Path,
    spark: SparkSession,
    store: Store,
    settings: Callable[..., RollupSettings],
    metrics: RollupMetrics,
    scraped: Scraped,
    postgres: Postgres,
) -> None:
    """The job also fails, because errors have series of their own."""
    if not postgres.restartable:
        pytest.skip("somebody else's server")
    stop = threading.Event()
    job = Job(spark, store, settings(trigger_seconds=0.2), stop, metrics=metrics)
    thread = threading.Thread(target=job.run)
    thread.start()
    try:
        spool(folder, "one", [at(0)])
        wait_until(lambda: scraped.value("batches_total") == 1, timeout_s=WITHIN_S, what="the first batch")
        # The push is ten minutes old, but nothing else is left to read.
        wait_until(lambda: scraped.value("lag_seconds") < 60, timeout_s=WITHIN_S, what="the end of the lag")
        postgres.stop()
        spool(folder, "two", [at(1)])
        wait_until(
            lambda: scraped.value("consecutive_failures") > 0, timeout_s=WITHIN_S, what="a failed batch"
        )
        postgres.start()
        wait_until(lambda: scraped.value("batches_total") == 2, timeout_s=WITHIN_S, what="the second batch")
        assert scraped.value("consecutive_failures") == 0
        assert scraped.value("failures_total", during="batch") > 0
    finally:
        stop.set()
        thread.join(60)
    documented = {
        name: set(labels.split(", ")) - {""}
        for names, labels in re.findall(r"^\| (`kafka[^|]*`) \| ([^|]*?) ?\|", PAGE, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    shown = {
        f"{family.name}_total" if family.type == "counter" else family.name: {
            label for sample in family.samples for label in sample.labels if label != "le"
        }
        for family in scraped.families()
        if not family.name.startswith("process_")
    }
    assert shown == documented


def test_the_page_describes_each_stage() -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| [A-Z]", PAGE, re.MULTILINE)
    assert [name for row in rows for name in re.findall(r"\w+", row)] == list(get_args(Stage))
