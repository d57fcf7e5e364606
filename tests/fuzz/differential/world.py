"""Starts a real broker and the gateway in front of it, and fills the broker with what is read."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.conformance.requests import record_batch
from tests.conformance.talk import Fate, Talk
from tests.fuzz.differential import schemas
from tests.fuzz.differential.codec import Tree, decode, encode
from tests.fuzz.differential.documented import Gateway
from tests.fuzz.differential.sides import (
    OWN_TOPIC,
    OWN_TOPIC_ID,
    SHARED_TOPIC_ID,
    SIDE,
    Path,
    Side,
    side_name,
)
from tests.fuzz.differential.sides import Listener as ListenerName
from tests.fuzz.differential.values import BIG_TOPIC, SHARED_TOPIC, WIDE_TOPIC
from tests.integration.gateway.support import GatewaySidecar
from tests.testbed import jvm
from tests.testbed.broker import NODE_ID, KafkaBroker, Listener
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import wait_until

#: How often the broker is asked before a difference counts, because some of its answers vary.
ATTEMPTS: Final = 4

_PATHS: Final[tuple[Path, ...]] = ("direct", "kept", "rewritten")
_WIDE: Final = 150
_BIG_BATCHES: Final = 30
_WITHIN_S: Final = 120.0
_MANY_ROUNDS: Final = 2_000
_HOST: Final = "gateway.differential.example"
_LISTENERS: Final[tuple[ListenerName, ...]] = ("CLIENT", "SASL")
_PRODUCE, _METADATA, _FIND_COORDINATOR, _DESCRIBE_GROUPS, _API_VERSIONS = 0, 3, 10, 15, 18
_INIT_PRODUCER_ID, _READ_SHARE_GROUP_STATE = 22, 84
#: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR and
#: CONCURRENT_TRANSACTIONS.
_NOT_YET: Final = frozenset({14, 15, 16, 51})

_BROKER_PROPERTIES: Final[Mapping[str, str]] = {
    "auto.create.topics.enable": "false",
    # On a busy machine the controller must not fence the only broker.
    "broker.session.timeout.ms": "600000",
    # What rounds leave behind ends soon.
    "group.min.session.timeout.ms": "1",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "5000",
    "transactional.id.expiration.ms": "60000",
    "connection.failed.authentication.delay.ms": "1",
}
_NO_LIMITS: Final = dict.fromkeys(
    (
        "connections",
        "new_connections_per_second",
        "new_instances_per_minute",
        "telemetry_requests_per_second",
        "core_ms_per_second",
        "rejected_bytes_per_minute",
        "accepted_bytes_per_minute",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A broker, and the gateway in front of it.

    Attributes:
        broker: The broker.
        sidecar: The gateway.
        gateways: The addresses that each of its rewriting listeners gives out.
        offered: The lowest and highest version that the broker offers, by API key.
        sides: The ways to the broker: by path and attempt.
    """

    broker: KafkaBroker
    sidecar: GatewaySidecar
    gateways: Mapping[ListenerName, Gateway]
    offered: Mapping[int, tuple[int, int]]
    sides: Mapping[tuple[Path, int], Side]

    def check_running(self) -> None:
        """Check that the broker and the gateway still run.

        Raises:
            ConnectionError: One has ended; the message has the tail of its log.
        """
        for name, server in (("broker", self.broker), ("gateway", self.sidecar)):
            if not server.running:
                raise ConnectionError(f"the {name} has ended:\n{server.log_tail()}")

    def problems(self) -> list[str]:
        """Return what the gateway still holds after its rounds, and which errors it shows."""
        wait_until(
            lambda: not self.sidecar.http.get("/v1/connections").json()["items"],
            timeout_s=_WITHIN_S,
            what="the end of all connections",
        )
        found = []
        if held := self.sidecar.value("held_bytes"):
            found.append(f"the gateway holds {held} bytes for no connection")
        for labels, count in self.sidecar.series("connections_closed_total").items():
            if dict(labels)["reason"] in ("internal_error", "held_bytes", "broker_protocol_error") and count:
                found.append(f"the gateway has closed {count:g} connections: {dict(labels)}")
        errors = [
            line for line in self.sidecar.logged_objects() if line.get("level") in ("error", "critical")
        ]
        return [*found, *(f"the gateway logs {line}" for line in errors)]


@contextlib.contextmanager
def world(rounds: int = 0) -> Iterator[World]:
    """Run a broker and a gateway.

    Args:
        rounds: How many rounds there will be about. For many, the broker takes its time to compile.

    Raises:
        StartError: One of them did not start.
        NotSetUpError: The testbed lacks Kafka.
    """
    listeners = (Listener(name="SASL", security_protocol="SASL_PLAINTEXT"),)
    flags = jvm.WARM if rounds > _MANY_ROUNDS else jvm.QUICK_START
    with KafkaBroker(listeners=listeners, properties=_BROKER_PROPERTIES, jvm_flags=flags) as broker:
        names = [(path, attempt) for path in _PATHS for attempt in range(ATTEMPTS if path == "direct" else 1)]
        side_names = {name: side_name(number) for number, name in enumerate(names)}
        topics = {name: OWN_TOPIC.replace(SIDE, text) for name, text in side_names.items()}
        for topic in (SHARED_TOPIC, BIG_TOPIC, *topics.values()):
            broker.create_topic(topic, partitions=2)
        broker.create_topic(WIDE_TOPIC, partitions=_WIDE)
        broker.restart()  # the leader epochs grow, so an epoch of 0 is fenced
        client = _Client(broker.client_port)
        offered = client.offered()
        client.load_coordinators()
        client.fill()
        ids = client.topic_ids()
        config, gateways = _gateway_config(broker)
        with GatewaySidecar(config) as sidecar:
            yield World(
                broker=broker,
                sidecar=sidecar,
                gateways=gateways,
                offered=offered,
                sides={
                    name: Side(
                        path=name[0],
                        name=text,
                        ports=_ports(name[0], broker, sidecar),
                        topic_ids={OWN_TOPIC_ID: ids[topics[name]], SHARED_TOPIC_ID: ids[SHARED_TOPIC]},
                    )
                    for name, text in side_names.items()
                },
            )


