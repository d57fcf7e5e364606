"""Two brokers move from gateway to bridge or back, one after the other, while clients push."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import pytest

from tests.integration.bridge.support import properties
from tests.testbed.broker import KafkaBroker, Listener
from tests.testbed.clients import JavaClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector, ExportedMetric
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import wait_until
from tests.testbed.sidecar import Sidecar

pytestmark = pytest.mark.full

_NAMES: Final = ("first", "second")
#: Longer than a broker needs to stop, so that no push is on its way then.
_INTERVAL_MS: Final = 4_000
_SENT: Final = "org.apache.kafka.producer.record.send.total"

Way: TypeAlias = Literal["gateway", "bridge"]


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two brokers, each with a gateway's port and what its bridge needs.

    Attributes:
        gates: The gateway's port of each broker.
        bridge_port: Where the receiver takes bridges.
        settings: A broker's properties for its bridge.
        jar: The bridge.
    """

    gates: tuple[int, int]
    bridge_port: int
    settings: Mapping[str, str]
    jar: Path

    def broker(self, way: Way, index: int, controller: KafkaBroker | None) -> KafkaBroker:
        """Return a broker whose clients come by a way."""
        gated = way == "gateway"
        return KafkaBroker(
            node_id=index + 1,
            controller=controller,
            plugins=[self.jar],
            advertised_client_port=self.gates[index] if gated else None,
            properties={} if gated else self.settings,
        )

    def move(self, broker: KafkaBroker, way: Way) -> None:
        """Restart a broker so that its clients come by the other way; its bridge stays."""
        gate = f"CLIENT://{LOOPBACK}:{self.gates[broker.node_id - 1]}"
        own = f"CLIENT://{broker.bootstrap}"
        told, then = (gate, own) if way == "bridge" else (own, gate)

        def changed(lines: dict[str, str]) -> dict[str, str]:
            addresses = lines["advertised.listeners"].split(",")
            assert told in addresses
            moved = ",".join(then if entry == told else entry for entry in addresses)
            return {**lines, **self.settings, "advertised.listeners": moved}

        _restart(broker, changed)

    def remove_bridge(self, broker: KafkaBroker) -> None:
        """Restart a broker without its bridge."""
        _restart(broker, lambda lines: {k: v for k, v in lines.items() if k not in self.settings})

    def receiver(self, brokers: Sequence[KafkaBroker], token: Path, collector: Collector) -> Any:
        """Return the configuration of one receiver: the gateway of both, and for their bridges."""
        servers = ",".join(broker.internal_bootstrap for broker in brokers)
        return {
            "listeners": [
                {
                    "name": f"CLIENT-{broker.node_id}",
                    "bind": f"{LOOPBACK}:{gate}",
                    "upstream": broker.bootstrap,
                    "broker": {"id": broker.node_id},
                }
                for broker, gate in zip(brokers, self.gates, strict=True)
            ],
            "bridge": {"bind": f"{LOOPBACK}:{self.bridge_port}", "token": {"file": str(token)}},
            "subscriptions": {"store": "kafka", "kafka": {"bootstrap_servers": servers}},
            "rest": {"bind": f"{LOOPBACK}:{free_port()}"},
            "plugins": [{"type": "otlp", "endpoint": collector.grpc_endpoint, "protocol": "grpc"}],
        }


def _restart(broker: KafkaBroker, changed: Callable[[dict[str, str]], dict[str, str]]) -> None:
    """Restart a broker with other properties."""
    broker.stop()
    file = broker.data.parent / "server.properties"
    lines = dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)
    file.write_text("".join(f"{key}={value}\n" for key, value in changed(lines).items()))
    broker.start()


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


@pytest.mark.parametrize(("before", "after"), [("gateway", "bridge"), ("bridge", "gateway")])
def test_no_push_is_missing_or_counts_twice(before: Way, after: Way, jar: Path, token_file: Path) -> None:
    port = free_port()
    pair = _Pair((free_port(), free_port()), port, properties(token_file, port), jar)
    with pair.broker(before, 0, None) as first, Collector() as collector:
        with (
            pair.broker(before, 1, first) as second,
            Sidecar(pair.receiver((first, second), token_file, collector)) as receiver,
        ):
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
                _wait_for_ways(receiver, before)
                for broker in (second, first):
                    _wait_for_pushes(collector)
                    pair.move(broker, after)
                _wait_for_ways(receiver, after)
                _wait_for_pushes(collector)
                if after == "gateway":
                    for broker in (second, first):
                        pair.remove_bridge(broker)
                        _wait_for_pushes(collector)
        for name in _NAMES:
            spans = _spans(collector.exports(), name)
            assert len(spans) >= 4
            gaps = [(end, start) for (_, end), (start, _) in itertools.pairwise(spans) if end != start]
            assert gaps == [], (name, spans)


def _wait_for_ways(receiver: Sidecar, way: Way) -> None:
    """Wait until both clients push by one way only."""
    wait_until(
        lambda: _ways(receiver) == {name: {way} for name in _NAMES},
        timeout_s=120,
        what=f"both clients by the {way}",
    )


def _wait_for_pushes(collector: Collector) -> None:
    """Wait for a further push of each client."""
    before = {name: len(_spans(collector.exports(), name)) for name in _NAMES}
    wait_until(
        lambda: all(len(_spans(collector.exports(), name)) > before[name] for name in _NAMES),
        timeout_s=120,
        what="a push of each client",
    )


def test_a_java_client_that_meets_a_broker_without_telemetry_pushes_no_more(
    jar: Path, token_file: Path
) -> None:
    """So a bridge is removed when no client comes by it any more."""
    port = free_port()
    config = {
        "bridge": {"bind": f"{LOOPBACK}:{port}", "token": {"file": str(token_file)}},
        "subscriptions": {"store": "sqlite", "path": "./subscriptions.db"},
        "rest": {"bind": f"{LOOPBACK}:{free_port()}"},
        "plugins": [{"type": "console"}],
    }
    with (
        KafkaBroker(
            plugins=[jar], listeners=[Listener(name="DIRECT")], properties=properties(token_file, port)
        ) as broker,
        Sidecar(config) as receiver,
    ):
        broker.alter_client_metrics("all", ["*"], 1_000)
        broker.create_topic("moved")
        java, other = (
            kind(Mode.PRODUCER, bootstrap=broker.bootstrap, topic="moved", client_id=name)
            for kind, name in ((JavaClient, "java"), (LibrdkafkaClient, "librdkafka"))
        )

        def pushes(client_id: str) -> int:
            clients = receiver.http.get("/v1/clients").json()["items"]
            return sum(client["pushes"] for client in clients if client["client_id"] == client_id)

        def has_pushed(client_id: str, count: int) -> None:
            wait_until(lambda: pushes(client_id) >= count, timeout_s=120, what=f"{count} of {client_id}")

        with java, other:
            has_pushed("java", 1)
            bridge: dict[str, str] = {}

            def without(lines: dict[str, str]) -> dict[str, str]:
                bridge.update((key, lines[key]) for key in properties(token_file, port))
                return {key: value for key, value in lines.items() if key not in bridge}

            _restart(broker, without)
            produced = java.records
            wait_until(lambda: java.records > produced, timeout_s=120, what="a record to the broker alone")
            _restart(broker, lambda lines: lines | bridge)
            before = pushes("java")
            has_pushed("librdkafka", pushes("librdkafka") + 5)
            assert pushes("java") == before
