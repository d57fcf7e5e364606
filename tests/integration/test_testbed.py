"""The testbed itself works, which all other integration tests rely on."""

import contextlib
import datetime
import socket
import ssl
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from tests.testbed import cpu, network, raw
from tests.testbed.broker import CLUSTER_ID, SASL_USERS, KafkaBroker, Listener
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.clients import FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector, ExportedMetric, Point
from tests.testbed.ports import LOOPBACK, free_port, is_open
from tests.testbed.process import ChildProcess, StartError, in_group, wait_until
from tests.testbed.security import Login, Security

CLIENTS = (JavaClient, FranzClient, LibrdkafkaClient)


def test_every_client_produces_and_consumes_directly(broker: KafkaBroker) -> None:
    assert raw.cluster_id_when_ready(broker.internal_port) == CLUSTER_ID
    broker.create_topic("testbed")
    with contextlib.ExitStack() as running:
        clients = [
            running.enter_context(kind(mode, bootstrap=broker.internal_bootstrap, topic="testbed"))
            for kind in CLIENTS
            for mode in Mode
        ]
        for client in clients:
            client.wait_for_records(5)
        for client in clients:
            client.stop()
            assert client.errors == []


def test_the_plugin_broker_gets_pushes_from_clients_logged_in(plugin_broker: KafkaBroker) -> None:
    plugin_broker.alter_client_metrics("testbed", ["*"], 200, {"client_id": "pushing-.*"})
    before = len(plugin_broker.pushes())
    with LibrdkafkaClient(
        Mode.PRODUCER,
        bootstrap=f"{LOOPBACK}:{plugin_broker.port('SASL')}",
        topic="testbed",
        client_id="pushing-producer",
        security=Security(login=Login(mechanism="SCRAM-SHA-256", user="alice", password=SASL_USERS["alice"])),
    ) as client:
        wait_until(lambda: len(plugin_broker.pushes()) > before + 1, timeout_s=120, what="two pushes")
        client.stop()
        pushes = plugin_broker.pushes()[before:]
        assert {push["client_instance_id"] for push in pushes} == {client.client_instance_id}
        assert [push["terminating"] for push in pushes] == [False] * (len(pushes) - 1) + [True]
    plugin_broker.delete_client_metrics("testbed")


