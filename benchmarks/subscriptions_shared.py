"""Benchmark of the store ``kafka``: how soon a change in Kafka is in every sidecar's answer.

Three brokers keep 1,000 subscriptions as CLIENT_METRICS resources, and three sidecars follow them.
One after the other, subscriptions are changed as Kafka's tools do it, at random moments of the
sidecars' reads. Raw clients ask each sidecar every 20 ms. A time begins before the change is sent
and ends with the first answer that has it.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Report, table
from receiver.telemetry.subscription_checks import MAX_SUBSCRIPTIONS
from tests.integration.gateway.support import GatewaySidecar, Raw, get_subscriptions
from tests.testbed import raw
from tests.testbed.cluster import KafkaCluster
from tests.testbed.cpu import cpu_seconds, with_descendants
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import wait_until

_GOAL_S = 5.0
_ASK_EVERY_S = 0.02
_WITHIN_S = 120.0
#: Subscriptions that match the asking clients.
_MATCHING = 10
_SEED = 19


def run(folder: Path, *, quick: bool) -> Report:
    """Change subscriptions one after the other, and time each sidecar's answer."""
    del folder  # brokers and sidecars have folders of their own
    changes = 20 if quick else 60
    with KafkaCluster() as cluster, _sidecars(cluster) as sidecars:
        _fill(cluster)
        for sidecar in sidecars:
            wait_until(
                lambda one=sidecar: _known(one) == MAX_SUBSCRIPTIONS,  # type: ignore[misc]
                timeout_s=_WITHIN_S,
                what="all subscriptions",
            )
        idle_cpu = _idle_cpu(sidecars, 5.0 if quick else 10.0)
        taken = _changes(cluster, sidecars, changes)
    every = [seconds for item in taken for seconds in item]
    last = [max(item) for item in taken]
    head = ("seconds from a change in Kafka to an answer with it", "median", "99 %", "longest")
    rows = [("each sidecar", *_spread(every)), ("the last of three sidecars", *_spread(last))]
    return Report(
        title=f"{MAX_SUBSCRIPTIONS:,} subscriptions in Kafka, three brokers, three sidecars",
        text=table(head, rows),
        raw={"seconds": taken, "idle_cpu": idle_cpu},
        figures=[
            Figure(
                name="a change in Kafka, in every sidecar's answer, 99 %",
                value=_percentile(last, 99),
                unit="s",
                at_most=_GOAL_S,
                note=f"{changes} changes; a sidecar that only follows uses {100 * idle_cpu:.1f} % of a core",
            )
        ],
    )


@contextlib.contextmanager
def _sidecars(cluster: KafkaCluster) -> Iterator[list[GatewaySidecar]]:
    with contextlib.ExitStack() as running:
        yield [
            running.enter_context(GatewaySidecar(_config(cluster, node_id), wait_for_broker=False))
            for node_id in cluster.brokers
        ]


def _config(cluster: KafkaCluster, node_id: int) -> dict[str, Any]:
    unlimited = dict.fromkeys(("new_instances_per_minute", "telemetry_requests_per_second"))
    return {
        "broker": {"id": node_id},
        "listeners": [
            {
                "name": "CLIENT",
                "bind": f"{LOOPBACK}:{free_port()}",
                "upstream": cluster.brokers[node_id].bootstrap,
            }
        ],
        "subscriptions": {"store": "kafka", "kafka": {"bootstrap_servers": cluster.bootstrap}},
        "limits": {"source_address": unlimited, "principal": unlimited},
        "rest": {"bind": f"{LOOPBACK}:{free_port()}"},
        "plugins": [{"type": "console"}],
    }


def _known(sidecar: GatewaySidecar) -> int:
    answer = sidecar.http.get("/v1/subscriptions", params={"limit": MAX_SUBSCRIPTIONS})
    return len(answer.raise_for_status().json()["items"])


def _fill(cluster: KafkaCluster) -> None:
    for number in range(MAX_SUBSCRIPTIONS):
        _alter(cluster, number, f"m{number % 100}.")


def _alter(cluster: KafkaCluster, number: int, prefix: str) -> None:
    match = "client_id=raw" if number < _MATCHING else f"client_id=orders-{number}-.*"
    settings = {"metrics": f"org.apache.kafka.{prefix}", "interval.ms": "60000", "match": match}
    raw.alter_client_metrics(cluster.brokers[1].internal_port, f"s{number:04}", settings)


def _idle_cpu(sidecars: list[GatewaySidecar], seconds: float) -> float:
    """Return the share of a core that a sidecar uses while nothing happens."""

    def used() -> float:
        return sum(cpu_seconds(pid) for sidecar in sidecars for pid in with_descendants(sidecar.pid))

    before, began = used(), time.monotonic()
    time.sleep(seconds)
    return (used() - before) / (time.monotonic() - began) / len(sidecars)


def _changes(cluster: KafkaCluster, sidecars: list[GatewaySidecar], changes: int) -> list[list[float]]:
    """Return for each change the seconds of each sidecar."""
    random_numbers = random.Random(_SEED)
    taken = []
    for change in range(changes):
        time.sleep(random_numbers.uniform(0, 2))
        prefix = f"change.{change}."
        watches = [_Watch(sidecar.port(), prefix.encode()) for sidecar in sidecars]
        began = time.monotonic()
        _alter(cluster, random_numbers.randrange(_MATCHING), prefix)
        taken.append([watch.seen_at() - began for watch in watches])
    return taken


class _Watch(threading.Thread):
    """Asks one sidecar for subscriptions until an answer has a prefix."""

    def __init__(self, port: int, prefix: bytes) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._prefix = prefix
        self._seen_at: float | None = None
        self.start()

    def run(self) -> None:
        ends = time.monotonic() + _WITHIN_S
        with Raw(self._port) as client:
            while time.monotonic() < ends:
                if self._prefix in client.exchange(get_subscriptions()):
                    self._seen_at = time.monotonic()
                    return
                time.sleep(_ASK_EVERY_S)

    def seen_at(self) -> float:
        """Wait for the answer and return its time."""
        self.join()
        assert self._seen_at is not None, f"no answer has {self._prefix!r} after {_WITHIN_S} s"
        return self._seen_at


def _percentile(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def _spread(values: list[float]) -> tuple[str, str, str]:
    return f"{statistics.median(values):.2f}", f"{_percentile(values, 99):.2f}", f"{max(values):.2f}"
