"""The chart's example, word for word: clients in pods, and their metrics at a collector."""

from __future__ import annotations

import pytest

from tests.kubernetes.pods.clients import LANGUAGES, clients
from tests.kubernetes.pods.cluster import BOOTSTRAP, NAMESPACE, SIDECAR, TOKEN, BrokerCluster
from tests.testbed.clients import Mode
from tests.testbed.kubernetes import KubectlError

pytestmark = pytest.mark.timeout(1800)


def test_metrics_of_every_client_reach_the_collector(cluster: BrokerCluster) -> None:
    wanted = [(language, mode) for language in LANGUAGES for mode in Mode]
    with clients(cluster.node, *wanted, bootstrap=BOOTSTRAP, topic="example") as running:
        names = {client.name for client in running}
        cluster.node.wait_until(
            lambda: names <= cluster.collector.client_ids(), what="metrics of all clients", every_s=0.5
        )
        assert [client.errors for client in running] == [[]] * len(running)
    brokers = {
        str(metric.resource["broker_id"])
        for metric in cluster.collector.exports()
        if metric.resource.get("client_id") in names
    }
    assert brokers <= {"0", "1", "2"}


def test_doctor_proves_each_pod_and_leaves_no_error_in_the_brokers_logs(cluster: BrokerCluster) -> None:
    wanted = [("java", Mode.PRODUCER), ("librdkafka", Mode.PRODUCER)]
    config = ("--config", "/etc/kafka-telemetry/config.yaml")
    with clients(cluster.node, *wanted, bootstrap=BOOTSTRAP, topic="doctor"):
        for pod in cluster.pods:
            # It ends with status 0: also clients that push through another sidecar are healthy.
            cluster.command(pod, "doctor", *config, f"--token-file={TOKEN}")
    for pod in cluster.pods:
        assert "InvalidRequestException" not in cluster.node.logs(NAMESPACE, pod, "kafka")


def test_what_fills_the_sidecars_tmp_evicts_nobody(cluster: BrokerCluster) -> None:
    pod = cluster.pods[0]
    before = cluster.process(pod, "kafka", "java")
    fill = ("dd", "if=/dev/zero", "of=/tmp/full", "bs=1M", "count=75")
    with pytest.raises(KubectlError, match="No space left on device"):
        cluster.node.exec(NAMESPACE, pod, SIDECAR, *fill)
    cluster.node.exec(NAMESPACE, pod, SIDECAR, "rm", "/tmp/full")
    assert cluster.node.is_ready(NAMESPACE, pod)
    assert cluster.process(pod, "kafka", "java") == before
