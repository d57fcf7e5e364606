"""The chart's example, word for word: clients in pods, and their metrics at a collector."""

from __future__ import annotations

import pytest

from tests.kubernetes.pods.clients import LANGUAGES, clients
from tests.kubernetes.pods.cluster import BOOTSTRAP, BrokerCluster
from tests.testbed.clients import Mode

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
