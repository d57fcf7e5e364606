"""Real clients through the real sidecar in front of a real broker, to a real collector."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest
from confluent_kafka import libversion

from tests.integration.gateway.support import GatewaySidecar, Raw
from tests.testbed import parts
from tests.testbed.broker import SASL_USERS, KafkaBroker
from tests.testbed.clients import Client, FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector, ExportedMetric
from tests.testbed.ports import LOOPBACK
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import framed
from tests.testbed.security import Login, Mechanism, Security
from tests.testbed.sidecar import config_for

TOPIC = "fleet"
INTERVAL_MS = 1000
TIMEOUT_S = 300.0

#: librdkafka counts microseconds in 32 bits: above 1,431,655 ms (with its jitter) it asks without a
#: pause.
LONG_INTERVAL_MS = 1_200_000

FRAMES = Path(__file__).parents[1] / "data" / "frames"

SOFTWARE = {
    "java": ("apache-kafka-java", parts.KAFKA_VERSION),
    "librdkafka": ("confluent-kafka-python", f"{version('confluent-kafka')}-rdkafka-{libversion()[0]}"),
    "franz-go": ("kgo", f"v{parts.FRANZ_VERSION}"),
}

#: A metric that each client always has.
KNOWN = {
    ("java", Mode.PRODUCER): "org.apache.kafka.producer.connection.creation.total",
    ("java", Mode.CONSUMER): "org.apache.kafka.consumer.connection.creation.total",
    ("librdkafka", Mode.PRODUCER): "org.apache.kafka.producer.connection.creation.total",
    ("librdkafka", Mode.CONSUMER): "org.apache.kafka.consumer.connection.creation.total",
    ("franz-go", Mode.PRODUCER): "org.apache.kafka.producer.connection.creation.total",
    ("franz-go", Mode.CONSUMER): "org.apache.kafka.consumer.connection.creation.total",
}
KINDS = (JavaClient, LibrdkafkaClient, FranzClient)
WHO = [f"{language}-{mode}" for language, mode in KNOWN]


@pytest.fixture(scope="module")
def gateway(broker: KafkaBroker, shared_collector: Collector) -> Iterator[GatewaySidecar]:
    shared_collector.forget()
    settings = config_for(broker, collector=shared_collector)
    with GatewaySidecar(settings) as sidecar:
        yield sidecar


@pytest.fixture(scope="module")
def fleet(gateway: GatewaySidecar, broker: KafkaBroker) -> Iterator[dict[str, Client]]:
    """A producer and a consumer of every library, by client id."""
    broker.create_topic(TOPIC)
    # A client that finds no subscription at its start asks again after a minute only.
    gateway.put_subscription(TOPIC, ["*"], INTERVAL_MS)
    with contextlib.ExitStack() as running:
        clients = [
            running.enter_context(kind(mode, bootstrap=gateway.bootstrap(), topic=TOPIC))
            for mode in Mode
            for kind in KINDS
        ]
        yield {client.client_id: client for client in clients}


@pytest.fixture
def everything(gateway: GatewaySidecar) -> None:
    gateway.put_subscription(TOPIC, ["*"], INTERVAL_MS)


def exports_of(exports: Sequence[ExportedMetric], client_id: str) -> list[ExportedMetric]:
    return [export for export in exports if export.resource.get("client_id") == client_id]


def ports_of(pid: int, to_port: int) -> set[int]:
    """The local ports of a process's TCP connections to a port, as the kernel knows them."""
    sockets = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            sockets.add(str(link.readlink()))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, remote, *_, inode = line.split()[:10]
            if int(remote.rsplit(":", 1)[1], 16) == to_port and f"socket:[{inode}]" in sockets:
                found.add(int(local.rsplit(":", 1)[1], 16))
    return found


def test_every_client_works_through_the_sidecar(fleet: dict[str, Client]) -> None:
    for client in fleet.values():
        client.wait_for_records(10)
        assert client.errors == []


