"""The Kubernetes example: three real brokers and their sidecars, from what the chart renders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from spark_streaming.load import load
from tests.examples.compose import EXAMPLES, replaced
from tests.examples.real.pods import Pods
from tests.testbed import kubernetes_schemas
from tests.testbed.clients import JavaClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector
from tests.testbed.helm import Helm, Manifest, of_kind, parse
from tests.testbed.process import wait_until

EXAMPLE = EXAMPLES / "kubernetes"

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    return parse(Helm(tmp_path_factory.mktemp("helm")).template(EXAMPLE / "values.yaml"))


@pytest.fixture(scope="module")
def pods(manifests: list[Manifest], shared_collector: Collector) -> Iterator[Pods]:
    with Pods(manifests, collector=shared_collector.grpc_endpoint.removeprefix("http://")) as running:
        yield running


@pytest.mark.parametrize("release", kubernetes_schemas.RELEASES)
def test_kubernetes_knows_every_field(release: str, tmp_path: Path) -> None:
    helm = Helm(tmp_path / "helm")
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "example.yaml").write_text(helm.template(EXAMPLE / "values.yaml"))
    assert helm.check(tmp_path / "manifests", release) == []


def test_clients_connect_to_sidecars_only(pods: Pods) -> None:
    for address in pods.addresses:
        brokers = AdminClient({"bootstrap.servers": f"{address}:19092"}).list_topics(timeout=20).brokers
        assert {number: f"{broker.host}:{broker.port}" for number, broker in brokers.items()} == {
            number: f"{other}:19092" for number, other in enumerate(pods.addresses)
        }


def test_pushes_reach_the_destinations_of_the_values(pods: Pods, collector: Collector) -> None:
    for address in pods.addresses:
        put = pods.rest(address, "/v1/subscriptions/all", {"metrics": ["*"], "interval_ms": 1000})
        assert put.status_code == 201, put.text
    bootstrap = f"{pods.addresses[0]}:19092"
    with (
        JavaClient(Mode.PRODUCER, bootstrap=bootstrap, topic="orders") as java,
        LibrdkafkaClient(Mode.CONSUMER, bootstrap=bootstrap, topic="orders") as librdkafka,
    ):
        for client in (java, librdkafka):
            client.wait_for_records(20, timeout_s=60)
        collector.wait_for(
            lambda exports: (
                {java.client_id, librdkafka.client_id}
                <= {export.resource.get("client_id") for export in exports}
            ),
            timeout_s=60,
        )
        wait_until(lambda: exported(pods, "kafka_topic") > 0, timeout_s=60, what="pushes in the topic")
    labels = [export.resource for export in collector.exports()]
    assert {str(label["broker_id"]) for label in labels} <= {"0", "1", "2"}
    assert {label["cluster_id"] for label in labels} == {"4L6g3nShT-eMCtK--X86sw"}


def exported(pods: Pods, plugin: str) -> float:
    """Pushes that a plugin's destination took, of all sidecars."""
    found = 0.0
    for address in pods.addresses:
        for line in pods.rest(address, "/metrics").text.splitlines():
            if line.startswith("kafka_telemetry_plugin_exported_pushes_total") and f'type="{plugin}"' in line:
                found += float(line.rsplit(" ", 1)[1])
    return found


def test_the_roll_up_accepts_its_configuration(manifests: list[Manifest], tmp_path: Path) -> None:
    (config,) = (
        item for item in of_kind(manifests, "ConfigMap") if item["metadata"]["name"].endswith("-rollup")
    )
    (tmp_path / "url").write_text("postgresql://rollup:secret@postgres/telemetry")
    file = tmp_path / "rollup.yaml"
    file.write_text(
        replaced(config["data"]["rollup.yaml"], {"/run/secrets/kafka-telemetry/postgres": tmp_path})
    )
    settings = load(file, {})
    values = yaml.safe_load((EXAMPLE / "values.yaml").read_text())
    assert (settings.source, settings.kafka.topic) == ("kafka", values["config"]["plugins"][1]["topic"])