def _ports(path: Path, broker: KafkaBroker, sidecar: GatewaySidecar) -> dict[ListenerName, int]:
    if path == "direct":
        return {name: broker.port(name) for name in _LISTENERS}
    return {name: sidecar.port(f"{name}-{path}") for name in _LISTENERS}


def _gateway_config(broker: KafkaBroker) -> tuple[dict[str, Any], dict[ListenerName, Gateway]]:
    gateways = {
        name: Gateway(host=_HOST, first_port=free_port() - NODE_ID, nodes=NODE_ID + 1, port=9092)
        for name in _LISTENERS
    }
    listeners = []
    for name, gateway in gateways.items():
        common = {
            "upstream": f"{LOOPBACK}:{broker.port(name)}",
            "security_protocol": "SASL_PLAINTEXT" if name == "SASL" else "PLAINTEXT",
        }
        rewrite = {
            "host": gateway.host,
            "port": gateway.port,
            "first_port": gateway.first_port,
            "nodes": gateway.nodes,
        }
        listeners += [
            {"name": f"{name}-kept", "bind": f"{LOOPBACK}:{free_port()}", **common},
            {
                "name": f"{name}-rewritten",
                "bind": f"{LOOPBACK}:{free_port()}",
                "addresses": "rewrite",
                "rewrite": rewrite,
                **common,
            },
        ]
    config = {
        "broker": {"id": "auto"},
        "listeners": listeners,
        "gateway": {"relays": 1},
        "limits": {"source_address": _NO_LIMITS, "principal": _NO_LIMITS},
        "subscriptions": {"store": "sqlite", "path": "./subscriptions.db"},
        "rest": {"bind": f"{LOOPBACK}:{free_port()}"},
        "plugins": [{"type": "console"}],
    }
    return config, gateways


class _Client:
    """Asks the broker what rounds rely on."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._apis = schemas.load()

    def ask(self, key: int, version: int, body: Tree) -> Tree:
        """Return the answer to a request."""
        api = self._apis[key]
        flexible = version in api.flexible
        head = struct.pack(">hhih", key, version, 1, -1) + (b"\0" if flexible else b"")
        data = head + encode(api.request, body, version, flexible=flexible)
        with Talk(self._port) as talk:
            talk.send(struct.pack(">i", len(data)) + data)
            answer = talk.receive()
        if isinstance(answer, Fate):
            raise ConnectionError(f"{api.name} v{version}: {answer}")
        return decode(
            api.response,
            answer[5 if flexible and key != _API_VERSIONS else 4 :],
            version,
            flexible=flexible,
        )

    def offered(self) -> dict[int, tuple[int, int]]:
        keys = self.ask(_API_VERSIONS, 0, {})["ApiKeys"]
        return {entry["ApiKey"]: (entry["MinVersion"], entry["MaxVersion"]) for entry in keys}

    def load_coordinators(self) -> None:
        """Have all coordinators create and load their topics."""

        def loaded() -> bool:
            keys = ("absent", "absent", f"absent:{'A' * 22}:0")
            found = [
                self.ask(_FIND_COORDINATOR, 6, {"KeyType": kind, "CoordinatorKeys": [key]})["Coordinators"][0]
                for kind, key in enumerate(keys)
            ]
            (group,) = self.ask(_DESCRIBE_GROUPS, 0, {"Groups": ["absent"]})["Groups"]
            body = {"TransactionalId": "warm-up", "TransactionTimeoutMs": 1000}
            producer = self.ask(_INIT_PRODUCER_ID, 0, body)
            partition = {"Partition": 0, "LeaderEpoch": 0}
            topics = [{"TopicId": bytes(range(16)), "Partitions": [partition]}]
            body = {"GroupId": "absent", "Topics": topics}
            (share,) = self.ask(_READ_SHARE_GROUP_STATE, 0, body)["Results"]
            errors = {answer["ErrorCode"] for answer in (*found, group, producer, *share["Partitions"])}
            return not errors & _NOT_YET

        wait_until(loaded, timeout_s=_WITHIN_S, what="coordinators")

    def fill(self) -> None:
        for topic, batches, size in ((SHARED_TOPIC, 5, 50), (BIG_TOPIC, _BIG_BATCHES, 60_000)):
            for number in range(batches):
                records = record_batch(bytes([number]) * size)
                partition = {"Index": 0, "Records": records}
                body = {
                    "TransactionalId": None,
                    "Acks": -1,
                    "TimeoutMs": 30_000,
                    "TopicData": [{"Name": topic, "PartitionData": [partition]}],
                }
                (answer,) = self.ask(_PRODUCE, 9, body)["Responses"]
                (result,) = answer["PartitionResponses"]
                if result["ErrorCode"]:
                    raise ConnectionError(f"produce to {topic}: {result}")

    def topic_ids(self) -> dict[str, bytes]:
        body = {"Topics": None, "AllowAutoTopicCreation": False, "IncludeTopicAuthorizedOperations": False}
        topics = self.ask(_METADATA, 12, body)["Topics"]
        return {topic["Name"]: topic["TopicId"] for topic in topics}