@pytest.mark.parametrize("who", WHO)
@pytest.mark.usefixtures("everything")
def test_a_clients_metrics_arrive_with_every_label(
    gateway: GatewaySidecar,
    broker: KafkaBroker,
    shared_collector: Collector,
    fleet: dict[str, Client],
    who: str,
) -> None:
    client = fleet[who]
    known = KNOWN[client.language, client.mode]
    exports = shared_collector.wait_for(
        lambda exports: any(export.name == known for export in exports_of(exports, who)),
        timeout_s=TIMEOUT_S,
        what=f"{known} of {who}",
    )
    mine = exports_of(exports, who)
    (state,) = [item for item in gateway.clients() if item["client_id"] == who]
    software_name, software_version = SOFTWARE[client.language]
    own_ports = ports_of(client.pid, gateway.port())
    assert {int(export.resource["client_source_port"]) for export in mine} <= own_ports
    assert state["source_port"] in own_ports
    for resource in (export.resource for export in mine):
        assert (
            resource.items()
            >= {
                "client_id": who,
                "client_instance_id": state["client_instance_id"],
                "client_software_name": software_name,
                "client_software_version": software_version,
                "client_source_address": LOOPBACK,
                "principal": "User:ANONYMOUS",
                "broker_id": str(broker.node_id),
                "cluster_id": broker.cluster_id,
                "listener": "CLIENT",
                "security_protocol": "PLAINTEXT",
            }.items()
        )
        if client.mode is Mode.CONSUMER and client.language != "franz-go":
            assert resource["group_id"] == f"{TOPIC}-{who}"
    if client.language != "franz-go":  # which tells nobody
        wait_until(lambda: client.client_instance_id is not None, timeout_s=TIMEOUT_S, what="its id")
        assert client.client_instance_id == state["client_instance_id"]
    assert state["subscriptions"] == [TOPIC]
    assert state["last_error"] == "NONE"


@pytest.mark.usefixtures("everything")
def test_the_registry_knows_every_client(gateway: GatewaySidecar, fleet: dict[str, Client]) -> None:
    for client in fleet.values():
        client.wait_for_records(1)
        shown = [
            connection for connection in gateway.connections() if connection["client_id"] == client.client_id
        ]
        assert {(item["client_software_name"], item["client_software_version"]) for item in shown} == {
            SOFTWARE[client.language]
        }
        assert {item["source_port"] for item in shown} <= ports_of(client.pid, gateway.port())
    gauge = gateway.series("connections")
    for name, its_version in SOFTWARE.values():
        labels = {"listener": "CLIENT", "client_software_name": name, "client_software_version": its_version}
        assert gauge[tuple(sorted(labels.items()))] >= 2


@pytest.mark.usefixtures("everything")
def test_a_changed_subscription_takes_effect_and_a_deleted_one_stops(
    gateway: GatewaySidecar, shared_collector: Collector, fleet: dict[str, Client]
) -> None:
    prefix = "org.apache.kafka.producer.node.request.latency."
    producers = [who for who in WHO if who.endswith("producer")]

    def requested(who: str) -> list[str]:
        (metrics,) = [
            client["requested_metrics"] for client in gateway.clients() if client["client_id"] == who
        ]
        return list(metrics)

    def all_request(wanted: list[str]) -> None:
        wait_until(
            lambda: all(requested(who) == wanted for who in fleet),
            timeout_s=TIMEOUT_S,
            what=f"every client to be asked for {wanted}",
        )

    all_request(["*"])
    gateway.put_subscription(TOPIC, [prefix], INTERVAL_MS)
    all_request([prefix])
    shared_collector.forget()
    exports = shared_collector.wait_for(
        lambda exports: {who for who in producers if exports_of(exports, who)} == set(producers),
        timeout_s=TIMEOUT_S,
        what="the producers' metrics under the changed subscription",
    )
    assert all(export.name.startswith(prefix) for export in exports)

    gateway.http.delete(f"/v1/subscriptions/{TOPIC}").raise_for_status()
    all_request([])
    time.sleep(0.5)  # what was pushed before is on its way
    shared_collector.forget()
    time.sleep(2 * INTERVAL_MS / 1000)
    assert shared_collector.exports() == ()
    for client in fleet.values():
        assert client.errors == []


def close_subscribed_producers(
    gateway: GatewaySidecar, collector: Collector, kinds: Iterable[type[Client]], prefix: str
) -> dict[type[Client], str]:
    """Run a producer of each kind until it has its subscription, and close all; return the ids."""
    with contextlib.ExitStack() as running:
        clients = {
            kind: running.enter_context(
                kind(
                    Mode.PRODUCER,
                    bootstrap=gateway.bootstrap(),
                    topic=TOPIC,
                    client_id=f"{prefix}-{kind.language}",
                    rate=500,
                )
            )
            for kind in kinds
        }
        for client in clients.values():
            client.wait_for_records(5)
            wait_until(
                lambda client=client: client.client_id in {item["client_id"] for item in gateway.clients()},  # type: ignore[misc]
                timeout_s=TIMEOUT_S,
                what="its subscription",
            )
        collector.forget()
        for client in clients.values():
            client.stop()
    return {kind: client.client_id for kind, client in clients.items()}


