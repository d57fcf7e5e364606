"""The kafka_topic plugin with real brokers: the topic has what clients pushed."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import threading
import uuid
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # its stubs don't export what they import
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from structlog.testing import capture_logs

from plugins.kafka_topic import KafkaTopicReceiver
from receiver.host.discovery import load_plugins
from receiver.host.host import PluginHost
from receiver.plugin import BatchRefusedError, Push, RetryableError
from tests.testbed.broker import SASL_USERS, KafkaBroker, Listener
from tests.testbed.certificates import CertificateAuthority, CertificateFiles
from tests.testbed.ports import free_port
from tests.testbed.process import wait_until
from tests.testbed.security import Login, unsecured_token
from tests.unit.host.support import push, wait_for
from tests.unit.plugins.support import client_push

OPEN_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Connections without a login (the testbed's) may do everything. Others need ACLs.
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    """The broker's certificate, beside one of the same authority for the sidecar."""
    folder = tmp_path_factory.mktemp("certificate")
    authority = CertificateAuthority()
    authority.issue(common_name="sidecar", client=True).write(folder, "client")
    return authority.issue().write(folder)


@pytest.fixture(scope="module")
def cluster(certificate: CertificateFiles) -> Iterator[KafkaBroker]:
    """A broker with authorization and a listener that requires TLS and a login."""
    secure = Listener(name="SECURE", security_protocol="SASL_SSL", client_auth="required")
    with KafkaBroker(listeners=[secure], certificate=certificate, properties=OPEN_AUTHORIZER) as started:
        yield started


@pytest.fixture
def topic() -> str:
    return f"client-telemetry-{uuid.uuid4().hex[:8]}"


def plugin(broker: KafkaBroker, topic: str, **settings: Any) -> KafkaTopicReceiver:
    entry = {"type": "kafka_topic", "bootstrap_servers": broker.bootstrap, "topic": topic}
    # A busy machine may need minutes for what takes a second.
    (hosted,) = load_plugins([{**entry, "timeout_ms": 60_000, **settings}])
    assert isinstance(hosted.plugin, KafkaTopicReceiver)
    return hosted.plugin


@contextmanager
def started(broker: KafkaBroker, topic: str, **settings: Any) -> Iterator[KafkaTopicReceiver]:
    one = plugin(broker, topic, **settings)
    one.start()
    try:
        yield one
    finally:
        one.stop()


def secure(broker: KafkaBroker, certificate: CertificateFiles, password: str = "") -> dict[str, Any]:
    return {
        "bootstrap_servers": f"localhost:{broker.port('SECURE')}",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "alice",
        "sasl_password": password or SASL_USERS["alice"],
        "tls": {
            "ca_file": str(certificate.ca),
            "cert_file": str(certificate.ca.with_name("client.crt")),
            "key_file": str(certificate.ca.with_name("client.key")),
        },
    }


def pushes(count: int, start: int = 0, *, instances: int = 1, data: bytes = b"\x0a\x00") -> list[Push]:
    return [of_instance(push(n, data=data), n % instances) for n in range(start, start + count)]


def of_instance(one: Push, instance: int) -> Push:
    payload = dataclasses.replace(one.payload, client_instance_id=f"{instance:022d}")
    return dataclasses.replace(one, payload=payload)


