"""Deaths, hangs and rolls under the traffic of real clients: nothing fails, and what each costs.

Control clients at the brokers' own listener, without sidecars, have the same broker's trouble. What
was measured is printed; what a machine of any speed must keep is asserted.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kubernetes.pods.clients import LANGUAGES, PodClient, clients
from tests.kubernetes.pods.cluster import BOOTSTRAP, BROKERS, NAMESPACE, SELECTOR, SIDECAR, BrokerCluster
from tests.kubernetes.pods.figures import note
from tests.testbed.clients import Mode
from tests.testbed.helm import RELEASE
from tests.testbed.node.node import ready, restarts
from tests.testbed.node.settings import NODE

pytestmark = pytest.mark.timeout(1800)

DIRECT = f"{BOOTSTRAP.partition('.')[0].replace('-bootstrap', '-brokers')}.{NAMESPACE}.svc.cluster.local:9094"
#: Whatever happens to one broker or sidecar, no client stands longer.
LONGEST_S = 60.0
#: How often the brokers roll: some rolls more show how much the waits differ.
ROLLS = int(os.environ.get("ROLLS", "1"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Clients that run during a test.

    Attributes:
        through: Those behind sidecars.
        direct: Those without.
    """

    through: list[PodClient]
    direct: list[PodClient]

    def go_on(self) -> None:
        """Wait until each has made progress from now on."""
        for client in (*self.through, *self.direct):
            client.wait_for_progress()

    def check(self, what: str, since: float) -> None:
        """Print what happened since a moment, and check that no record failed."""
        for client in (*self.through, *self.direct):
            note(f"{what}: {client.name} stood {client.longest_wait_s(since):.0f} s")
        assert {client.name: client.failed_records for client in self.through if client.failed_records} == {}
        assert max(client.longest_wait_s(since) for client in self.through) < LONGEST_S


@pytest.fixture
def traffic(cluster: BrokerCluster, request: pytest.FixtureRequest) -> Iterator[Traffic]:
    """A producer of each language and a consumer, and a control producer and consumer."""
    topic = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:30].rstrip("-")
    wanted = [(language, Mode.PRODUCER) for language in LANGUAGES]
    with (
        clients(cluster.node, *wanted, ("java", Mode.CONSUMER), bootstrap=BOOTSTRAP, topic=topic) as through,
        clients(cluster.node, ("java", Mode.PRODUCER), bootstrap=DIRECT, topic=f"{topic}-direct") as direct,
    ):
        yield Traffic(through=through, direct=direct)


def sidecar_restarts(cluster: BrokerCluster, pod: str) -> int:
    """How often the kubelet has started a sidecar again."""
    found = cluster.node.pod(NAMESPACE, pod)
    assert found is not None
    return restarts(found, SIDECAR)


def test_a_supervisor_that_dies_five_times(cluster: BrokerCluster, traffic: Traffic) -> None:
    pod = cluster.pods[0]
    before = sidecar_restarts(cluster, pod)
    begun = time.time()
    for death in range(5):
        supervisor = cluster.process(pod, SIDECAR, "supervisor")
        died = time.monotonic()
        os.kill(supervisor, signal.SIGKILL)
        cluster.node.wait_until(
            lambda: cluster.process(pod, SIDECAR, "supervisor") != supervisor,  # noqa: B023
            what="another supervisor",
        )
        cluster.node.wait_until(lambda: cluster.answers(pod), what="the sidecar to answer")
        note(f"death {death + 1}: the sidecar answers after {time.monotonic() - died:.1f} s")
    traffic.go_on()
    traffic.check("a supervisor that dies", begun)
    # The kubelet has not noticed.
    assert sidecar_restarts(cluster, pod) == before
    assert cluster.metric(pod, 'kafka_telemetry_process_restarts_total{process="supervisor"}') == 5


def _started_at(pid: int) -> float:
    """When a process of this machine was started, in seconds since the epoch."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    ago = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - ago


def _logged_at(cluster: BrokerCluster, pod: str, event: str) -> float:
    """When a sidecar's container first logged an event, in seconds since the epoch."""
    for line in cluster.node.logs(NAMESPACE, pod, SIDECAR).splitlines():
        if line.startswith("{") and (entry := json.loads(line))["event"] == event:
            return datetime.datetime.fromisoformat(entry["timestamp"]).timestamp()
    raise LookupError(f"{pod} has not logged {event!r}")


