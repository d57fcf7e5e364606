"""Runs real Apache Kafka brokers on loopback: one KRaft node, or several that form a cluster."""

from __future__ import annotations

import base64
import contextlib
import shutil
import signal
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from tests.testbed import jvm, older_kafka, parts, raw
from tests.testbed.certificates import CertificateFiles
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import ChildProcess, StopError, wait_until
from tests.testbed.security import Login, SecurityProtocol
from tests.testbed.server import Server

#: Who may log in over SASL listeners, with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512: user to
#: password. Whoever says so in an unsigned OAUTHBEARER token may log in too.
SASL_USERS: Mapping[str, str] = MappingProxyType({"alice": "alice-secret", "bob": "bob-secret"})

#: Ids that a broker has unless it is told others.
CLUSTER_ID = "kafka-telemetry-testQQ"
NODE_ID = 1

_TELEMETRY_PLUGIN = "kafkatelemetry.testbed.CountingTelemetryReporter"
_READY_WITHIN_S = 300.0
_STOP_WITHIN_S = 30.0

#: What every broker of the testbed has.
SERVER_PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        # Without a key there are no delegation tokens.
        "delegation.token.secret.key": "testbed",
        # One node has one replica of everything.
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        # Consumers get their partitions at once.
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.heartbeat.interval.ms": "500",
        # A broker serves once its controller has its first heartbeat. Its session is Kafka's own:
        # with a shorter one a broker of a busy machine is fenced, or does not register.
        "broker.heartbeat.interval.ms": "500",
        # Few threads, little memory, bounded disk.
        "num.network.threads": "2",
        "num.io.threads": "2",
        "background.threads": "2",
        "log.cleaner.dedupe.buffer.size": "2097152",
        "log.segment.bytes": "16777216",
        "log.retention.bytes": "67108864",
        # Records with times of years ago, as tests write them, are not deleted after some minutes.
        "log.retention.ms": "-1",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listener for clients.

    Attributes:
        name: Its name, in capitals.
        security_protocol: What clients speak. With SASL they choose PLAIN, SCRAM-SHA-256,
            SCRAM-SHA-512 (:data:`SASL_USERS`; SCRAM also with a delegation token) or OAUTHBEARER
            (unsigned tokens).
        client_auth: Whether clients show a certificate.
        advertised_host: The host that clients are told of.
        advertised_port: The port that clients are told of: a sidecar's. None: the listener's own.
        max_reauth_ms: After how long clients must log in again (KIP-368); 0: never.
        principal_claim: The claim of an OAUTHBEARER token that names the user.
    """

    name: str
    security_protocol: SecurityProtocol = "PLAINTEXT"
    client_auth: Literal["none", "requested", "required"] = "none"
    advertised_host: str = LOOPBACK
    advertised_port: int | None = None
    max_reauth_ms: int = 0
    principal_claim: str = "sub"


class KafkaBroker(Server):
    """A single KRaft node that runs, and keeps its data, until the context ends.

    Its listeners are CLIENT (for clients, perhaps by way of a sidecar), INTERNAL (its own, and for
    looking after it), CONTROLLER, all three in plaintext, and those asked for.

    Args:
        advertised_client_port: The port clients are told of: a sidecar's. None: the listener's own.
        listeners: Further listeners.
        certificate: What TLS listeners show; they trust whom its authority has signed.
        telemetry_plugin: Whether the broker itself takes client telemetry (and counts it:
            :meth:`pushes`).
        properties: Further server properties, which win over the testbed's. For measuring, say
            ``testbed.telemetry.log=false``: then the plugin counts and writes nothing.
        cluster_id: The cluster's id, in Kafka's text form.
        node_id: The broker's id.
        jvm_flags: :data:`jvm.QUICK_START`, or :data:`jvm.WARM` for measuring.
        controller: The broker whose controller it follows; None: it has one of its own.
        image: Where the formatted data folder and the class data archive are; None: as set up.
        version: The release of Kafka: the testbed's, or one of `parts.OLDER_KAFKA_VERSIONS`.
        plugins: Jars behind Kafka's own on the class path.

    Attributes:
        client_port: Where the CLIENT listener listens.
        internal_port: Where the INTERNAL listener listens.
        listeners: The listeners for clients, CLIENT first, with the ports that they advertise.
        cluster_id: As given.
        node_id: As given.
    """

    def __init__(
        self,
        *,
        advertised_client_port: int | None = None,
        listeners: Sequence[Listener] = (),
        certificate: CertificateFiles | None = None,
        telemetry_plugin: bool = False,
        properties: Mapping[str, str] | None = None,
        cluster_id: str = CLUSTER_ID,
        node_id: int = NODE_ID,
        jvm_flags: Sequence[str] = jvm.QUICK_START,
        controller: KafkaBroker | None = None,
        image: Path | None = None,
        version: str = parts.KAFKA_VERSION,
        plugins: Sequence[Path] = (),
    ) -> None:
        super().__init__("broker")
        self.cluster_id = cluster_id
        self.node_id = node_id
        asked_for = (Listener(name="CLIENT", advertised_port=advertised_client_port), *listeners)
        self._ports = {listener.name: free_port() for listener in asked_for}
        self.listeners = tuple(
            replace(listener, advertised_port=listener.advertised_port or self.port(listener.name))
            for listener in asked_for
        )
        self.client_port = self.port("CLIENT")
        self.internal_port = free_port()
        self._controller = controller or self
        self._controller_port = free_port()
        self._certificate = certificate
        self._telemetry_plugin = telemetry_plugin
        self._extra = dict(properties or {})
        self._jvm_flags = tuple(jvm_flags)
        self._plugins = tuple(plugins)
        self._jars: Sequence[Path] | None = None
        if version == parts.KAFKA_VERSION:
            self._image = image or parts.KAFKA_IMAGE.require()
        else:
            self._image = parts.OLDER_KAFKAS[version].require()
            self._jars = older_kafka.class_path(self._image)

    def port(self, listener: str) -> int:
        """Where a listener for clients listens on 127.0.0.1.

        Raises:
            KeyError: The broker has no such listener.
        """
        return self._ports[listener]

    @property
    def bootstrap(self) -> str:
        """The CLIENT listener, ``host:port``; only the first connection bypasses a sidecar."""
        return f"{LOOPBACK}:{self.client_port}"

    @property
    def internal_bootstrap(self) -> str:
        """The INTERNAL listener, ``host:port``; its clients never connect to a sidecar."""
        return f"{LOOPBACK}:{self.internal_port}"

    @property
    def data(self) -> Path:
        """Its data folder."""
        return self._folder() / "data"

    def start(self) -> None:
        """Start the process on its ports and data, and wait until it serves.

        Raises:
            StartError: It did not come up; shows the tail of its log.
        """
        folder = self._folder()
        self._process = ChildProcess(
            f"Kafka broker {self.node_id}",
            jvm.command(
                "kafka.Kafka",
                folder / "server.properties",
                flags=self._jvm_flags,
                archive=self._image / jvm.BROKER_ARCHIVE,
                jars=self._jars,
                plugins=self._plugins,
            ),
            log=folder / "broker.log",
            cwd=folder,
        )
        self._process.wait_until_ready(
            lambda: raw.cluster_id_when_ready(self.internal_port) is not None, timeout_s=_READY_WITHIN_S
        )

    def stop(self) -> None:
        """Stop cleanly (SIGTERM); its data stays for :meth:`start`.

        Raises:
            StopError: It had to be killed, or said that something failed.
        """
        status = self._started().terminate(_STOP_WITHIN_S)
        if status not in {0, 128 + signal.SIGTERM}:
            raise StopError(f"Kafka broker {self.node_id} ended with status {status}:\n{self.log_tail()}")

    def restart(self) -> None:
        """Stop, and start on the same ports and data.

        Raises:
            StartError: It did not come up again.
            StopError: It did not stop cleanly.
        """
        if self.running:
            self.stop()
        self.start()

    def pause(self) -> None:
        """Stop its execution (SIGSTOP): connections stay open and nothing answers."""
        self._started().signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        self._started().signal(signal.SIGCONT)

    def create_topic(self, name: str, *, partitions: int = 1) -> None:
        """Create a topic; one that exists is left as it is.

        Raises:
            BrokerAnswerError: The broker refused.
        """
        raw.create_topic(self.internal_port, name, partitions=partitions)

    def alter_client_metrics(
        self,
        name: str,
        metrics: Sequence[str],
        interval_ms: int,
        match: Mapping[str, str] | None = None,
    ) -> None:
        """Create or replace a subscription in the broker's client metrics (KIP-714).

        Args:
            name: The subscription's name.
            metrics: Prefixes of metric names; ``*`` for all.
            interval_ms: Push interval in milliseconds, 100 to 3,600,000.
            match: Selector to regular expression; None matches every client.

        Raises:
            BrokerAnswerError: The broker refused.
        """
        selectors = ",".join(f"{key}={pattern}" for key, pattern in (match or {}).items())
        settings = {"metrics": ",".join(metrics), "interval.ms": str(interval_ms), "match": selectors or None}
        raw.alter_client_metrics(self.internal_port, name, settings)

    def alter_properties(self, settings: Mapping[str, str | None]) -> None:
        """Set dynamic properties of this broker; None deletes one.

        Raises:
            BrokerAnswerError: The broker refused.
        """
        raw.alter_broker(self.internal_port, self.node_id, settings)

    def limit_client(self, client_id: str, **rates: float | None) -> None:
        """Set quotas of a client id, such as ``producer_byte_rate`` in bytes a second.

        None removes one.

        Raises:
            BrokerAnswerError: The broker refused.
        """
        raw.limit_client(self.internal_port, client_id, rates)

    def delete_client_metrics(self, name: str) -> None:
        """Remove a subscription.

        Raises:
            BrokerAnswerError: The broker refused.
        """
        settings = dict.fromkeys(("metrics", "interval.ms", "match"))
        raw.alter_client_metrics(self.internal_port, name, settings)

    def create_delegation_token(self, listener: str, login: Login) -> Login:
        """Let somebody make a delegation token (KIP-48), and say how to log in with it.

        Args:
            listener: A listener in SASL_PLAINTEXT.
            login: Its owner, by PLAIN.

        Returns:
            A login by SCRAM-SHA-256; SCRAM-SHA-512 goes as well.

        Raises:
            BrokerAnswerError: The broker refused.
        """
        token_id, hmac = raw.create_delegation_token(self.port(listener), login.user, login.password)
        return Login(mechanism="SCRAM-SHA-256", user=token_id, password=hmac, delegation_token=True)

    def pushes(self) -> list[dict[str, object]]:
        """The pushes that the telemetry plugin got: its lines in the log, parsed, in order."""
        return self.logged_objects('{"telemetry_push"')

    def wait_for_log(self, text: str, *, timeout_s: float = 120.0) -> None:
        """Wait until the log holds ``text``.

        Raises:
            WaitTimeoutError: It did not in time.
        """
        wait_until(lambda: text in self.log_text(), timeout_s=timeout_s, what=f"{text!r} in the broker's log")

    def _lay_out(self, folder: Path) -> None:
        data = folder / "data"
        shutil.copytree(self._image / "data", data)
        identity = {"version": "1", "cluster.id": self.cluster_id, "node.id": str(self.node_id)}
        if self._controller is not self:
            shutil.rmtree(data / "__cluster_metadata-0")
            identity["directory.id"] = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        formatted = data / "meta.properties"
        for line in formatted.read_text().splitlines():
            with contextlib.suppress(ValueError):
                key, value = line.split("=", 1)
                identity.setdefault(key, value)
        _write_properties(formatted, identity)
        _write_properties(folder / "server.properties", self._properties(data))

    def _properties(self, data: Path) -> dict[str, str]:
        own = {"INTERNAL": self.internal_port}
        if self._controller is self:
            own["CONTROLLER"] = self._controller_port
        voter = self._controller
        protocols = {"INTERNAL": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
        protocols |= {listener.name: listener.security_protocol for listener in self.listeners}
        advertised = [
            f"{listener.name}://{listener.advertised_host}:{listener.advertised_port}"
            for listener in self.listeners
        ]
        properties = {
            **SERVER_PROPERTIES,
            "process.roles": "broker,controller" if self._controller is self else "broker",
            "node.id": str(self.node_id),
            "controller.quorum.voters": f"{voter.node_id}@{LOOPBACK}:{voter._controller_port}",
            "log.dirs": str(data),
            "metric.reporters": _TELEMETRY_PLUGIN if self._telemetry_plugin else "",
            "testbed.telemetry.log": "true",
            "listeners": ",".join(
                f"{name}://{LOOPBACK}:{port}" for name, port in {**self._ports, **own}.items()
            ),
            "advertised.listeners": ",".join([*advertised, f"INTERNAL://{LOOPBACK}:{self.internal_port}"]),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}"
                for name, protocol in {
                    **protocols,
                    "INTERNAL": "PLAINTEXT",
                    "CONTROLLER": "PLAINTEXT",
                }.items()
            ),
        }
        for listener in self.listeners:
            properties.update(_listener_properties(listener, self._certificate))
        return properties | self._extra


def _listener_properties(listener: Listener, certificate: CertificateFiles | None) -> Mapping[str, str]:
    """A listener's security, in Kafka's words."""
    properties: dict[str, str] = {}
    if listener.security_protocol.startswith("SASL"):
        users = " ".join(f'user_{name}="{password}"' for name, password in SASL_USERS.items())
        package = "org.apache.kafka.common.security"
        unsecured = f"{package}.oauthbearer.internals.unsecured"
        properties |= {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "plain.sasl.jaas.config": f"{package}.plain.PlainLoginModule required {users};",
            "scram-sha-256.sasl.jaas.config": f"{package}.scram.ScramLoginModule required;",
            "scram-sha-512.sasl.jaas.config": f"{package}.scram.ScramLoginModule required;",
            "oauthbearer.sasl.jaas.config": (
                # The broker logs in as well, for connections of its own that it never makes.
                f"{package}.oauthbearer.OAuthBearerLoginModule required "
                'unsecuredLoginStringClaim_sub="broker" '
                f'unsecuredValidatorPrincipalClaimName="{listener.principal_claim}";'
            ),
            "oauthbearer.sasl.server.callback.handler.class": (
                f"{unsecured}.OAuthBearerUnsecuredValidatorCallbackHandler"
            ),
            "connections.max.reauth.ms": str(listener.max_reauth_ms),
        }
    if listener.security_protocol.endswith("SSL"):
        if certificate is None:
            raise ValueError(f"listener {listener.name} speaks TLS, so the broker needs a certificate")
        properties |= {
            "ssl.client.auth": listener.client_auth,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificate.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificate.ca),
        }
    return {f"listener.name.{listener.name.lower()}.{key}": value for key, value in properties.items()}


def _write_properties(file: Path, properties: Mapping[str, str]) -> None:
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
