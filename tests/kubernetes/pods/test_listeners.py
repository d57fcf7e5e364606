"""TLS and logins in pods: a gateway before a broker with logins follows its Secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
import yaml

from tests.kubernetes.pods.clients import AUTHORITY, AUTHORITY_FILE, LANGUAGES, clients
from tests.kubernetes.pods.clients import NAMESPACE as CLIENTS
from tests.kubernetes.pods.cluster import MONITORING, TOKEN, BrokerCluster, secret
from tests.testbed.certificates import Certificate, CertificateAuthority
from tests.testbed.clients import Mode
from tests.testbed.helm import CHART
from tests.testbed.kubernetes import KubectlError
from tests.testbed.node.images import KAFKA
from tests.testbed.node.node import Node, restarts
from tests.testbed.security import Login, Security

pytestmark = pytest.mark.timeout(1800)

NAMESPACE: Final = "secured"
RELEASE: Final = "secured"
SERVICE: Final = f"{RELEASE}-kafka-client-telemetry-gateway"
POD: Final = f"{SERVICE}-0"
HOST: Final = f"{SERVICE}.{NAMESPACE}.svc.cluster.local"
PORT: Final = 19092
LOGIN: Final = Login(mechanism="PLAIN", user="orders", password="a-password-of-the-tests")
VALUES: Final[dict[str, Any]] = {
    "sidecar": {"enabled": False},
    "gateway": {
        "enabled": True,
        "replicas": 1,
        "listener": {
            "name": "CLIENT",
            "security_protocol": "SASL_SSL",
            "tls": {"cert_file": "/run/secrets/tls/tls.crt", "key_file": "/run/secrets/tls/tls.key"},
        },
        "brokers": [{"id": 1, "upstream": f"broker.{NAMESPACE}.svc.cluster.local:9092", "port": PORT}],
    },
    "secretMounts": [{"secretName": "gateway-tls", "mountPath": "/run/secrets/tls"}],
    "tokens": [{"name": "ops", "role": "editor", "secretName": "tokens", "key": "ops"}],
    "subscriptions": [{"name": "all", "metrics": ["*"], "interval_ms": 1000}],
    "resources": {"requests": {"cpu": "10m"}},
    "config": {"plugins": [{"type": "otlp", "endpoint": f"http://collector.{MONITORING}:4317"}]},
}
#: A broker that lets clients in with a password, and advertises the gateway.
_BROKER: Final = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@127.0.0.1:9093",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "INTERNAL",
    "KAFKA_LISTENERS": "CLIENT://:9092,INTERNAL://127.0.0.1:9094,CONTROLLER://127.0.0.1:9093",
    "KAFKA_ADVERTISED_LISTENERS": f"CLIENT://{HOST}:{PORT},INTERNAL://127.0.0.1:9094",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN",
    "KAFKA_LISTENER_NAME_CLIENT_PLAIN_SASL_JAAS_CONFIG": "org.apache.kafka.common.security.plain."
    f'PlainLoginModule required user_{LOGIN.user}="{LOGIN.password}";',
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_LOG_DIRS": "/tmp/data",
    "KAFKA_HEAP_OPTS": "-Xms256m -Xmx256m",
    "KAFKA_LOG4J_OPTS": "-Dlog4j2.level=WARN",
}


def tls(certificate: Certificate) -> dict[str, Any]:
    """The gateway's Secret."""
    return secret("gateway-tls", NAMESPACE, tls_crt=certificate.chain_pem, tls_key=certificate.key_pem)


def broker() -> tuple[Mapping[str, Any], ...]:
    """A broker's pod and its Service."""
    metadata = {"name": "broker", "namespace": NAMESPACE, "labels": {"app": "broker"}}
    container = {
        "name": "kafka",
        "image": KAFKA,
        "imagePullPolicy": "Never",
        "env": [{"name": name, "value": value} for name, value in _BROKER.items()],
        "readinessProbe": {"tcpSocket": {"port": 9092}, "periodSeconds": 1},
        # Where its start writes server.properties.
        "volumeMounts": [{"name": "config", "mountPath": "/opt/kafka/config"}],
    }
    volumes = [{"name": "config", "emptyDir": {}}]
    return (
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": {"app": "broker"}, "ports": [{"port": 9092}]},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"enableServiceLinks": False, "containers": [container], "volumes": volumes},
        },
    )


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    """Whom clients trust."""
    return CertificateAuthority()


