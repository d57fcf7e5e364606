"""The job on a standalone Spark with two workers, whose executors, tasks and drivers die."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # its stubs don't export it

import spark_streaming
from spark_streaming.jars import jars
from tests.integration.rollup.cluster_job import CLIENTS, NOW, Job, Source, spool_source, topic_source
from tests.integration.rollup.conftest import Query
from tests.integration.rollup.pushes import (
    ASSIGNED,
    CONNECTIONS,
    SECOND_NS,
    Client,
    Spooled,
    Values,
    push,
)
from tests.integration.rollup.test_cli import SPARK_S
from tests.testbed.broker import KafkaBroker
from tests.testbed.process import ChildProcess, in_group, wait_until
from tests.testbed.spark_cluster import SPARK_SUBMIT, SparkCluster
from tests.testbed.table_lock import TableLock

pytestmark = [pytest.mark.full, pytest.mark.timeout(3600)]

MakeJob = Callable[[Source], Job]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    # A second driver gets executors too.
    with SparkCluster(workers=2, cores=2, worker_memory="2g") as started:
        yield started


@pytest.fixture
def make_job(tmp_path: Path, cluster: SparkCluster, database: str, query: Query) -> Iterator[MakeJob]:
    made: list[Job] = []

    def make(source: Source) -> Job:
        # Those of another test may still end.
        wait_until(lambda: not cluster.executors(), timeout_s=SPARK_S, what="the executors' end")
        made.append(Job(tmp_path, cluster, database, query, source))
        return made[-1]

    yield make
    for job in made:
        job.kill()


@pytest.fixture
def job(make_job: MakeJob, tmp_path: Path) -> Job:
    return make_job(spool_source(tmp_path))


def end(running: ChildProcess) -> None:
    assert running.terminate(SPARK_S) == 0, running.log_tail()


def kill(running: ChildProcess) -> None:
    os.kill(running.pid, signal.SIGKILL)
    assert running.wait(10) == -signal.SIGKILL
    wait_until(lambda: not in_group(running.pid), timeout_s=60, what="the JVM's end")


def kill_executors(job: Job, cluster: SparkCluster, *, count: int, each: int) -> None:
    """Kill executors one after the other, anywhere in a batch, and write batches meanwhile."""
    chosen = random.Random(714)
    for number in range(count):
        job.wait_for_batches(1)
        before = job.wait_for_executors()
        job.make(each)
        time.sleep(chosen.uniform(0, 0.5))
        killed = before[number % 2]
        os.kill(killed, signal.SIGKILL)
        wait_until(
            lambda: len(set(cluster.executors()) - {killed}) == 2,  # noqa: B023
            timeout_s=SPARK_S,
            what="an executor in its place",
        )
    job.wait_for_all()


def test_executors_that_are_killed_lose_and_double_nothing(job: Job, cluster: SparkCluster) -> None:
    job.make(6)
    running = job.start()
    kill_executors(job, cluster, count=3, each=3)
    end(running)
    job.check()


def test_executors_that_read_a_topic_are_killed_and_lose_and_double_nothing(
    make_job: MakeJob, cluster: SparkCluster, broker: KafkaBroker
) -> None:
    topic = f"telemetry-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.internal_bootstrap})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(20)
    job = make_job(topic_source(broker.internal_bootstrap, topic))
    job.make(3)
    running = job.start()
    kill_executors(job, cluster, count=2, each=2)
    end(running)
    job.check()


def test_a_task_that_hangs_is_run_elsewhere_and_counts_once(job: Job) -> None:
    """The late attempt ends after the batch was committed by the other one."""
    job.make(2)
    running = job.start()
    job.wait_for_all()
    for executor in job.wait_for_executors():
        os.kill(executor, signal.SIGSTOP)
        try:
            # Of two tasks, Spark gives one to each executor.
            job.make(1)
            job.wait_for_all()
        finally:
            os.kill(executor, signal.SIGCONT)
        job.make(2)
        job.wait_for_all()
    end(running)
    job.check()


def test_tasks_that_are_killed_before_their_loads_are_complete_count_once(
    job: Job, cluster: SparkCluster, database: str
) -> None:
    job.make(1)
    running = job.start()
    job.wait_for_all()
    first, second = job.wait_for_executors()
    with TableLock(database, "pending_load") as lock:
        job.make(1)
        # All rows are copied. The row that completes the load is not.
        wait_until(lambda: len(lock.waiting("task")) == 2, timeout_s=SPARK_S, what="two loads")
        seen = lock.waiting("task")
        for worker in cluster.python_workers(first):
            os.kill(worker, signal.SIGKILL)
        wait_until(lambda: bool(lock.waiting("task") - seen), timeout_s=SPARK_S, what="another attempt")
        os.kill(second, signal.SIGKILL)
        assert not job.pending()
    job.wait_for_all()
    end(running)
    job.check()


def test_tasks_that_are_killed_after_their_loads_are_complete_count_once(
    job: Job, cluster: SparkCluster, database: str
) -> None:
    job.make(1)
    running = job.start()
    job.wait_for_all()
    executors = job.wait_for_executors()
    with TableLock(database, "pending_load") as lock:
        job.make(1)
        wait_until(lambda: len(lock.waiting("task")) == 2, timeout_s=SPARK_S, what="two loads")
        # They can't pass the tasks' results on.
        for executor in executors:
            os.kill(executor, signal.SIGSTOP)
    wait_until(lambda: len(job.pending()) == 2, timeout_s=SPARK_S, what="complete loads")
    lost = job.pending()
    job.must_not_count(lost)
    with TableLock(database, "client_state") as lock:
        for executor in executors:
            os.kill(executor, signal.SIGKILL)
        wait_until(lambda: bool(lock.waiting("driver")), timeout_s=SPARK_S, what="the driver's transaction")
        # Nobody needs the executors any more.
        assert len(job.pending() - lost) >= 2
        for executor in cluster.executors():
            os.kill(executor, signal.SIGKILL)
    job.wait_for_all()
    job.make(1)
    job.wait_for_all()
    end(running)
    job.check()


def test_drivers_that_are_killed_lose_and_double_nothing(job: Job) -> None:
    chosen = random.Random(1313)
    for number in range(3):
        job.make(5)
        running = job.start()
        job.wait_for_batches(chosen.randint(1, 3))
        # At once, which is mostly between PostgreSQL's commit and Spark's, or anywhere later.
        time.sleep(0.0 if number == 0 else chosen.uniform(0, 0.5))
        kill(running)
    job.finish()
    job.check()


def test_a_driver_that_is_killed_in_its_transaction_leaves_the_batch_to_the_next_one(
    job: Job, database: str
) -> None:
    job.make(1)
    running = job.start()
    job.wait_for_all()
    with TableLock(database, "client_state") as lock:
        job.make(1)
        wait_until(lambda: bool(lock.waiting("driver")), timeout_s=SPARK_S, what="the driver's transaction")
        job.must_not_count(job.pending())
        kill(running)
    running = job.start(log="next")
    job.make(1)
    job.wait_for_all()
    end(running)
    job.check()


def test_a_driver_that_returns_from_the_dead_changes_no_total(job: Job, database: str, query: Query) -> None:
    job.make(1)
    zombie = job.start(log="zombie")
    job.wait_for_all()
    with TableLock(database, "client_state") as lock:
        job.make(1)
        wait_until(lambda: bool(lock.waiting("driver")), timeout_s=SPARK_S, what="the driver's transaction")
        (backend,) = lock.waiting("driver")
        job.must_not_count(job.pending())
        os.killpg(zombie.pid, signal.SIGSTOP)
        assert query("SELECT pg_terminate_backend(%s, 60000)", backend) == [(True,)]
    another = job.start(log="another")
    job.make(2)
    job.wait_for_all()
    os.killpg(zombie.pid, signal.SIGCONT)
    wait_until(
        lambda: "batch failed, retrying" in zombie.log_text() or not zombie.running,
        timeout_s=SPARK_S,
        what="the first driver's return",
    )
    # Two drivers use one checkpoint now. One of them may end with an error, because it is behind.
    job.make(2)
    job.wait_for_all()
    assert zombie.terminate(SPARK_S) in (0, 1)
    assert another.terminate(SPARK_S) in (0, 1)
    job.make(1)
    job.finish()
    job.check()


def test_spark_submit_runs_the_job(job: Job, cluster: SparkCluster) -> None:
    """As in docs/rollup.md, with an extension and Java options of the user."""
    job.make(3)
    options = {key: str(value).lower() for key, value in job.spark.items() if key != "spark.master"}
    options["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
    options["spark.executor.extraJavaOptions"] = "-Dof.the.user=1"
    running = job.run(
        [
            SPARK_SUBMIT,
            *("--master", cluster.url),
            *("--jars", ",".join(map(str, jars(kafka=False, delta=True)))),
            *(part for key, value in options.items() for part in ("--conf", f"{key}={value}")),
            Path(spark_streaming.__path__[0]) / "__main__.py",
        ],
        yaml.safe_dump(job.settings),
        "--once",
        PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    )
    command = Path(f"/proc/{job.wait_for_executors()[0]}/cmdline").read_text().split("\0")
    assert running.wait(SPARK_S) == 0, running.log_tail()
    assert "-Dof.the.user=1" in command
    assert "-XX:Tier4InvocationThreshold=50000" in command
    job.check()


def test_clients_that_change_their_ids_within_a_batch_count_once(job: Job) -> None:
    """All pushes of an instance come to one executor, after the batch was repeated."""
    job.make(1)
    running = job.start()
    job.wait_for_all()

    def changed(begin: int) -> list[Spooled]:
        found = []
        for number, client in enumerate(CLIENTS):
            at = NOW + begin * SECOND_NS
            other = Client(instance=client.instance, client_id=f"{client.client_id}-{number}")
            for step, item in enumerate((client, other, client)):
                values = Values(sums={CONNECTIONS: 1 + number + step}, gauges={ASSIGNED: 3.0})
                found.append(push(item, at + 2 * step * SECOND_NS, values))
            # Kafka allows requests without a client id.
            for step, item in enumerate((other, Client(instance=client.instance, client_id=""))):
                found.append(
                    Spooled(
                        client=item,
                        received_at_ns=at + (7 + step) * SECOND_NS,
                        otlp=b"",
                        push_id=f"{client.client_id}-{begin}-{step}",
                    )
                )
        return found

    routed = "clients with several client ids are routed by instance"
    for begin in (0, 20):
        job.put(changed(begin))
        job.wait_for_all()
        # Known from the first time on.
        assert running.log_text().count(routed) == 1
    end(running)
    job.check()
