"""A destination that is away loses nothing: what clients push meanwhile arrives later."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Sequence

import pytest

from tests.kubernetes.pods.clients import clients
from tests.kubernetes.pods.cluster import BOOTSTRAP, BrokerCluster
from tests.kubernetes.pods.figures import note
from tests.testbed.clients import Mode
from tests.testbed.collector import ExportedMetric

pytestmark = pytest.mark.timeout(1800)

#: Times of one push that clients may take at different moments.
_SKEW_NS = 50_000_000


def counted(
    exports: Sequence[ExportedMetric], names: set[str]
) -> dict[tuple[str, str], list[tuple[int, int]]]:
    """The times that the points of each client's counters cover, in order, by client and metric."""
    found: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
    for metric in exports:
        client = str(metric.resource.get("client_id"))
        if client in names and metric.monotonic and metric.temporality == "delta":
            for point in metric.points:
                if not point.attributes:
                    found[client, metric.name].add((point.start_time_ns, point.time_ns))
    return {series: sorted(times) for series, times in found.items()}


def gaps(times: Sequence[tuple[int, int]]) -> list[float]:
    """The seconds that no point covers."""
    return [
        (after[0] - before[1]) / 1e9
        for before, after in itertools.pairwise(times)
        if after[0] - before[1] > _SKEW_NS
    ]


def test_nothing_is_lost_while_the_collector_is_away(cluster: BrokerCluster) -> None:
    # franz-go pushes gauges.
    wanted = [("java", Mode.PRODUCER), ("librdkafka", Mode.PRODUCER)]
    with clients(cluster.node, *wanted, bootstrap=BOOTSTRAP, topic="away") as running:
        names = {client.name for client in running}
        cluster.node.wait_until(
            lambda: {client for client, _ in counted(cluster.collector.exports(), names)} == names,
            what="counters of all clients",
        )
        cluster.collector.stop()
        begun = time.time()
        for client in running:
            client.wait_for_progress(300)  # 15 s, with 15 pushes
        cluster.collector.start()
        back = time.time()

        def arrived() -> bool:
            series = counted(cluster.collector.exports(), names)
            return all(times[-1][1] > back * 1e9 and not gaps(times) for times in series.values())

        waited = cluster.node.wait_until(arrived, what="all that was pushed meanwhile")
        note(f"a collector away for {back - begun:.0f} s: whole {waited.seconds:.0f} s after its return")
        assert [client.errors for client in running] == [[]] * len(running)
