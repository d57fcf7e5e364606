"""An earlier chart's release is upgraded to this one's, under the traffic of real clients."""

from __future__ import annotations

import io
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Final

import pytest

from tests.images.engine import TREE
from tests.kubernetes.pods.clients import LANGUAGES, clients
from tests.kubernetes.pods.cluster import BOOTSTRAP, NAMESPACE, SELECTOR, BrokerCluster
from tests.kubernetes.pods.figures import note
from tests.testbed.clients import Mode
from tests.testbed.helm import CHART
from tests.testbed.node.node import Pod

pytestmark = pytest.mark.timeout(1800)

#: The last commit whose brokers advertise their pods' own names, and not Services: clients of both
#: addresses are there while the brokers roll.
EARLIER: Final = "3e930577f5374e2a5bd205168770f7fe43496926"


@pytest.fixture(scope="module")
def earlier_chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart of :data:`EARLIER`."""
    place = CHART.relative_to(TREE)
    archive = subprocess.run(["git", "-C", TREE, "archive", EARLIER, place], capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the history lacks {EARLIER}: run `git fetch --unshallow`")
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder / place


def advertised(pod: Pod) -> str:
    """What a broker advertises."""
    (broker,) = pod["spec"]["containers"]
    (found,) = (item["value"] for item in broker["env"] if item["name"] == "KAFKA_ADVERTISED_LISTENERS")
    return str(found)


def test_the_brokers_change_their_addresses_and_no_record_fails(
    cluster: BrokerCluster, earlier_chart: Path
) -> None:
    node = cluster.node
    now = {advertised(pod) for pod in node.pods(NAMESPACE, SELECTOR)}
    cluster.upgrade(chart=earlier_chart)
    try:
        cluster.wait_until_ready()
        assert now.isdisjoint(advertised(pod) for pod in node.pods(NAMESPACE, SELECTOR))
        wanted = [*((language, Mode.PRODUCER) for language in LANGUAGES), ("java", Mode.CONSUMER)]
        with clients(node, *wanted, bootstrap=BOOTSTRAP, topic="upgrade") as running:
            begun = time.time()
            cluster.upgrade()
            cluster.wait_until_ready()
            for client in running:
                client.wait_for_progress()
                note(f"an earlier chart: {client.name} stood {client.longest_wait_s(begun):.0f} s")
            assert {client.name: client.failed_records for client in running if client.failed_records} == {}
    finally:
        cluster.upgrade()
    assert {advertised(pod) for pod in node.pods(NAMESPACE, SELECTOR)} == now
