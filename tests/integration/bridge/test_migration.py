"""Two brokers move from gateway to bridge, one after the other, under clients that push on."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.bridge.support import properties
from tests.testbed.broker import KafkaBroker
from tests.testbed.clients import JavaClient, Mode
from tests.testbed.collector import Collector, ExportedMetric
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import wait_until
from tests.testbed.sidecar import Sidecar

pytestmark = pytest.mark.full

_NAMES: Final = ("first", "second")
#: Longer than a broker needs to stop, so that no push is on its way then.
_INTERVAL_MS: Final = 4_000
_SENT: Final = "org.apache.kafka.producer.record.send.total"


def _receiver(brokers: Mapping[int, KafkaBroker], bridge_port: int, token: Path, collector: Collector) -> Any:
    """One receiver, as the gateway of all brokers and for their bridges."""
    servers = ",".join(broker.internal_bootstrap for broker in brokers.values())
    return {
        "listeners": [
            {
                "name": f"CLIENT-{node_id}",
                "bind": f"{LOOPBACK}:{broker.listeners[0].advertised_port}",
                "upstream": broker.bootstrap,
                "broker": {"id": node_id},
            }
            for node_id, broker in brokers.items()
        ],
        "bridge": {"bind": f"{LOOPBACK}:{bridge_port}", "token": {"file": str(token)}},
        "subscriptions": {"store": "kafka", "kafka": {"bootstrap_servers": servers}},
        "rest": {"bind": f"{LOOPBACK}:{free_port()}"},
        "plugins": [{"type": "otlp", "endpoint": collector.grpc_endpoint, "protocol": "grpc"}],
    }


def _take_gateway_away(broker: KafkaBroker, settings: Mapping[str, str]) -> None:
    """Have clients come to the broker itself, and give it the bridge, when it starts again."""
    file = broker.data.parent / "server.properties"
    lines = dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)
    through = f"CLIENT://{LOOPBACK}:{broker.listeners[0].advertised_port}"
    assert through in lines["advertised.listeners"]
    lines["advertised.listeners"] = lines["advertised.listeners"].replace(
        through, f"CLIENT://{LOOPBACK}:{broker.client_port}"
    )
    file.write_text("".join(f"{key}={value}\n" for key, value in {**lines, **settings}.items()))


def _ways(receiver: Sidecar) -> dict[str, set[str]]:
    """The ways by which the clients that push now come, by client id."""
    found: dict[str, set[str]] = defaultdict(set)
    for client in receiver.http.get("/v1/clients").json()["items"]:
        if client["state"] == "pushing":
            found[client["client_id"]].add(client["via"])
    return found


def _spans(exports: Sequence[ExportedMetric], client_id: str) -> list[tuple[int, int]]:
    """What each of a client's pushes counts from and to, in order."""
    return sorted(
        (point.start_time_ns, point.time_ns)
        for export in exports
        if export.name == _SENT and export.resource.get("client_id") == client_id
        for point in export.points
    )


def test_no_push_is_missing_or_counts_twice(jar: Path, token_file: Path) -> None:
    port = free_port()
    first = KafkaBroker(plugins=[jar], advertised_client_port=free_port())
    with first, Collector() as collector:
        second = KafkaBroker(node_id=2, controller=first, plugins=[jar], advertised_client_port=free_port())
        with second, Sidecar(_receiver({1: first, 2: second}, port, token_file, collector)) as receiver:
            first.alter_client_metrics("all", ["*"], _INTERVAL_MS)
            first.create_topic("moved", partitions=2)
            bootstrap = ",".join(
                f"{LOOPBACK}:{broker.listeners[0].advertised_port}" for broker in (first, second)
            )
            clients = [
                JavaClient(Mode.PRODUCER, bootstrap=bootstrap, topic="moved", client_id=name)
                for name in _NAMES
            ]
            with clients[0], clients[1]:
                wait_until(
                    lambda: _ways(receiver) == {name: {"gateway"} for name in _NAMES},
                    timeout_s=90,
                    what="both clients by the gateway",
                )
                for broker in (second, first):
                    _wait_for_pushes(collector)
                    broker.stop()
                    _take_gateway_away(broker, properties(token_file, port))
                    broker.start()
                wait_until(
                    lambda: _ways(receiver) == {name: {"bridge"} for name in _NAMES},
                    timeout_s=120,
                    what="both clients by the bridge",
                )
                _wait_for_pushes(collector)
        for name in _NAMES:
            spans = _spans(collector.exports(), name)
            assert len(spans) >= 4
            gaps = [(end, start) for (_, end), (start, _) in itertools.pairwise(spans) if end != start]
            assert gaps == [], (name, spans)


def _wait_for_pushes(collector: Collector) -> None:
    """Wait for a further push of each client."""
    before = {name: len(_spans(collector.exports(), name)) for name in _NAMES}
    wait_until(
        lambda: all(len(_spans(collector.exports(), name)) > before[name] for name in _NAMES),
        timeout_s=120,
        what="a push of each client",
    )
