"""Real clients, sidecar and collector: metrics mean the same, and tell only what is allowed."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.integration.gateway.support import GatewaySidecar
from tests.testbed.broker import SASL_USERS, KafkaBroker
from tests.testbed.clients import Client, FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector, ExportedMetric
from tests.testbed.process import StartError, wait_until
from tests.testbed.security import Login, Security
from tests.testbed.sidecar import config_for

TOPIC = "meaning"
INTERVAL_MS = 1000
TIMEOUT_S = 300.0
KINDS = (JavaClient, LibrdkafkaClient, FranzClient)
KEY = b"sixteen bytes or more"
OVERFLOW = "kafka.client.telemetry.overflow"

#: What the words at the end of a metric's name say of its unit; the first that is there counts.
UNITS = (
    (r"compression\.rate(\.avg)?|ratio(\.avg)?", "1"),
    (r"byte(s\.consumed)?\.rate", "By/s"),
    (r"rate\.per\.hour", "1/h"),
    (r"rate", "1/s"),
    (r"(byte|bytes|bytes\.consumed|size(\.(avg|max))?|\.bytes)(\.total)?", "By"),
    (r"\.ns\.(avg|max|total)", "ns"),
    (r"time\.ns\.total|time\.ns", "ns"),
    (r"seconds\.ago", "s"),
    (r"(latency|time|time\.between\.poll)\.(avg|max|total)|time\.ms", "ms"),
)


@pytest.fixture(scope="module", autouse=True)
def topic(broker: KafkaBroker) -> None:
    broker.create_topic(TOPIC)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_bytes(KEY + b"\n")
    return file


@contextlib.contextmanager
def sidecar_with(
    broker: KafkaBroker, collector: Collector, telemetry: Mapping[str, Any], *plugins: Mapping[str, Any]
) -> Iterator[GatewaySidecar]:
    settings = config_for(broker, collector=collector)
    settings["telemetry"] = dict(telemetry)
    settings["plugins"] += plugins
    with GatewaySidecar(settings) as sidecar:
        sidecar.put_subscription("all", ["*"], INTERVAL_MS)
        yield sidecar


def reload(sidecar: GatewaySidecar, **telemetry: Any) -> None:
    """Have other settings taken over."""
    event = "configuration reloaded"
    before = len(sidecar.logged(event))
    assert isinstance(sidecar.config, dict)
    sidecar.config["telemetry"] = telemetry
    sidecar.reload()
    wait_until(lambda: len(sidecar.logged(event)) > before, timeout_s=TIMEOUT_S, what="a re-read")


def of_client(exports: Sequence[ExportedMetric], client_id: str) -> list[ExportedMetric]:
    return [metric for metric in exports if metric.resource.get("client_id") == client_id]


def wait_for(
    collector: Collector, client_id: str, found: Callable[[list[ExportedMetric]], bool], what: str
) -> list[ExportedMetric]:
    exports = collector.wait_for(
        lambda exports: found(of_client(exports, client_id)), timeout_s=TIMEOUT_S, what=f"{client_id}: {what}"
    )
    return of_client(exports, client_id)


def roles(metrics: Sequence[ExportedMetric]) -> set[tuple[Any, Any]]:
    """The nodes that points are of, with their roles."""
    attributes = [point.attributes for metric in metrics for point in metric.points]
    return {
        (attribute["node_id"], attribute.get("node_role"))
        for attribute in attributes
        if "node_id" in attribute
    }


def hashed(text: str) -> str:
    return hmac.new(KEY, text.encode(), hashlib.sha256).hexdigest()[:16]


def test_every_client_is_told_alike(broker: KafkaBroker, collector: Collector) -> None:
    node = str(broker.node_id)
    with contextlib.ExitStack() as stack:
        sidecar = stack.enter_context(sidecar_with(broker, collector, {}))
        clients = [
            stack.enter_context(kind(mode, bootstrap=sidecar.bootstrap(), topic=TOPIC))
            for kind in KINDS
            for mode in Mode
        ]
        for client in clients:
            # Others than Java tell of a node as long as they talk to it, and soon not to the
            # bootstrap node.
            surely = {(node, "broker")} | ({("-1", "bootstrap")} if client.language == "java" else set())
            exports = wait_for(
                collector,
                client.client_id,
                lambda metrics, surely=surely: surely <= roles(metrics),  # type: ignore[misc]
                "its nodes",
            )
            assert roles(exports) <= {(node, "broker"), ("-1", "bootstrap"), (node, "coordinator")}
            for metric in exports:
                assert metric.unit or metric.name.endswith("preferred.read.replica"), metric.name
                right = next((unit for words, unit in UNITS if re.search(f"(?:{words})$", metric.name)), None)
                assert right in (None, metric.unit), metric.name
                assert "member_id" not in metric.resource
                for point in metric.points:
                    assert not {"node.id", "member_id"} & point.attributes.keys()
        wait_for(
            collector, "java-consumer", lambda metrics: (node, "coordinator") in roles(metrics), "coordinator"
        )
        for consumer in ("java-consumer", "librdkafka-consumer"):
            wait_for(
                collector,
                consumer,
                lambda metrics: any(metric.resource.get("group_member_id") for metric in metrics),
                "its group_member_id",
            )
        assert sidecar.value("unnormalized_pushes_total") == 0


@pytest.mark.full
def test_wrong_values_are_marked_or_dropped_by_version(broker: KafkaBroker, collector: Collector) -> None:
    quirks = [{"client_software_name": "kgo", "bad_metrics": [r".*\.avg"], "reason": "for the test"}]
    with sidecar_with(broker, collector, {"quirks": quirks}) as sidecar:
        bootstrap = sidecar.bootstrap()
        with (
            FranzClient(Mode.PRODUCER, bootstrap=bootstrap, topic=TOPIC) as franz,
            LibrdkafkaClient(Mode.PRODUCER, bootstrap=bootstrap, topic=TOPIC) as librdkafka,
        ):
            exports = wait_for(collector, franz.client_id, bool, "a push")
            assert not [metric for metric in exports if metric.name.endswith(".avg")]
            wait_for(
                collector,
                librdkafka.client_id,
                lambda metrics: any(metric.name.endswith(".avg") for metric in metrics),
                "averages of the other client",
            )
            assert sidecar.value("dropped_points_total", reason="known_bad") > 0
            collector.forget()
            reload(sidecar, quirks=quirks, normalization={"known_bad_values": "mark"})
            wait_for(
                collector,
                franz.client_id,
                lambda metrics: any(metric.name.endswith(".avg") for metric in metrics),
                "averages again",
            )
            for metric in collector.exports():
                mark = metric.name.endswith(".avg") and metric.resource["client_id"] == franz.client_id
                assert all(point.attributes.get("known_bad", False) is mark for point in metric.points)
            assert sidecar.value("marked_points_total") > 0


@pytest.mark.full
def test_what_is_over_a_budget_is_one_series_and_the_rest_stays_the_same(
    broker: KafkaBroker, collector: Collector
) -> None:
    most = 25
    with (
        sidecar_with(broker, collector, {"series": {"max_per_client": most}}) as sidecar,
        JavaClient(
            Mode.CONSUMER, bootstrap=sidecar.bootstrap(), topic=TOPIC, client_id="pod-7f9c-x2"
        ) as java,
    ):
        wait_for(
            collector,
            java.client_id,
            lambda metrics: sum(metric.name == OVERFLOW for metric in metrics) >= 6,
            "overflow series",
        )
        (client,) = sidecar.http.get("/v1/series").json()["clients"]
        assert client["client_id"] == java.client_id
        assert (client["series"], client["overflowed"] > 0) == (most, True)
        pushes: list[set[tuple[str, str]]] = [set()]
        for metric in of_client(collector.exports(), java.client_id):
            if metric.name == OVERFLOW:
                (point,) = metric.points
                assert point.attributes == {"otel.metric.overflow": True}
                assert point.value
                pushes.append(set())
            else:
                pushes[-1] |= {
                    (metric.name, str(sorted(point.attributes.items()))) for point in metric.points
                }
        assert {len(push) for push in pushes[:-1]} == {most}
        # A required metric takes a place in those pushes that have a measurement of it.
        last = pushes[-4:-1]
        assert len(set.intersection(*last)) >= most - 4
        required = "org.apache.kafka.consumer.poll.idle.ratio.avg"
        assert any(name == required for name, _ in pushes[-2])

        # Client ids of pods, as one.
        rules = [{"pattern": r"(.*)-[0-9a-f]+-[a-z0-9]+", "replacement": r"\1"}]
        reload(sidecar, series={"client_id_folding": rules})
        wait_for(
            collector,
            "pod",
            lambda metrics: all(m.name != OVERFLOW for m in metrics) and bool(metrics),
            "pod",
        )
        report = sidecar.http.get("/v1/series").json()
        assert [item["client_id"] for item in report["client_ids"]] == ["pod"]
        assert [item["client_id"] for item in report["clients"]] == [java.client_id]
        assert report["clients"][0]["overflowed"] == 0


@pytest.mark.full
def test_the_instances_of_one_principal_share_its_budget(broker: KafkaBroker, collector: Collector) -> None:
    telemetry = {"series": {"max_per_principal": 30}}
    alice = Security(login=Login(mechanism="PLAIN", user="alice", password=SASL_USERS["alice"]))
    bob = Security(login=Login(mechanism="PLAIN", user="bob", password=SASL_USERS["bob"]))
    with contextlib.ExitStack() as stack:
        sidecar = stack.enter_context(sidecar_with(broker, collector, telemetry))

        def producer(name: str, who: Security) -> Client:
            return stack.enter_context(
                LibrdkafkaClient(
                    Mode.PRODUCER,
                    bootstrap=sidecar.bootstrap("SASL"),
                    topic=TOPIC,
                    client_id=name,
                    security=who,
                )
            )

        for number in range(5):
            producer(f"greedy-{number}", alice)
        report: dict[str, Any] = {}

        def alice_is_over() -> bool:
            report.update(sidecar.http.get("/v1/series").json())
            worst = report["principals"][:1]
            return bool(worst) and worst[0]["instances"] == 5 and worst[0]["overflowed"] > 0

        wait_until(alice_is_over, timeout_s=TIMEOUT_S, what="alice to be over her budget")
        producer("modest", bob)
        wait_for(collector, "modest", bool, "a push")
        assert report["principals"][0]["principal"] == "User:alice"
        assert report["principals"][0]["series"] <= 30
        assert all(metric.name != OVERFLOW for metric in of_client(collector.exports(), "modest"))


@pytest.mark.full
def test_pseudonyms_are_the_same_on_every_sidecar_and_for_every_plugin(
    broker: KafkaBroker, collector: Collector, key_file: Path
) -> None:
    where = f"client-telemetry-{uuid.uuid4().hex[:8]}"
    broker.create_topic(where)
    records = {"type": "kafka_topic", "bootstrap_servers": broker.internal_bootstrap, "topic": where}
    telemetry = {
        "privacy": {
            "key": {"file": str(key_file)},
            "pseudonymize": ["principal", "client_source_address", "client_id"],
            "rules": [
                {"attribute": "topic|group_id", "action": "hash"},
                {"attribute": "client_source_port", "action": "drop"},
                {"metric": r".*\.ratio", "action": "drop"},
            ],
        }
    }
    alice = Security(login=Login(mechanism="PLAIN", user="alice", password=SASL_USERS["alice"]))
    expected = {
        "client_id": hashed("secret-client"),
        "principal": f"User:{hashed('alice')}",
        "client_source_address": hashed("127.0.0.1"),
    }
    for kind in (JavaClient, LibrdkafkaClient):  # each meets a sidecar of its own
        collector.forget()
        with sidecar_with(broker, collector, telemetry, records) as sidecar:
            with kind(
                Mode.CONSUMER,
                bootstrap=sidecar.bootstrap("SASL"),
                topic=TOPIC,
                client_id="secret-client",
                security=alice,
            ):
                exports = wait_for(
                    collector,
                    expected["client_id"],
                    lambda metrics: any("group_member_id" in metric.resource for metric in metrics),
                    "a member's push",
                )
                (shown,) = sidecar.clients()
                assert shown["client_id"] == "secret-client"  # whoever may ask has to find them
            for metric in exports:
                assert expected.items() <= metric.resource.items()
                assert "client_source_port" not in metric.resource
                assert not metric.name.endswith(".ratio")
                assert {point.attributes.get("topic", hashed(TOPIC)) for point in metric.points} == {
                    hashed(TOPIC)
                }
            assert sidecar.value("private_attributes_total", action="hash") > 0
            said = "".join(map(repr, exports))
            assert "secret-client" not in said
            assert "alice" not in said
    reader = Consumer(
        {"bootstrap.servers": broker.internal_bootstrap, "group.id": where, "auto.offset.reset": "earliest"}
    )
    try:
        reader.subscribe([where])
        record = reader.poll(TIMEOUT_S)
        assert record is not None
        assert record.error() is None
        headers = dict(record.headers() or ())
        assert {label: value.encode() for label, value in expected.items()}.items() <= headers.items()
        assert headers["client_source_port"] == b"0"
        assert b"secret-client" not in bytes(record.value() or b"")
    finally:
        reader.close()


@pytest.mark.full
def test_without_its_key_nothing_starts_and_nothing_changes(
    broker: KafkaBroker, collector: Collector, key_file: Path
) -> None:
    privacy = {"key": {"file": str(key_file)}, "pseudonymize": ["client_id"]}
    key_file.write_bytes(b"short")
    with (
        pytest.raises(StartError, match="has 5 bytes"),
        sidecar_with(broker, collector, {"privacy": privacy}),
    ):
        pass
    key_file.write_bytes(KEY)
    with (
        sidecar_with(broker, collector, {"privacy": privacy}) as sidecar,
        LibrdkafkaClient(Mode.PRODUCER, bootstrap=sidecar.bootstrap(), topic=TOPIC, client_id="who"),
    ):
        wait_for(collector, hashed("who"), bool, "a push")
        key_file.unlink()
        sidecar.reload()
        sidecar.wait_for_log("telemetry.privacy.key")
        collector.forget()
        wait_for(collector, hashed("who"), bool, "a push under the old key")
        # Another key counts from SIGHUP on; and none of it is in the log.
        key_file.write_bytes(b"another key of the hashes")
        reload(sidecar, privacy=privacy)
        other = hmac.new(b"another key of the hashes", b"who", hashlib.sha256).hexdigest()[:16]
        wait_for(collector, other, bool, "a push under the new key")
        assert "another key" not in sidecar.log_text()
        reload(sidecar)
        wait_for(collector, "who", bool, "a push without pseudonyms")