def accepted_pushes(gateway: GatewaySidecar, kind: type[Client]) -> float:
    software_name, _ = SOFTWARE[kind.language]
    return gateway.value("pushes_total", outcome="NONE", client_software_name=software_name)


@pytest.mark.full
def test_the_last_push_of_a_client_that_closes_arrives(
    gateway: GatewaySidecar, shared_collector: Collector
) -> None:
    # An interval so long that what arrives when a client closes can only be its terminating push.
    gateway.put_subscription("closing", ["*"], LONG_INTERVAL_MS, {"client_id": "closing-.*"})
    left: set[type[Client]] = set(KINDS)
    # A Java producer sends a terminating push only if a request is in flight when it closes. At
    # this rate that is likely, so some attempts are enough.
    for attempt in range(5):
        before = {kind: accepted_pushes(gateway, kind) for kind in left}
        closed = close_subscribed_producers(gateway, shared_collector, left, f"closing-{attempt}")
        wait_until(
            lambda: not any(client["client_id"].startswith("closing-") for client in gateway.clients()),
            timeout_s=TIMEOUT_S,
            what="the instances to be forgotten with their connections",
        )
        for kind, count in before.items():
            if accepted_pushes(gateway, kind) > count:
                shared_collector.wait_for(
                    lambda exports, who=closed[kind]: bool(exports_of(exports, who)),  # type: ignore[misc]
                    timeout_s=TIMEOUT_S,
                    what=f"the last push of {closed[kind]}",
                )
                left.remove(kind)
        if not left:
            break
    assert not left
    gateway.http.delete("/v1/subscriptions/closing").raise_for_status()


@pytest.mark.parametrize("kind", [LibrdkafkaClient, FranzClient])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_clients_that_log_in_push(
    gateway: GatewaySidecar, shared_collector: Collector, kind: type[Client], mechanism: Mechanism
) -> None:
    client_id = f"sasl-{kind.language}-{mechanism}"
    gateway.put_subscription("sasl", ["*"], INTERVAL_MS, {"client_id": "sasl-.*"})
    with kind(
        Mode.PRODUCER,
        bootstrap=gateway.bootstrap("SASL"),
        topic=TOPIC,
        client_id=client_id,
        security=Security(login=Login(mechanism=mechanism, user="alice", password=SASL_USERS["alice"])),
    ) as client:
        client.wait_for_records(5)
        exports = shared_collector.wait_for(
            lambda exports: bool(exports_of(exports, client_id)), timeout_s=TIMEOUT_S, what=f"{client_id}'s"
        )
        for export in exports_of(exports, client_id):
            assert export.resource["listener"] == "SASL"
            assert export.resource["security_protocol"] == "SASL_PLAINTEXT"
            assert export.resource["client_software_name"] == SOFTWARE[kind.language][0]


@pytest.mark.parametrize(
    "file",
    [
        "aiokafka-av-0001-c1-req-k18-v0.bin",
        "kafkajs-av-0001-c1-req-k18-v2.bin",
        "kcat-av-0001-c1-req-k18-v3.bin",
        "java44-producer-star-0001-c1-req-k18-v5.bin",
    ],
)
def test_captured_requests_get_the_brokers_keys_and_the_telemetry_keys(
    gateway: GatewaySidecar, broker: KafkaBroker, file: str
) -> None:
    """Captured ApiVersions requests get the broker's keys and the two telemetry keys."""
    request = (FRAMES / file).read_bytes()
    asked = int.from_bytes(request[2:4], "big")
    with Raw(broker.client_port) as direct, Raw(gateway.port()) as through:
        theirs = direct.exchange(framed(request))
        ours = through.exchange(framed(request))
    assert ours[:6] == theirs[:6]
    keys, our_keys = _keys(theirs, asked), _keys(ours, asked)
    assert {71, 72}.isdisjoint(keys)
    assert our_keys == keys | {18: (0, 5), 71: (0, 1), 72: (0, 1)}


def _keys(answer: bytes, asked: int) -> dict[int, tuple[int, int]]:
    size = 7 if asked >= 3 else 6
    count, start = (answer[6] - 1, 7) if asked >= 3 else (struct.unpack_from(">i", answer, 6)[0], 10)
    entries = (struct.unpack_from(">hhh", answer, start + size * number) for number in range(count))
    return {key: (least, greatest) for key, least, greatest in entries}