def test_every_client_secures_its_connections(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    server = authority.intermediate().issue().write(tmp_path, "server")
    own = authority.issue(common_name="alice", client=True, key_type="RSA").write(tmp_path, "alice")
    password = Login(mechanism="PLAIN", user="alice", password=SASL_USERS["alice"])
    with contextlib.ExitStack() as running:
        broker = running.enter_context(
            KafkaBroker(
                listeners=[
                    Listener(name="SASL", security_protocol="SASL_PLAINTEXT"),
                    Listener(name="SASL_SSL", security_protocol="SASL_SSL", client_auth="required"),
                ],
                certificate=server,
            )
        )
        token = broker.create_delegation_token("SASL", password)
        logins = {
            JavaClient: token,
            FranzClient: replace(token, mechanism="SCRAM-SHA-512"),
            LibrdkafkaClient: Login(mechanism="OAUTHBEARER", user="alice"),
        }
        clients = [
            running.enter_context(
                kind(
                    Mode.PRODUCER,
                    bootstrap=f"{LOOPBACK}:{broker.port('SASL_SSL')}",
                    topic="secure",
                    security=Security(login=login, ca=server.ca, certificate=own),
                )
            )
            for kind, login in logins.items()
        ]
        for client in clients:
            client.wait_for_records(5)
            assert client.errors == []
            assert token.password.encode() not in Path(f"/proc/{client.pid}/cmdline").read_bytes()


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    for not_after, refusal in ((None, None), (past, "certificate has expired")):
        server = authority.issue(not_after=not_after).write(tmp_path)
        theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        theirs.load_cert_chain(server.chain, server.key)
        ours = ssl.create_default_context(cafile=server.ca)
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = ours.wrap_bio(to_client, to_server, server_hostname=LOOPBACK)
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        with pytest.raises(ssl.SSLWantReadError):
            theirs.wrap_bio(to_server, to_client, server_side=True).do_handshake()
        if refusal is None:
            client.do_handshake()
        else:
            with pytest.raises(ssl.SSLCertVerificationError, match=refusal):
                client.do_handshake()


def test_a_host_of_its_own_connects_from_its_own_address() -> None:
    if reason := network.problem():
        pytest.skip(reason)
    with network.Network() as wires:
        other = wires.host("other")
        here, there = wires.link(None, other)
        for family, address, source in (
            (socket.AF_INET, here.ipv4, there.ipv4),
            (socket.AF_INET6, here.ipv6, there.ipv6),
        ):
            with socket.create_server((address, 0), family=family) as server:
                with other.connect(address, server.getsockname()[1]):
                    accepted, peer = server.accept()
                accepted.close()
            assert peer[0] == source
        with pytest.raises(ConnectionRefusedError):
            other.connect(LOOPBACK, 1)
        shown = subprocess.run(other.command(["ip", "address"]), capture_output=True, check=True)
        assert there.ipv4.encode() in shown.stdout


def test_a_refused_subscription_says_why(plugin_broker: KafkaBroker) -> None:
    with pytest.raises(raw.BrokerAnswerError, match=r"'bad'.*error 42: .*interval\.ms"):
        plugin_broker.alter_client_metrics("bad", ["*"], 1)


def test_the_collector_shows_what_it_was_sent(collector: Collector) -> None:
    request = ExportMetricsServiceRequest()
    resource_metrics = request.resource_metrics.add()
    attribute = resource_metrics.resource.attributes.add(key="client_id")
    attribute.value.string_value = "someone"
    metric = resource_metrics.scope_metrics.add().metrics.add(name="testbed.total", unit="1")
    metric.sum.is_monotonic = True
    metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    point = metric.sum.data_points.add(as_double=2.5, start_time_unix_nano=1, time_unix_nano=2)
    point.attributes.add(key="partition").value.int_value = 3

    httpx.post(
        f"{collector.http_endpoint}/v1/metrics",
        content=request.SerializeToString(),
        headers={"content-type": "application/x-protobuf"},
        timeout=60,
    ).raise_for_status()

    (export,) = collector.wait_for(lambda exports: len(exports) > 0)
    assert export == ExportedMetric(
        resource={"client_id": "someone"},
        scope="",
        name="testbed.total",
        unit="1",
        kind="sum",
        monotonic=True,
        temporality="delta",
        points=(Point(attributes={"partition": 3}, value=2.5, start_time_ns=1, time_ns=2),),
    )


def test_a_broker_keeps_ports_and_data_when_paused_and_killed() -> None:
    with KafkaBroker() as broker:
        with FranzClient(Mode.PRODUCER, bootstrap=broker.bootstrap, topic="kept") as producer:
            producer.wait_for_records(10)
        assert cpu.cpu_seconds(broker.pid) > 0.1
        assert cpu.memory_bytes(broker.pid) > 50_000_000

        broker.pause()
        assert raw.cluster_id_when_ready(broker.internal_port) is None
        assert is_open(broker.client_port)
        broker.resume()
        assert raw.cluster_id_when_ready(broker.internal_port) == CLUSTER_ID

        broker.kill()
        assert not is_open(broker.client_port)
        broker.restart()
        with FranzClient(Mode.CONSUMER, bootstrap=broker.bootstrap, topic="kept") as consumer:
            consumer.wait_for_records(10)


def test_a_failed_start_shows_the_log() -> None:
    with (
        pytest.raises(StartError, match=r"Invalid value three for configuration num\.io\.threads"),
        KafkaBroker(properties={"num.io.threads": "three"}),
    ):
        pass


def test_no_child_outlives_a_killed_parent(tmp_path: Path) -> None:
    port = free_port()
    parent_program = f"""
import sys, time
from pathlib import Path
from tests.testbed.process import ChildProcess
server = [sys.executable, "-m", "http.server", "{port}", "--bind", "{LOOPBACK}"]
child = ChildProcess("server", server, log=Path({str(tmp_path / "log")!r}))
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", parent_program]) as parent:
        wait_until(lambda: is_open(port), timeout_s=120, what="the server")
        parent.kill()
    wait_until(lambda: not is_open(port), timeout_s=120, what="the server's end")


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="/nowhere/program"):
        ChildProcess("nothing", ["/nowhere/program"], log=tmp_path / "log")


#: A process whose child takes a while to end, because its memory is given back first.
_LARGE_CHILD = """
import os, time
reads, writes = os.pipe()
if not os.fork():
    memory = b"x" * 300_000_000
    os.write(writes, b".")
    time.sleep(600)
os.read(reads, 1)
print("ready", flush=True)
time.sleep(600)
"""


def test_a_killed_process_has_left_no_child_that_holds_its_ports(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = ChildProcess("large", [sys.executable, "-c", _LARGE_CHILD], log=log)
    process.wait_until_ready(lambda: "ready" in process.log_text(), timeout_s=60)
    process.kill()
    assert in_group(process.pid) == []
