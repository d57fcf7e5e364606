"""Owns a real Apache Kafka broker: one KRaft node on loopback, its listeners, its life and its death."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from tests.testbed import jvm, parts, raw
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import ChildProcess, ScratchFolder, StopError, wait_until

#: Who may log in over the SASL listener, with PLAIN and with SCRAM-SHA-256: user to password.
SASL_USERS: Mapping[str, str] = MappingProxyType({"alice": "alice-secret", "bob": "bob-secret"})

#: Ids that a broker has unless it is told others.
CLUSTER_ID = "kafka-telemetry-testQQ"
NODE_ID = 1

_TELEMETRY_PLUGIN = "kafkatelemetry.testbed.CountingTelemetryReporter"
_READY_WITHIN_S = 60.0
_STOP_WITHIN_S = 30.0

_SERVER_PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": (
            "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT"
        ),
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
        # A broker that was killed may come back once its last life's session is over.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # Few threads, little memory, bounded disk.
        "num.network.threads": "2",
        "num.io.threads": "2",
        "background.threads": "2",
        "log.cleaner.dedupe.buffer.size": "2097152",
        "log.segment.bytes": "16777216",
        "log.retention.bytes": "67108864",
    }
)


class KafkaBroker:
    """A single KRaft node, started on entering the context and ended on leaving it, its data with it.

    Its listeners are CLIENT (for clients, perhaps by way of a sidecar), INTERNAL (its own, and for looking
    after it), CONTROLLER, and SASL where asked for (SASL_PLAINTEXT; :data:`SASL_USERS`).

    Args:
        advertised_client_port: The port clients are told of: a sidecar's. None: the listener's own.
        sasl: Whether there is a SASL listener.
        advertised_sasl_port: Like ``advertised_client_port``, for the SASL listener.
        telemetry_plugin: Whether the broker itself takes client telemetry (and counts it: :meth:`pushes`).
        properties: Further server properties, which win over the testbed's. For measuring, say
            ``testbed.telemetry.log=false``: then the plugin counts and writes nothing.
        cluster_id: The cluster's id, in Kafka's text form.
        node_id: The broker's id.
        jvm_flags: :data:`jvm.QUICK_START`, or :data:`jvm.WARM` for measuring.
        image: Where the formatted data folder and the class data archive are; None: as set up.

    Attributes:
        client_port: Where the CLIENT listener listens.
        sasl_port: Where the SASL listener listens; None without one.
        internal_port: Where the INTERNAL listener listens.
        advertised_client_port: What clients of CLIENT are told to connect to.
        advertised_sasl_port: What clients of SASL are told to connect to; None without one.
        cluster_id: As given.
        node_id: As given.
    """

    def __init__(
        self,
        *,
        advertised_client_port: int | None = None,
        sasl: bool = False,
        advertised_sasl_port: int | None = None,
        telemetry_plugin: bool = False,
        properties: Mapping[str, str] | None = None,
        cluster_id: str = CLUSTER_ID,
        node_id: int = NODE_ID,
        jvm_flags: Sequence[str] = jvm.QUICK_START,
        image: Path | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.client_port = free_port()
        self.internal_port = free_port()
        self.sasl_port = free_port() if sasl else None
        self.advertised_client_port = advertised_client_port or self.client_port
        self.advertised_sasl_port = (advertised_sasl_port or self.sasl_port) if sasl else None
        self._controller_port = free_port()
        self._telemetry_plugin = telemetry_plugin
        self._extra = dict(properties or {})
        self._jvm_flags = tuple(jvm_flags)
        self._image = image or parts.KAFKA_IMAGE.require()
        self._scratch: ScratchFolder | None = None
        self._process: ChildProcess | None = None

    def __enter__(self) -> Self:
        self._scratch = ScratchFolder("broker")
        try:
            self._lay_out(self._scratch.path)
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """The CLIENT listener itself, ``host:port``: past any sidecar, for this first connection only."""
        return f"{LOOPBACK}:{self.client_port}"

    @property
    def internal_bootstrap(self) -> str:
        """The INTERNAL listener, ``host:port``: clients that bootstrap here never meet a sidecar."""
        return f"{LOOPBACK}:{self.internal_port}"

    @property
    def data(self) -> Path:
        """Its data folder."""
        return self._folder() / "data"

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self._started().pid

    @property
    def running(self) -> bool:
        """Whether the process is there (also while it is paused)."""
        return self._process is not None and self._process.running

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

    def kill(self) -> None:
        """End it at once (SIGKILL); its data stays for :meth:`start`."""
        self._started().kill()

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

    def close(self) -> None:
        """End the process if it runs and forget its data."""
        if self._process is not None:
            self._process.kill()
        if self._scratch is not None:
            self._scratch.close()

    def log_text(self) -> str:
        """Everything the broker logged so far."""
        return self._started().log_text()

    def log_tail(self) -> str:
        """The last lines of the broker's log."""
        return self._started().log_tail()

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
        """Create or replace a subscription in the broker's own client metrics configuration (KIP-714).

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

    def delete_client_metrics(self, name: str) -> None:
        """Remove a subscription.

        Raises:
            BrokerAnswerError: The broker refused.
        """
        settings = dict.fromkeys(("metrics", "interval.ms", "match"))
        raw.alter_client_metrics(self.internal_port, name, settings)

    def pushes(self) -> list[dict[str, object]]:
        """The pushes that the telemetry plugin got: its lines in the log, parsed, in order."""
        lines = (line for line in self.log_text().splitlines() if line.startswith('{"telemetry_push"'))
        return [json.loads(line) for line in lines]

    def wait_for_log(self, text: str, *, timeout_s: float = 10.0) -> None:
        """Wait until the log holds ``text``.

        Raises:
            WaitTimeoutError: It did not in time.
        """
        wait_until(lambda: text in self.log_text(), timeout_s=timeout_s, what=f"{text!r} in the broker's log")

    def _started(self) -> ChildProcess:
        if self._process is None:
            raise RuntimeError("the broker was never started: use it as a context manager")
        return self._process

    def _folder(self) -> Path:
        if self._scratch is None:
            raise RuntimeError("the broker has no folder: use it as a context manager")
        return self._scratch.path

    def _lay_out(self, folder: Path) -> None:
        data = folder / "data"
        shutil.copytree(self._image / "data", data)
        identity = {"version": "1", "cluster.id": self.cluster_id, "node.id": str(self.node_id)}
        formatted = data / "meta.properties"
        for line in formatted.read_text().splitlines():
            with contextlib.suppress(ValueError):
                key, value = line.split("=", 1)
                identity.setdefault(key, value)
        _write_properties(formatted, identity)
        _write_properties(folder / "server.properties", self._properties(data))

    def _properties(self, data: Path) -> dict[str, str]:
        listeners = {
            "CLIENT": (self.client_port, self.advertised_client_port),
            "INTERNAL": (self.internal_port, self.internal_port),
        }
        properties = {
            **_SERVER_PROPERTIES,
            "node.id": str(self.node_id),
            "controller.quorum.voters": f"{self.node_id}@{LOOPBACK}:{self._controller_port}",
            "log.dirs": str(data),
            "metric.reporters": _TELEMETRY_PLUGIN if self._telemetry_plugin else "",
            "testbed.telemetry.log": "true",
        }
        if self.sasl_port is not None and self.advertised_sasl_port is not None:
            listeners["SASL"] = (self.sasl_port, self.advertised_sasl_port)
            properties.update(_sasl_properties())
        bound = {name: port for name, (port, _) in listeners.items()} | {"CONTROLLER": self._controller_port}
        properties["listeners"] = _listener_list(bound)
        properties["advertised.listeners"] = _listener_list(
            {name: advertised for name, (_, advertised) in listeners.items()}
        )
        return properties | self._extra


def _listener_list(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items())


def _sasl_properties() -> dict[str, str]:
    users = " ".join(f'user_{name}="{password}"' for name, password in SASL_USERS.items())
    security = "org.apache.kafka.common.security"
    return {
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl.plain.sasl.jaas.config": f"{security}.plain.PlainLoginModule required {users};",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{security}.scram.ScramLoginModule required;",
    }


def _write_properties(file: Path, properties: Mapping[str, str]) -> None:
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