def records(broker: KafkaBroker, topic: str) -> list[Message]:
    """Return all records of a topic, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.internal_bootstrap,
            "group.id": "none",
            "enable.metrics.push": False,
            # A partition whose leader has just begun may refuse the first fetch.
            "auto.offset.reset": "earliest",
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=120).topics[topic].partitions
        found: list[Message] = []
        for number in sorted(partitions):
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=120)
            consumer.assign([TopicPartition(topic, number, 0)])
            while found_end(found, number) < end:
                message = consumer.poll(10)
                assert message is not None
                assert message.error() is None
                found.append(message)
        return found
    finally:
        consumer.close()


def found_end(found: Sequence[Message], partition: int) -> int:
    return max((m.offset() + 1 for m in found if m.partition() == partition), default=0)  # type: ignore[operator]


def header(message: Message, name: str) -> str:
    value = dict(message.headers() or [])[name]
    assert isinstance(value, bytes)
    return value.decode()


def connection_numbers(messages: Sequence[Message]) -> list[int]:
    return [int(header(message, "sequence")) - 1 for message in messages]


def librdkafka_threads() -> list[str]:
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ends just now
            names.append((task / "comm").read_text().strip())
    return [name for name in names if name.startswith("rdk:")]


def test_a_push_is_a_record_with_all_its_fields(broker: KafkaBroker, topic: str) -> None:
    one = client_push()
    one = dataclasses.replace(one, context=dataclasses.replace(one.context, sasl_mechanism="PLAIN"))
    with started(broker, topic, bootstrap_servers=broker.internal_bootstrap) as kafka:
        kafka.export(one.context, one.payload)
    (record,) = records(broker, topic)
    assert record.key() == b"AAAAAAAAAAAAAAAAAAAAAQ"
    assert record.value() == one.payload.data
    assert record.timestamp()[1] == one.context.received_at_ns // 1_000_000
    names = list(dict(record.headers() or []))
    assert {name: header(record, name) for name in names} == {
        "format_version": "1",
        "push_id": "0" * 32,
        "received_at_ns": "1700000000000000000",
        "sequence": "1",
        "terminating": "false",
        "client_id": "producer-1",
        "client_software_name": "apache-kafka-java",
        "client_software_version": "4.4.0",
        "principal": "User:ANONYMOUS",
        "client_source_address": "127.0.0.1",
        "client_source_port": "40000",
        "broker_id": "1",
        "cluster_id": "5L6g3nShT-eMCtK--X86sw",
        "listener": "CLIENT",
        "security_protocol": "PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "subscription_id": "7",
        "push_interval_ms": "1000",
    }


@pytest.mark.full
def test_a_push_without_metrics_is_an_empty_record_and_no_tombstone(cluster: KafkaBroker, topic: str) -> None:
    with started(cluster, topic) as kafka:
        kafka.export_batch(pushes(1, data=b""))
    (record,) = records(cluster, topic)
    assert record.value() == b""
    assert header(record, "push_id")


@pytest.mark.full
def test_unknown_fields_have_no_header(cluster: KafkaBroker, topic: str) -> None:
    one = push()
    one = dataclasses.replace(one, context=dataclasses.replace(one.context, cluster_id=None))
    with started(cluster, topic) as kafka:
        kafka.export(one.context, one.payload)
    (record,) = records(cluster, topic)
    assert {"cluster_id", "sasl_mechanism"}.isdisjoint(dict(record.headers() or []))


@pytest.mark.parametrize(
    "compression",
    ["none", *(pytest.param(codec, marks=pytest.mark.full) for codec in ("gzip", "snappy", "lz4", "zstd"))],
)
def test_a_client_keeps_its_order_in_its_partition(
    cluster: KafkaBroker, topic: str, compression: str
) -> None:
    given = pushes(400, instances=20, data=client_push("ck-producer-star-01").payload.data)
    with started(cluster, topic, create_topic={"partitions": 3}, compression=compression) as kafka:
        kafka.export_batch(given[:300])
        kafka.export_batch(given[300:])
    found = records(cluster, topic)
    assert len({record.partition() for record in found}) == 3
    for key in {record.key() for record in found}:
        of_one = [record for record in found if record.key() == key]
        assert len({record.partition() for record in of_one}) == 1
        assert connection_numbers(of_one) == [n for n in range(400) if f"{n % 20:022d}".encode() == key]


def test_the_topic_is_created_with_its_settings(cluster: KafkaBroker, topic: str) -> None:
    create = {"partitions": 4, "replication_factor": 1, "retention_hours": 5}
    with started(cluster, topic, create_topic=create) as kafka:
        kafka.export_batch(pushes(1))
    admin = AdminClient({"bootstrap.servers": cluster.internal_bootstrap, "enable.metrics.push": False})
    assert len(admin.list_topics(topic, timeout=120).topics[topic].partitions) == 4
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    settings = admin.describe_configs([resource])[resource].result(120)
    assert settings["retention.ms"].value == "18000000"


def test_the_topic_is_there_before_the_first_push(cluster: KafkaBroker, topic: str) -> None:
    """Otherwise a roll-up of a new installation fails until somebody pushes."""
    admin = AdminClient({"bootstrap.servers": cluster.internal_bootstrap, "enable.metrics.push": False})
    with started(cluster, topic, create_topic={"partitions": 3}):
        wait_until(lambda: topic in admin.list_topics(timeout=120).topics, timeout_s=120, what="the topic")
    assert len(admin.list_topics(topic, timeout=120).topics[topic].partitions) == 3


def test_a_topic_that_must_not_be_created_is_reported(cluster: KafkaBroker, topic: str) -> None:
    with (
        started(cluster, topic, create_topic=None) as kafka,
        pytest.raises(
            RetryableError, match=rf"^topic {topic} does not exist: create it, or set create_topic$"
        ),
    ):
        kafka.export_batch(pushes(1))
    with (
        started(cluster, topic, create_topic={"replication_factor": 7}) as kafka,
        pytest.raises(
            RetryableError, match=rf"^topic {topic} does not exist and cannot be created: .*7 time"
        ),
    ):
        kafka.export_batch(pushes(1))


@pytest.mark.full
def test_a_missing_right_is_reported_and_retried(
    cluster: KafkaBroker, certificate: CertificateFiles, topic: str
) -> None:
    cluster.create_topic(topic)
    with started(cluster, topic, **secure(cluster, certificate)) as kafka:
        # Often, because the cluster sometimes refuses the producer id first, which is fatal for the
        # producer.
        for _ in range(20):
            with pytest.raises(
                RetryableError, match=rf"^topic {topic}: .*authorization failed: DESCRIBE and WRITE"
            ):
                kafka.export_batch(pushes(3))
        allow(cluster, topic, AclOperation.DESCRIBE)
        with pytest.raises(
            RetryableError, match=r"3 of 3 records not confirmed by the cluster: .*authorization failed"
        ):
            kafka.export_batch(pushes(3))
        allow(cluster, topic, AclOperation.WRITE)
        kafka.export_batch(pushes(3))
    assert connection_numbers(records(cluster, topic)) == [0, 1, 2]


def allow(broker: KafkaBroker, topic: str, operation: AclOperation) -> None:
    admin = AdminClient({"bootstrap.servers": broker.internal_bootstrap, "enable.metrics.push": False})
    rule = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:alice", "*", operation,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    admin.create_acls([rule])[rule].result(120)
    # The controller has answered. The broker has the rule a moment later.
    wanted = AclBindingFilter(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:alice", "*", operation,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    wait_until(lambda: rule in admin.describe_acls(wanted).result(120), timeout_s=120, what="the rule")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.full
def test_the_producer_logs_in(
    cluster: KafkaBroker, certificate: CertificateFiles, topic: str, mechanism: str
) -> None:
    for operation in (AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.WRITE):
        allow(cluster, topic, operation)
    settings = {**secure(cluster, certificate), "sasl_mechanism": mechanism}
    with started(cluster, topic, **settings) as kafka:
        kafka.export_batch(pushes(2))
    assert connection_numbers(records(cluster, topic)) == [0, 1]


def test_the_producer_logs_in_with_a_token(
    cluster: KafkaBroker, certificate: CertificateFiles, topic: str, tokens: str
) -> None:
    for operation in (AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.WRITE):
        allow(cluster, topic, operation)
    settings = secure(cluster, certificate)
    del settings["sasl_username"], settings["sasl_password"]
    settings["sasl_mechanism"] = "OAUTHBEARER"
    oauth = {"token_endpoint_url": f"{tokens}/token", "client_id": "sidecar", "client_secret": "hunter2"}
    with started(cluster, topic, **settings, oauth=oauth) as kafka:
        kafka.export_batch(pushes(2))
    assert connection_numbers(records(cluster, topic)) == [0, 1]
    refused = {**oauth, "client_secret": "hunter3"}
    with (
        started(cluster, topic, **settings, oauth=refused, timeout_ms=2000) as kafka,
        pytest.raises(RetryableError) as caught,
    ):
        kafka.export_batch(pushes(1))
    assert "hunter3" not in str(caught.value)
    assert "Failed to acquire SASL OAUTHBEARER token" in str(caught.value)


@pytest.fixture
def tokens() -> Iterator[str]:
    """A token endpoint (RFC 6749, section 4.4), whose token for the right secret is alice's."""

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            known = b64encode(b"sidecar:hunter2").decode()
            if self.headers["authorization"] == f"Basic {known}":
                token = unsecured_token(Login(mechanism="OAUTHBEARER", user="alice"))
                self.answer(200, {"access_token": token, "token_type": "bearer", "expires_in": 3600})
            else:
                self.answer(401, {"error": "invalid_client"})

        def answer(self, status: int, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_reported_and_not_shown(
    cluster: KafkaBroker,
    certificate: CertificateFiles,
    topic: str,
    mechanism: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    settings = {**secure(cluster, certificate, "hunter2-wrong"), "sasl_mechanism": mechanism}
    entry = {"type": "kafka_topic", "topic": topic, **settings, "delivery": "memory"}
    host = PluginHost(load_plugins([entry]))
    with capture_logs() as logs:
        host.start()
        host.offer(push())
        # At once, not after the timeout, because each further try is another failed login.
        wait_for(lambda: host.statistics()[0].failures > 0, timeout_s=120)
        statistics = host.statistics()[0]
        host.stop(1)
    assert "Authentication failed" in (statistics.last_error or "")
    assert "hunter2" not in repr(logs) + repr(statistics) + "".join(capfd.readouterr())


def test_a_wrong_security_protocol_is_reported(cluster: KafkaBroker, topic: str) -> None:
    port = cluster.port("SECURE")
    with (
        started(cluster, topic, bootstrap_servers=f"127.0.0.1:{port}", timeout_ms=1000) as kafka,
        pytest.raises(RetryableError, match="or speak no PLAINTEXT there: see security_protocol"),
    ):
        kafka.export_batch(pushes(1))


def test_a_broker_that_cannot_be_verified_is_reported(
    cluster: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    other = CertificateAuthority().issue().write(tmp_path)
    settings = {**secure(cluster, other), "tls": {"ca_file": str(other.ca)}}
    with (
        started(cluster, topic, **settings, timeout_ms=2000) as kafka,
        pytest.raises(RetryableError, match="certificate verify failed"),
    ):
        kafka.export_batch(pushes(1))


def test_a_record_that_is_too_large_costs_no_other(cluster: KafkaBroker, topic: str) -> None:
    given = pushes(9)
    given[4] = push(4, data=os.urandom(2_000_000))
    with started(cluster, topic) as kafka, pytest.raises(BatchRefusedError, match="too large"):
        kafka.export_batch(given)
    entry = {"type": "kafka_topic", "bootstrap_servers": cluster.bootstrap, "topic": topic + "-host"}
    host = PluginHost(load_plugins([{**entry, "delivery": "memory", "batch": {"max_bytes": 10_000_000}}]))
    for item in given:
        host.offer(item)
    host.start()
    assert host.stop(20)
    (statistics,) = host.statistics()
    assert (statistics.exported_pushes, sum(statistics.dropped.values())) == (8, 1)
    # The others were confirmed at the first attempt, so the halves did not send them again.
    assert sorted(connection_numbers(records(cluster, topic + "-host"))) == [0, 1, 2, 3, 5, 6, 7, 8]


def until_taken(kafka: KafkaTopicReceiver, batch: Sequence[Push]) -> None:
    """Export like the host: retry while the broker is not ready."""

    def taken() -> bool:
        with suppress(RetryableError):
            kafka.export_batch(batch)
            return True
        return False

    wait_for(taken, timeout_s=120)


@pytest.mark.full
def test_a_broker_that_restarts_gets_every_push_in_order(topic: str) -> None:
    with KafkaBroker() as broker, started(broker, topic, timeout_ms=10_000) as kafka:
        kafka.export_batch(pushes(20, instances=4))
        broker.kill()
        with pytest.raises(RetryableError, match="Connection refused"):
            kafka.export_batch(pushes(20, 20, instances=4))
        with pytest.raises(RetryableError, match="Connection refused"):
            kafka.export_batch(pushes(20, 20, instances=4))
        broker.start()
        until_taken(kafka, pushes(20, 20, instances=4))
        broker.pause()
        with pytest.raises(RetryableError):
            kafka.export_batch(pushes(20, 40, instances=4))
        broker.resume()
        until_taken(kafka, pushes(20, 40, instances=4))
        found = records(broker, topic)
    for instance in range(4):
        of_one = [r for r in found if r.key() == f"{instance:022d}".encode()]
        seen = list(dict.fromkeys(connection_numbers(of_one)))
        assert seen == list(range(instance, 60, 4))


@pytest.mark.full
def test_under_load_through_restarts_nothing_is_lost(topic: str) -> None:
    with KafkaBroker() as broker:
        entry = {"type": "kafka_topic", "bootstrap_servers": broker.bootstrap, "topic": topic}
        retry = {"initial_ms": 50, "max_ms": 200}
        host = PluginHost(load_plugins([{**entry, "timeout_ms": 2000, "delivery": "memory", "retry": retry}]))
        host.start()
        done = threading.Event()
        offered = 0

        def load() -> None:
            nonlocal offered
            while not done.wait(0.002):
                # However long the broker is away, the queue has room.
                if offered - host.statistics()[0].exported_pushes > 2_000:
                    continue
                host.offer(of_instance(push(offered), offered % 5))
                offered += 1

        loader = threading.Thread(target=load)
        loader.start()
        try:
            for _ in range(2):
                wait_for(lambda so_far=offered: offered > so_far + 200)  # type: ignore[misc]
                broker.kill()
                wait_for(lambda so_far=offered: offered > so_far + 200)  # type: ignore[misc]
                broker.start()
        finally:
            done.set()
            loader.join()
        wait_for(lambda: host.statistics()[0].exported_pushes == offered, timeout_s=120)
        assert host.stop(20)
        assert set(connection_numbers(records(broker, topic))) == set(range(offered))


def test_a_topic_that_cannot_be_created_leaves_no_thread_behind(cluster: KafkaBroker, topic: str) -> None:
    before = librdkafka_threads()
    gc.disable()
    try:
        with started(cluster, topic, create_topic={"replication_factor": 7}) as kafka:
            for _ in range(3):
                with pytest.raises(RetryableError, match="cannot be created"):
                    kafka.export_batch(pushes(1))
        wait_for(lambda: librdkafka_threads() == before)
    finally:
        gc.enable()


def test_stopping_ends_every_thread(cluster: KafkaBroker, topic: str) -> None:
    before = set(threading.enumerate()), librdkafka_threads()
    one = plugin(cluster, topic)
    one.start()
    one.export_batch(pushes(1))
    assert len(librdkafka_threads()) > len(before[1])
    one.stop()
    wait_for(lambda: (set(threading.enumerate()), librdkafka_threads()) == before)
    away = plugin(cluster, topic, bootstrap_servers=f"127.0.0.1:{free_port()}", timeout_ms=300)
    away.start()
    with pytest.raises(RetryableError, match="Connection refused"):
        away.export_batch(pushes(1))
    away.stop()
    wait_for(lambda: (set(threading.enumerate()), librdkafka_threads()) == before)


def test_a_check_of_the_destination_creates_no_topic(cluster: KafkaBroker, topic: str) -> None:
    exists = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assert "will be created" in str(plugin(cluster, topic).check_destination(30))
    with pytest.raises(RetryableError, match="does not exist"):
        plugin(cluster, topic, create_topic=None).check_destination(30)
    assert topic not in exists.list_topics(timeout=120).topics
    cluster.create_topic(topic)
    assert "exists" in str(plugin(cluster, topic, create_topic=None).check_destination(30))
