"""The collector example delivers pushes to Prometheus, and to Kafka for the roll-up."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
import pytest
import yaml

from tests.examples.compose import EXAMPLES, replaced
from tests.testbed import parts
from tests.testbed.broker import KafkaBroker
from tests.testbed.clients import JavaClient, LibrdkafkaClient, Mode
from tests.testbed.ports import LOOPBACK, free_port, is_open
from tests.testbed.process import ChildProcess
from tests.testbed.prometheus import Prometheus
from tests.testbed.sidecar import Sidecar

EXAMPLE = EXAMPLES / "collector"
TOPIC = "client-telemetry"
#: The names in Prometheus by README.md.
NAMES = re.compile(r"^\| `org\.apache[^`]+` \| `[^`]+` \| `(\w+)` \|$", re.MULTILINE)
#: Labels that Prometheus adds, and attributes that distinguish a client's series.
OF_POINTS = {"__name__", "job", "instance", "node_id", "node_role", "topic", "partition"}

pytestmark = pytest.mark.timeout(1200)


class Running:
    """The example's collector and Prometheus, and a sidecar before the testbed's broker."""

    def __init__(self, broker: KafkaBroker, folder: Path) -> None:
        otlp, exporter, http, health, rest = (free_port() for _ in range(5))
        places = {
            "0.0.0.0:4317": f"{LOOPBACK}:{otlp}",
            "collector:4317": f"{LOOPBACK}:{otlp}",
            "0.0.0.0:4318": f"{LOOPBACK}:{http}",
            "0.0.0.0:9464": f"{LOOPBACK}:{exporter}",
            "collector:9464": f"{LOOPBACK}:{exporter}",
            "0.0.0.0:13133": f"{LOOPBACK}:{health}",
            "0.0.0.0:19092": f"{LOOPBACK}:{broker.listeners[0].advertised_port}",
            "kafka:9092": broker.bootstrap,
            "kafka:9093": broker.internal_bootstrap,
        }
        self.folder = folder
        for file in EXAMPLE.glob("*.yaml"):
            (folder / file.name).write_text(replaced(file.read_text(), places))
        self.collector = ChildProcess(
            "collector",
            [parts.EXAMPLES_COLLECTOR.require() / "otelcol", "--config", folder / "collector.yaml"],
            log=folder / "collector.log",
            cwd=folder,
        )
        self.collector.wait_until_ready(
            lambda: all(map(is_open, (otlp, http, exporter, health))), timeout_s=30
        )
        self.prometheus = Prometheus(config=folder / "prometheus.yaml")
        config = yaml.safe_load((folder / "receiver.yaml").read_text())
        self.sidecar = Sidecar(config | {"rest": {"bind": f"{LOOPBACK}:{rest}"}})

    def series(self) -> list[Mapping[str, str]]:
        """The clients' series that Prometheus has, by their labels."""
        return [item.labels for item in self.prometheus.query('{job="kafka-clients"}')]


@pytest.fixture(scope="module")
def running(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    broker.create_topic("orders")
    broker.create_topic(TOPIC)
    started = Running(broker, tmp_path_factory.mktemp("collector"))
    with started.prometheus, started.sidecar as sidecar:
        sidecar.put_subscription("everything", ["*"], 1000)
        bootstrap = sidecar.bootstrap()
        with (
            JavaClient(Mode.PRODUCER, bootstrap=bootstrap, topic="orders") as java,
            LibrdkafkaClient(Mode.CONSUMER, bootstrap=bootstrap, topic="orders") as librdkafka,
        ):
            for client in (java, librdkafka):
                client.wait_for_records(20)
            yield started
    started.collector.terminate()


def test_prometheus_has_clients_under_the_names_in_the_readme(running: Running) -> None:
    told = set(NAMES.findall((EXAMPLE / "README.md").read_text()))
    assert len(told) >= 5
    deadline = time.monotonic() + 60
    while (
        missing := told - {shown["__name__"] for shown in running.series()}
    ) and time.monotonic() < deadline:
        time.sleep(1)
    assert missing == set()
    kept = re.search(r"keep_keys\(resource\.attributes, (\[.*\])\)", (EXAMPLE / "collector.yaml").read_text())
    assert kept is not None
    clients = [shown for shown in running.series() if shown["__name__"].startswith("org_apache")]
    labels = {label for client in clients for label in client}
    assert labels <= OF_POINTS | set(yaml.safe_load(kept[1]))
    assert {client["client_software_name"] for client in clients} == {
        "apache-kafka-java",
        "confluent-kafka-python",
    }


def test_the_roll_up_reads_what_the_collector_writes(running: Running, database: str) -> None:
    command: list[str | Path] = [
        *(Path(sys.executable).with_name("kafka-telemetry"), "rollup", "run", "--once"),
        *("--config", running.folder / "rollup.yaml", "--postgres", database),
        *("--checkpoint", running.folder / "checkpoint"),
    ]
    shutil.rmtree(running.folder / "checkpoint", ignore_errors=True)
    rollup = ChildProcess("roll-up", command, log=running.folder / "rollup.log", cwd=running.folder)
    assert rollup.wait(240) == 0, rollup.log_tail()
    with psycopg.connect(database) as connection:
        rows = connection.execute(
            "SELECT client_id, client_software_name, count(DISTINCT metric) "
            "FROM telemetry.metric_1m GROUP BY 1, 2"
        ).fetchall()
        (dead,) = connection.execute("SELECT count(*) FROM telemetry.dead_letter").fetchone() or (None,)
    assert dead == 0
    assert {(client, software) for client, software, _ in rows} == {
        ("java-producer", "apache-kafka-java"),
        ("librdkafka-consumer", "confluent-kafka-python"),
    }
    assert all(metrics >= 10 for *_, metrics in rows)