@pytest.fixture(scope="module")
def secured(
    installed: BrokerCluster, authority: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerCluster]:
    """The release, in front of its broker."""
    node = installed.node
    node.make_namespace(NAMESPACE)
    node.apply(
        *broker(),
        tls(authority.issue(dns_names=[HOST])),
        secret("tokens", NAMESPACE, ops="a-first-token-of-the-tests-0123456789"),
        secret(AUTHORITY, CLIENTS, ca_crt=authority.ca_pem),
    )
    node.wait_for_pods(NAMESPACE, "app=broker", 1)
    values = tmp_path_factory.mktemp("secured") / "values.yaml"
    values.write_text(yaml.safe_dump(VALUES))
    release = ("install", RELEASE, CHART, f"--namespace={NAMESPACE}", "--values", values)
    installed.helm.run(*release, "--wait", "--timeout=5m")
    yield installed
    installed.helm.run("uninstall", RELEASE, f"--namespace={NAMESPACE}")
    node.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def shown(node: Node) -> int:
    """The serial number of the certificate that the gateway shows."""
    pod = node.pod(NAMESPACE, POD)
    assert pod is not None
    script = f"openssl s_client -connect {pod['status']['podIP']}:{PORT} </dev/null 2>/dev/null"
    said = node.machine.run("sh", "-c", f"{script} | openssl x509 -noout -serial")
    return int(said.strip().removeprefix("serial="), 16)


def gateway_restarts(node: Node) -> int:
    """How often the kubelet has started the gateway again."""
    pod = node.pod(NAMESPACE, POD)
    assert pod is not None
    return restarts(pod, "receiver")


def test_clients_with_tls_and_a_login_are_named_by_it(
    secured: BrokerCluster, authority: CertificateAuthority
) -> None:
    node = secured.node
    wanted = [(language, Mode.PRODUCER) for language in LANGUAGES]
    security = Security(login=LOGIN, ca=AUTHORITY_FILE)
    with clients(node, *wanted, bootstrap=f"{HOST}:{PORT}", topic="secured", security=security) as running:
        names = {client.name for client in running}
        node.wait_until(lambda: names <= secured.collector.client_ids(), what="metrics of all", every_s=0.5)
        principals = {
            metric.resource.get("principal")
            for metric in secured.collector.exports()
            if metric.resource.get("client_id") in names
        }
        assert principals == {f"User:{LOGIN.user}"}

        certificate = authority.issue(dns_names=[HOST])
        node.apply(tls(certificate))
        # The kubelet brings it into the pod within a minute and a half.
        node.wait_until(lambda: shown(node) == certificate.x509.serial_number, what="the new certificate")
        for client in running:
            client.wait_for_progress()
        assert [client.errors for client in running] == [[]] * len(running)
    with clients(
        node, *wanted, bootstrap=f"{HOST}:{PORT}", topic="secured-again", security=security
    ) as later:
        assert [client.errors for client in later] == [[]] * len(later)
    assert gateway_restarts(node) == 0


def test_the_rest_api_follows_its_token(secured: BrokerCluster) -> None:
    node = secured.node

    def lists(token: str) -> bool:
        command = ("kafka-telemetry", "clients", "list", "--output=json", "--token-file=/dev/stdin")
        try:
            json.loads(node.exec(NAMESPACE, POD, "receiver", *command, stdin=token))
        except KubectlError:
            return False
        return True

    old = node.exec(NAMESPACE, POD, "receiver", "cat", TOKEN)
    assert lists(old)
    new = "a-second-token-of-the-tests-0123456789"
    node.apply(secret("tokens", NAMESPACE, ops=new))
    node.wait_until(lambda: lists(new), what="the new token", every_s=1.0)
    assert not lists(old)
    assert gateway_restarts(node) == 0
