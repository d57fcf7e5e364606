"""The job on a standalone Spark with two workers, whose executors and drivers die."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.rollup.conftest import Query
from tests.integration.rollup.pushes import (
    ASSIGNED,
    CONNECTIONS,
    MINUTE_NS,
    Client,
    Spooled,
    Values,
    push,
    spool,
)
from tests.integration.rollup.test_cli import KAFKA_TELEMETRY, SPARK_S, in_group
from tests.integration.rollup.test_crash import committed
from tests.testbed.ports import LOOPBACK
from tests.testbed.process import ChildProcess, wait_until
from tests.testbed.spark_cluster import SparkCluster

pytestmark = [pytest.mark.full, pytest.mark.timeout(3600)]

NOW = (time.time_ns() // MINUTE_NS - 60) * MINUTE_NS
CLIENTS = [Client(instance=letter * 22, client_id=letter) for letter in "ABCDEFGH"]
PUSHES = 50
#: Files of a batch. Spark reads them in two tasks.
FILES = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster(workers=2) as started:
        yield started


class Job:
    """The installed command on the cluster, with a spool whose totals are known."""

    def __init__(self, folder: Path, cluster: SparkCluster, database: str, query: Query) -> None:
        self._folder = folder
        self._database = database
        self._query = query
        self._chosen = random.Random(20260131)
        self._truth = dict.fromkeys([client.client_id for client in CLIENTS], 0)
        self._files = 0
        (folder / "rollup.yaml").write_text(
            yaml.safe_dump(
                {
                    "trigger_seconds": 0.1,
                    "spool_files": {"path": str(folder / "telemetry"), "max_files": FILES},
                    "spark": {
                        "spark.master": cluster.url,
                        "spark.driver.host": LOOPBACK,
                        "spark.driver.bindAddress": LOOPBACK,
                        "spark.executor.memory": "512m",
                        "spark.executor.cores": 1,
                        "spark.speculation": True,
                        "spark.speculation.interval": "100ms",
                        "spark.speculation.quantile": 0.5,
                    },
                }
            )
        )

    def spool(self, batches: int) -> None:
        """Write the files of some batches, each with a repeat."""
        for number in range(self._files, self._files + batches * FILES):
            pushes: list[Spooled] = []
            for _ in range(PUSHES):
                client, value = self._chosen.choice(CLIENTS), self._chosen.randrange(1000)
                at = NOW + number * MINUTE_NS + self._chosen.randrange(MINUTE_NS)
                values = Values(sums={CONNECTIONS: value}, gauges={ASSIGNED: 3.0})
                pushes.append(push(client, at, values))
                self._truth[client.client_id] += value
            spool(self._folder / "telemetry", f"{number:04}", [*pushes, pushes[0]])
        self._files += batches * FILES

    def start(self, *more: str) -> ChildProcess:
        """Start a driver. Executors would fail if they needed Python."""
        arguments = ("--config", "rollup.yaml", "--checkpoint", str(self._folder / "checkpoint"), *more)
        return ChildProcess(
            "rollup",
            [KAFKA_TELEMETRY, "rollup", "run", *arguments],
            log=self._folder / "rollup.log",
            cwd=self._folder,
            env={
                "KAFKA_TELEMETRY_ROLLUP_POSTGRES": self._database,
                "PYSPARK_PYTHON": "/there/is/no/python",
                "SPARK_LOCAL_IP": LOOPBACK,
            },
        )

    def wait_for_batches(self, count: int) -> None:
        """Wait until so many batches more are committed."""
        target = committed(self._query) + count
        wait_until(lambda: committed(self._query) >= target, timeout_s=SPARK_S, what="batches", every_s=0.01)

    def wait_for_all(self) -> None:
        """Wait until all pushes of the spool are committed."""
        wait_until(lambda: self._pushes() == self._files * PUSHES, timeout_s=SPARK_S, what="all pushes")

    def check(self) -> None:
        """Compare the totals with the truth, and with the ledger."""
        assert (
            dict(
                self._query(
                    "SELECT client_id, sum(sum)::bigint FROM metric_1m WHERE metric = %s GROUP BY 1",
                    CONNECTIONS,
                )
            )
            == self._truth
        )
        expected = self._files * PUSHES
        ((pushes, repeats, points),) = self._query(
            "SELECT sum(pushes)::bigint, sum(repeats)::bigint, sum(points)::bigint FROM ledger"
        )
        assert (pushes, repeats, points) == (expected, self._files, 2 * expected)
        assert self._query(
            "SELECT (SELECT sum(points)::bigint FROM metric_1m WHERE metric IN (%s, %s)), "
            "(SELECT sum(pushes)::bigint FROM client_1m)",
            CONNECTIONS,
            ASSIGNED,
        ) == [(points, pushes)]
        assert self._query("SELECT count(*) FROM dead_letter") == [(0,)]

    def _pushes(self) -> int:
        if not committed(self._query):
            return 0
        return int(self._query("SELECT sum(pushes) FROM ledger")[0][0])


@pytest.fixture
def job(tmp_path: Path, cluster: SparkCluster, database: str, query: Query) -> Job:
    return Job(tmp_path, cluster, database, query)


def two_executors(cluster: SparkCluster) -> Callable[[], bool]:
    return lambda: len(cluster.executors()) == 2


def end(running: ChildProcess) -> None:
    assert running.terminate(SPARK_S) == 0, running.log_tail()


def test_executors_that_are_killed_lose_and_double_nothing(job: Job, cluster: SparkCluster) -> None:
    chosen = random.Random(714)
    job.spool(6)
    running = job.start()
    for kill in range(3):
        job.wait_for_batches(1)
        wait_until(two_executors(cluster), timeout_s=SPARK_S, what="two executors")
        before = cluster.executors()
        job.spool(3)
        # Anywhere in a batch.
        time.sleep(chosen.uniform(0, 0.5))
        os.kill(before[kill % 2], signal.SIGKILL)
        wait_until(
            lambda: len(set(cluster.executors()) - {before[kill % 2]}) == 2,  # noqa: B023
            timeout_s=SPARK_S,
            what="an executor in its place",
        )
    job.wait_for_all()
    assert running.running, running.log_tail()
    end(running)
    job.check()


def test_a_task_that_hangs_is_run_elsewhere_and_counts_once(job: Job, cluster: SparkCluster) -> None:
    """The late attempt ends after the batch was committed by the other one."""
    job.spool(2)
    running = job.start()
    job.wait_for_all()
    wait_until(two_executors(cluster), timeout_s=SPARK_S, what="two executors")
    for executor in cluster.executors():
        os.kill(executor, signal.SIGSTOP)
        try:
            # Of two tasks, Spark gives one to each executor.
            job.spool(1)
            job.wait_for_all()
        finally:
            os.kill(executor, signal.SIGCONT)
        job.spool(2)
        job.wait_for_all()
    end(running)
    job.check()


def test_drivers_that_are_killed_lose_and_double_nothing(job: Job, cluster: SparkCluster) -> None:
    chosen = random.Random(1313)
    for kill in range(3):
        job.spool(5)
        running = job.start()
        job.wait_for_batches(chosen.randint(1, 3))
        # At once, which is mostly between PostgreSQL's commit and Spark's, or anywhere later.
        time.sleep(0.0 if kill == 0 else chosen.uniform(0, 0.5))
        os.kill(running.pid, signal.SIGKILL)
        assert running.wait(10) == -signal.SIGKILL
        wait_until(lambda: not in_group(running.pid), timeout_s=60, what="the JVM's end")  # noqa: B023
    running = job.start("--once")
    assert running.wait(SPARK_S) == 0, running.log_tail()
    job.check()
    wait_until(lambda: not cluster.executors(), timeout_s=SPARK_S, what="the end of the executors")
