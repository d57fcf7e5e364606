"""Processes of a sidecar that hang: they are noticed and replaced, and clients go on."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import pytest

from tests.kubernetes.pods.clients import LANGUAGES, clients
from tests.kubernetes.pods.cluster import BOOTSTRAP, NAMESPACE, SIDECAR, BrokerCluster
from tests.kubernetes.pods.figures import note
from tests.testbed.clients import Mode
from tests.testbed.node.node import restarts

pytestmark = pytest.mark.timeout(1800)


def sidecar_restarts(cluster: BrokerCluster, pod: str) -> int:
    """How often the kubelet has started a sidecar again."""
    found = cluster.node.pod(NAMESPACE, pod)
    assert found is not None
    return restarts(found, SIDECAR)


@pytest.mark.parametrize("process", ["core", "relay-1"])
def test_a_process_that_hangs_is_replaced(cluster: BrokerCluster, process: str) -> None:
    pod = cluster.pods[0]
    before = sidecar_restarts(cluster, pod)
    wanted = [(language, Mode.PRODUCER) for language in LANGUAGES]
    with clients(cluster.node, *wanted, bootstrap=BOOTSTRAP, topic=f"hung-{process}") as running:
        begun = time.time()
        hung = cluster.process(pod, SIDECAR, f"kct-{process}")
        os.kill(hung, signal.SIGSTOP)
        waited = cluster.node.wait_until(
            lambda: cluster.process(pod, SIDECAR, f"kct-{process}") != hung, what="another process"
        )
        note(f"a hung {process}: replaced after {waited.seconds:.0f} s")
        cluster.wait_until_ready()
        for client in running:
            client.wait_for_progress()
            note(f"a hung {process}: {client.name} stood {client.longest_wait_s(begun):.0f} s")
        assert {client.name: client.failed_records for client in running if client.failed_records} == {}
    assert sidecar_restarts(cluster, pod) == before


def test_a_supervisor_that_hangs_is_replaced_with_its_container(cluster: BrokerCluster) -> None:
    pod = cluster.pods[2]
    before = sidecar_restarts(cluster, pod)
    os.kill(cluster.process(pod, SIDECAR, "supervisor"), signal.SIGSTOP)
    waited = cluster.node.wait_until(
        lambda: sidecar_restarts(cluster, pod) > before, what="another container of the sidecar"
    )
    note(f"a hung supervisor: replaced after {waited.seconds:.0f} s")


def test_a_sidecar_that_hangs_is_replaced_and_its_broker_stays(cluster: BrokerCluster) -> None:
    pod = cluster.pods[1]
    before = sidecar_restarts(cluster, pod)
    java = cluster.process(pod, "kafka", "java")
    wanted = [(language, Mode.PRODUCER) for language in LANGUAGES]
    with clients(cluster.node, *wanted, bootstrap=BOOTSTRAP, topic="hung-sidecar") as running:
        begun = time.time()
        hung = cluster.node.processes(NAMESPACE, pod, SIDECAR)
        for process in hung:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)
        waited = cluster.node.wait_until(
            lambda: sidecar_restarts(cluster, pod) > before, what="another container of the sidecar"
        )
        note(f"a hung sidecar: replaced after {waited.seconds:.0f} s")
        cluster.wait_until_ready()
        for client in running:
            client.wait_for_progress()
            note(f"a hung sidecar: {client.name} stood {client.longest_wait_s(begun):.0f} s")
    assert cluster.process(pod, "kafka", "java") == java
