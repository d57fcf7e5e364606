"""The job on a cluster, with pushes whose totals are known."""

from __future__ import annotations

import dataclasses
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from psycopg import sql

from plugins.kafka_topic.record import headers, key
from receiver.plugin import Push
from spark_streaming.postgres import Store
from spark_streaming.settings import RetentionSettings
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
from tests.integration.rollup.test_cli import KAFKA_TELEMETRY, SPARK_S
from tests.integration.rollup.test_crash import committed
from tests.testbed.ports import LOOPBACK
from tests.testbed.process import ChildProcess, wait_until
from tests.testbed.spark_cluster import SparkCluster
from tests.unit.host.support import push as plugin_push

NOW = (time.time_ns() // MINUTE_NS - 120) * MINUTE_NS
CLIENTS = [Client(instance=letter * 22, client_id=letter) for letter in "ABCDEFGH"]
#: Pushes of a file, without the repeat.
PUSHES = 50
#: Files of a batch. Spark reads them in two tasks.
FILES = 4

Write = Callable[[str, Sequence[Spooled]], None]
#: The configuration of a source, and what writes pushes to it under a name.
Source = tuple[Mapping[str, Any], Write]


class Job:
    """The installed command on the cluster.

    Args:
        folder: For its configuration, checkpoint and logs.
        cluster: Runs its executors, one on each worker.
        database: URL of its database.
        query: Asks the database.
        source: The pushes.
    """

    def __init__(
        self,
        folder: Path,
        cluster: SparkCluster,
        database: str,
        query: Query,
        source: Source,
    ) -> None:
        self._folder = folder
        self._cluster = cluster
        self._database = database
        self._query = query
        configured, self._write = source
        self._chosen = random.Random(20260131)
        self._started: list[ChildProcess] = []
        self._files = 0
        self._pushes = 0
        self._points = 0
        self._sums: Counter[str] = Counter()
        self._pushes_of: Counter[str] = Counter()
        self._dead_loads: set[int] = set()
        self.spark = {
            "spark.master": cluster.url,
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.executor.memory": "512m",
            "spark.executor.cores": 1,
            "spark.cores.max": 2,
            "spark.speculation": True,
            "spark.speculation.interval": "100ms",
            "spark.speculation.quantile": 0.5,
        }
        self.settings = {"trigger_seconds": 0.1, **configured}

    def make(self, batches: int) -> None:
        """Write pushes of all clients, in files of some batches."""
        for _ in range(batches * FILES):
            minute = NOW + self._files * MINUTE_NS
            self.put(
                [
                    push(
                        self._chosen.choice(CLIENTS),
                        minute + self._chosen.randrange(MINUTE_NS),
                        Values(sums={CONNECTIONS: self._chosen.randrange(1000)}, gauges={ASSIGNED: 3.0}),
                    )
                    for _ in range(PUSHES)
                ]
            )

    def put(self, pushes: Sequence[Spooled]) -> None:
        """Write one file of pushes, with a repeat of the first one."""
        for item in pushes:
            self._pushes += 1
            self._pushes_of[item.client.instance] += 1
            for resource in MetricsData.FromString(item.otlp).resource_metrics:
                for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                    self._points += 1
                    if metric.name == CONNECTIONS:
                        self._sums[item.client.client_id] += int(metric.sum.data_points[0].as_double)
        self._write(f"{self._files:04}", [*pushes, pushes[0]])
        self._files += 1

    def start(self, *more: str, log: str = "rollup") -> ChildProcess:
        """Start a driver.

        Args:
            more: Options of the command.
            log: Name of the log file.
        """
        config = yaml.safe_dump({**self.settings, "spark": self.spark})
        return self.run([KAFKA_TELEMETRY, "rollup"], config, *more, log=log)

    def run(
        self, command: Sequence[str | Path], config: str, *more: str, log: str = "rollup", **env: str
    ) -> ChildProcess:
        """Run a command that takes the arguments of ``kafka-telemetry rollup``."""
        (self._folder / "rollup.yaml").write_text(config)
        arguments = ("--config", "rollup.yaml", "--checkpoint", str(self._folder / "checkpoint"), *more)
        running = ChildProcess(
            "rollup",
            [*command, "run", *arguments],
            log=self._folder / f"{log}.log",
            cwd=self._folder,
            env={"KAFKA_TELEMETRY_ROLLUP_POSTGRES": self._database, "SPARK_LOCAL_IP": LOOPBACK, **env},
        )
        self._started.append(running)
        return running

    def finish(self) -> None:
        """Let a driver take in what is left."""
        running = self.start("--once", log="last")
        assert running.wait(SPARK_S) == 0, running.log_tail()

    def kill(self) -> None:
        """End what still runs."""
        for running in self._started:
            running.kill()

    def wait_for_batches(self, count: int) -> None:
        """Wait until so many batches more are committed."""
        target = committed(self._query) + count
        wait_until(lambda: committed(self._query) >= target, timeout_s=SPARK_S, what="batches", every_s=0.01)

    def wait_for_all(self) -> None:
        """Wait until all pushes are committed."""
        wait_until(lambda: self._committed() == self._pushes, timeout_s=SPARK_S, what="all pushes")

    def wait_for_executors(self) -> list[int]:
        """Wait until there are two executors, and return their processes."""
        wait_until(lambda: len(self._cluster.executors()) == 2, timeout_s=SPARK_S, what="two executors")
        return self._cluster.executors()

    def pending(self) -> set[int]:
        """The loads that don't count yet."""
        return {load for (load,) in self._query("SELECT load_id FROM pending_load")}

    def must_not_count(self, loads: set[int]) -> None:
        """Let :meth:`check` fail if a table still has rows of these loads."""
        assert loads
        self._dead_loads |= loads

    def check(self) -> None:
        """Compare the totals with the truth and the ledger, and what a maintenance leaves."""
        wait_until(lambda: not self._cluster.executors(), timeout_s=SPARK_S, what="the executors' end")
        wait_until(lambda: not self._connected(), timeout_s=SPARK_S, what="the end of all transactions")
        self._check_totals()
        self._dead_loads |= self.pending()
        with (
            Store(self._database, retention=RetentionSettings()) as store,
            store.maintenance(time.time_ns()) as maintenance,
        ):
            maintenance.sweep()
        assert not self.pending()
        self._check_totals()
        tables = [
            name
            for (name,) in self._query(
                "SELECT table_name FROM information_schema.columns JOIN information_schema.tables "
                "USING (table_schema, table_name) WHERE table_schema = 'telemetry' "
                "AND column_name = 'load_id' AND table_type = 'BASE TABLE'"
            )
        ]
        assert {"rollup_1m", "client_rollup_1m", "push", "contribution", "client_load"} <= set(tables)
        for table in tables:
            rows = self._query(
                sql.SQL("SELECT DISTINCT load_id FROM {}").format(sql.Identifier("telemetry", table))
            )
            left = {load for (load,) in rows}
            assert not (left if table.endswith("_load") else left & self._dead_loads), table
        assert self._query("SELECT count(*) FROM push") == [(self._pushes,)]

    def _check_totals(self) -> None:
        assert (
            dict(
                self._query(
                    "SELECT client_id, sum(sum)::bigint FROM metric_1m WHERE metric = %s GROUP BY 1",
                    CONNECTIONS,
                )
            )
            == self._sums
        )
        assert (
            dict(self._query("SELECT client_instance_id, sum(pushes)::bigint FROM client_1m GROUP BY 1"))
            == self._pushes_of
        )
        assert self._query(
            "SELECT sum(pushes)::bigint, sum(repeats)::bigint, sum(points)::bigint FROM ledger"
        ) == [(self._pushes, self._files, self._points)]
        assert self._query(
            "SELECT sum(points)::bigint FROM metric_1m WHERE metric IN (%s, %s)", CONNECTIONS, ASSIGNED
        ) == [(self._points,)]
        assert self._query("SELECT count(*) FROM dead_letter") == [(0,)]

    def _committed(self) -> int:
        if not committed(self._query):
            return 0
        return int(self._query("SELECT sum(pushes) FROM ledger")[0][0])

    def _connected(self) -> bool:
        ((found,),) = self._query(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name LIKE 'kafka-client-telemetry rollup%%'"
        )
        return bool(found)


def spool_source(folder: Path) -> Source:
    """A spool folder."""

    def write(name: str, pushes: Sequence[Spooled]) -> None:
        spool(folder / "telemetry", name, pushes)

    return {"spool_files": {"path": str(folder / "telemetry"), "max_files": FILES}}, write


def topic_source(bootstrap: str, topic: str) -> Source:
    """A topic with records as the plugin kafka_topic writes them."""
    producer = Producer({"bootstrap.servers": bootstrap})

    def write(_name: str, pushes: Sequence[Spooled]) -> None:
        for item in map(_of_plugin, pushes):
            producer.produce(topic, item.payload.data, key=key(item), headers=headers(item))
        producer.flush(60)

    kafka = {"bootstrap_servers": bootstrap, "topic": topic, "max_offsets": FILES * PUSHES}
    return {"source": "kafka", "kafka": kafka}, write


def _of_plugin(one: Spooled) -> Push:
    row, template = one.row(), plugin_push()
    names = {field.name for field in dataclasses.fields(template.context)} & row.keys()
    same: dict[str, Any] = {name: row[name] for name in names}
    return dataclasses.replace(
        template,
        context=dataclasses.replace(
            template.context,
            **{**same, "source_address": "127.0.0.1", "source_port": 50_000},
        ),
        payload=dataclasses.replace(
            template.payload,
            client_instance_id=one.client.instance,
            terminating=one.terminating,
            data=one.otlp,
            push_id=str(row["push_id"]),
        ),
    )