def test_a_sidecar_whose_container_dies(cluster: BrokerCluster, traffic: Traffic) -> None:
    # As when all processes are killed for their memory (cgroup v2).
    pod = cluster.pods[1]
    before = sidecar_restarts(cluster, pod)
    begun = time.time()
    os.kill(cluster.process(pod, SIDECAR, "process 1"), signal.SIGKILL)
    cluster.node.wait_until(
        lambda: sidecar_restarts(cluster, pod) == before + 1, what="another container of the sidecar"
    )
    cluster.wait_until_ready()
    traffic.go_on()
    started = _started_at(cluster.process(pod, SIDECAR, "process 1"))
    accepts = _logged_at(cluster, pod, "accepting clients")
    note(
        f"a container that dies: the kubelet starts another after {started - begun:.1f} s, "
        f"which accepts clients {accepts - started:.1f} s later"
    )
    traffic.check("a container that dies", begun)


def test_a_broker_is_killed(cluster: BrokerCluster, traffic: Traffic) -> None:
    begun = time.time()
    os.kill(cluster.process(cluster.pods[2], "kafka", "java"), signal.SIGKILL)
    cluster.wait_until_ready()
    traffic.go_on()
    traffic.check("a broker that is killed", begun)


def test_a_broker_hangs(cluster: BrokerCluster, traffic: Traffic) -> None:
    pod = cluster.pods[2]
    begun = time.time()
    java = cluster.process(pod, "kafka", "java")
    os.kill(java, signal.SIGSTOP)
    try:
        waited = cluster.node.wait_until(
            lambda: not cluster.node.is_ready(NAMESPACE, pod), what="the hung broker's pod to be not ready"
        )
        note(f"a broker that hangs: not ready after {waited.seconds:.0f} s")
    finally:
        os.kill(java, signal.SIGCONT)
    cluster.wait_until_ready()
    traffic.go_on()
    traffic.check("a broker that hangs", begun)


@pytest.mark.parametrize("roll", range(ROLLS))
def test_the_brokers_roll(cluster: BrokerCluster, traffic: Traffic, roll: int) -> None:
    begun = time.time()
    cluster.node.kubectl("rollout", "restart", f"statefulset/{BROKERS}", f"--namespace={NAMESPACE}")
    cluster.wait_until_ready()
    traffic.go_on()
    traffic.check(f"roll {roll + 1}", begun)


def test_no_second_broker_is_evicted(cluster: BrokerCluster) -> None:
    assert cluster.evict(cluster.pods[0]) == 201
    assert cluster.evict(cluster.pods[1]) == 429
    cluster.wait_until_ready()


def test_a_drain_moves_one_broker_at_a_time(cluster: BrokerCluster, traffic: Traffic) -> None:
    node = cluster.node
    before = {pod["metadata"]["uid"] for pod in node.pods(NAMESPACE, SELECTOR)}
    begun = time.time()
    most = 0

    def ended() -> bool:
        nonlocal most
        most = max(most, 3 - sum(ready(pod) for pod in node.pods(NAMESPACE, SELECTOR)))
        return drain.done()

    with ThreadPoolExecutor(1) as executor:
        drain = executor.submit(
            node.kubectl,
            *("drain", NODE, f"--pod-selector={SELECTOR}", "--delete-emptydir-data", "--timeout=280s"),
        )
        node.wait_until(
            lambda: node.get(f"/api/v1/nodes/{NODE}")["spec"].get("unschedulable", False),
            what="a node that takes no pods",
        )
        # There is no other node that the brokers could move to.
        node.kubectl("uncordon", NODE)
        node.wait_until(ended, what="the end of the drain")
        drain.result()
    cluster.wait_until_ready()
    assert most == 1
    assert not before & {pod["metadata"]["uid"] for pod in node.pods(NAMESPACE, SELECTOR)}
    traffic.go_on()
    traffic.check("a drain", begun)


def test_an_upgrade_rolls_the_brokers_and_back(cluster: BrokerCluster, traffic: Traffic) -> None:
    node = cluster.node
    begun = time.time()
    changes = ("config.log.level=debug", "commonLabels.changed=yes", "resources.limits.memory=800Mi")
    cluster.upgrade(*(f"--set={change}" for change in changes))
    cluster.wait_until_ready()
    for pod in node.pods(NAMESPACE, SELECTOR):
        assert pod["metadata"]["labels"]["changed"] == "yes"
        name, file = pod["metadata"]["name"], "/etc/kafka-telemetry/config.yaml"
        assert "level: debug" in node.exec(NAMESPACE, name, SIDECAR, "cat", file)
    cluster.helm.run("rollback", RELEASE, f"--namespace={NAMESPACE}")
    cluster.wait_until_ready()
    assert all("changed" not in pod["metadata"]["labels"] for pod in node.pods(NAMESPACE, SELECTOR))
    traffic.go_on()
    traffic.check("an upgrade and a rollback", begun)
