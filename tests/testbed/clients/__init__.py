"""Runs real Kafka clients as processes: Java, franz-go and librdkafka.

All three programs take the same arguments (``--mode --bootstrap --topic --client-id --group --rate
--count`` and ``--properties``, a file with a ``key=value`` in the client library's own words on
each line, so that ``ps`` shows no password), run until SIGTERM, then close their client, which lets
it push its telemetry a last time. They report in JSON lines on standard output: ``started`` (mode,
version), ``counts`` (records, errors; every second), ``error`` (message), ``client_instance_id``
(id; Java alone), ``stopped`` (records, errors).
"""

from __future__ import annotations

import enum
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tests.testbed import jvm, parts
from tests.testbed.network import Host
from tests.testbed.process import ChildProcess, ScratchFolder, StopError, WaitTimeoutError, wait_until
from tests.testbed.security import Login, Security, unsecured_token

__all__ = ["Client", "FranzClient", "JavaClient", "LibrdkafkaClient", "Mode"]

_STOP_WITHIN_S = 20.0


class Mode(enum.StrEnum):
    """What a client does."""

    PRODUCER = "producer"
    CONSUMER = "consumer"


class Client(ABC):
    """A client process that starts with the context and closes cleanly at its end.

    Args:
        mode: Producer or consumer.
        bootstrap: ``host:port`` of a broker or of a sidecar in front of it, or several with commas
            between.
        topic: What it writes to or reads from (from the beginning).
        client_id: Its client id; by default language and mode.
        group: A consumer's group; by default named after topic and client id.
        rate: Records per second that a producer sends.
        count: How many it sends in all, after which it stays idle; None: as many as its life lasts.
        properties: Further client properties in the library's own words.
        security: How it secures its connections; by default not at all.
        host: The host that it runs on; None: this one.

    Attributes:
        client_id: As given or by default.
        properties: Its properties, in its library's own words.
    """

    #: What the client is called in messages and by default in its client id.
    language: ClassVar[str]

    def __init__(
        self,
        mode: Mode,
        *,
        bootstrap: str,
        topic: str,
        client_id: str | None = None,
        group: str | None = None,
        rate: float = 20.0,
        count: int | None = None,
        properties: Mapping[str, str] | None = None,
        security: Security | None = None,
        host: Host | None = None,
    ) -> None:
        self.mode = mode
        self.client_id = client_id or f"{self.language}-{mode}"
        self._arguments = {
            "--mode": str(mode),
            "--bootstrap": bootstrap,
            "--topic": topic,
            "--client-id": self.client_id,
            "--group": group or f"{topic}-{self.client_id}",
            "--rate": str(rate),
            "--count": str(-1 if count is None else count),
        }
        security = security or Security()
        self.properties = {
            "security.protocol": security.protocol,
            **self._tls_properties(security),
            **(self._login_properties(security.login) if security.login else {}),
            **(properties or {}),
        }
        self._host = host
        self._scratch: ScratchFolder | None = None
        self._process: ChildProcess | None = None

    @abstractmethod
    def _command(self) -> Sequence[str | Path]:
        """The program, without the arguments that all clients have."""

    def _tls_properties(self, security: Security) -> Mapping[str, str]:
        """Return the client's TLS properties, by default with librdkafka's names."""
        properties = {}
        if security.ca is not None:
            properties["ssl.ca.location"] = str(security.ca)
        if security.certificate is not None:
            properties["ssl.certificate.location"] = str(security.certificate.chain)
            properties["ssl.key.location"] = str(security.certificate.key)
        return properties

    def _login_properties(self, login: Login) -> Mapping[str, str]:
        """Return the client's login properties, by default with librdkafka's names."""
        return {
            "sasl.mechanism": login.mechanism,
            "sasl.username": login.user,
            "sasl.password": login.password,
        }

    def __enter__(self) -> Self:
        self._scratch = ScratchFolder("client")
        folder = self._scratch.path
        properties = folder / "client.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        words: list[str | Path] = [*self._command(), "--properties", properties]
        for name, value in self._arguments.items():
            words += [name, value]
        try:
            self._process = ChildProcess(
                f"{self.language} {self.mode}",
                words if self._host is None else self._host.command(words),
                log=folder / "client.log",
                output=folder / "status.jsonl",
                cwd=Path(__file__).parents[3],
            )
        except BaseException:
            self._scratch.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._started().running:
                self.stop()
        finally:
            self._started().kill()
            if self._scratch is not None:
                self._scratch.close()

    @property
    def pid(self) -> int:
        """The client's process id."""
        return self._started().pid

    @property
    def running(self) -> bool:
        """Whether the process is still there."""
        return self._started().running

    def status(self) -> list[dict[str, object]]:
        """The status lines so far, in order; each has an ``event``."""
        if self._scratch is None:
            return []
        text = (self._scratch.path / "status.jsonl").read_text()
        whole = text[: text.rfind("\n") + 1]  # the last line may still be being written
        return [json.loads(line) for line in whole.splitlines()]

    def _latest(self, key: str) -> object:
        return next((line[key] for line in reversed(self.status()) if key in line), None)

    @property
    def records(self) -> int:
        """Records that were acknowledged or received, by its latest report (one a second)."""
        latest = self._latest("records")
        return latest if isinstance(latest, int) else 0

    @property
    def errors(self) -> list[str]:
        """The messages of its errors so far."""
        return [str(line["message"]) for line in self.status() if line["event"] == "error"]

    @property
    def client_instance_id(self) -> str | None:
        """The id that its telemetry goes by, once it has one and tells (franz-go does not)."""
        latest = self._latest("id")
        return latest if isinstance(latest, str) else None

    def wait_for_records(self, count: int, *, timeout_s: float = 120.0) -> None:
        """Wait until it has written or read ``count`` records.

        Raises:
            WaitTimeoutError: It has not in time, or it ended; shows its errors and the tail of its
                log.
        """
        try:
            wait_until(
                lambda: self.records >= count or not self.running,
                timeout_s=timeout_s,
                what=f"{self.client_id} to get {count} records through (it has {self.records})",
            )
        except WaitTimeoutError as error:
            raise WaitTimeoutError(f"{error}; {self._trouble()}") from None
        if self.records < count:
            raise WaitTimeoutError(f"{self.client_id} ended after {self.records} records; {self._trouble()}")

    def stop(self) -> None:
        """Let it close its client, which pushes its telemetry a last time, and wait for its end.

        Raises:
            StopError: It did not stop in time or not cleanly; shows its errors and the tail of its
                log.
        """
        status = self._started().terminate(_STOP_WITHIN_S)
        if status != 0 or not any(line["event"] == "stopped" for line in self.status()):
            raise StopError(f"{self.client_id} ended with status {status}; {self._trouble()}")

    def kill(self) -> None:
        """End it at once (SIGKILL): no last push, connections are reset by the kernel."""
        self._started().kill()

    def log_text(self) -> str:
        """Everything it wrote to standard error so far."""
        return self._started().log_text()

    def _trouble(self) -> str:
        return f"errors: {self.errors[-3:]}; its log ends with:\n{self._started().log_tail()}"

    def _started(self) -> ChildProcess:
        if self._process is None:
            raise RuntimeError(f"{self.client_id} was never started: use it as a context manager")
        return self._process


class JavaClient(Client):
    """kafka-clients, of the broker's own version."""

    language = "java"

    def __init__(
        self,
        mode: Mode,
        *,
        bootstrap: str,
        topic: str,
        client_id: str | None = None,
        group: str | None = None,
        rate: float = 20.0,
        count: int | None = None,
        properties: Mapping[str, str] | None = None,
        security: Security | None = None,
        host: Host | None = None,
        jvm_flags: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(
            mode,
            bootstrap=bootstrap,
            topic=topic,
            client_id=client_id,
            group=group,
            rate=rate,
            count=count,
            properties=properties,
            security=security,
            host=host,
        )
        self._jvm_flags = jvm_flags

    def _command(self) -> Sequence[str | Path]:
        main = "kafkatelemetry.testbed.Client"
        if self._jvm_flags is not None:
            return jvm.command(main, flags=self._jvm_flags)
        archive = jvm.PRODUCER_ARCHIVE if self.mode is Mode.PRODUCER else jvm.CONSUMER_ARCHIVE
        return jvm.command(main, archive=parts.KAFKA_IMAGE.require() / archive)

    def _tls_properties(self, security: Security) -> Mapping[str, str]:
        properties = {}
        if security.ca is not None:
            properties["ssl.truststore.type"] = "PEM"
            properties["ssl.truststore.location"] = str(security.ca)
        if security.certificate is not None:
            properties["ssl.keystore.type"] = "PEM"
            properties["ssl.keystore.location"] = str(security.certificate.keystore)
        return properties

    def _login_properties(self, login: Login) -> Mapping[str, str]:
        package = "org.apache.kafka.common.security"
        credentials = f'username="{login.user}" password="{login.password}"'
        if login.mechanism == "OAUTHBEARER":
            module = "oauthbearer.OAuthBearerLoginModule"
            credentials = (
                f'unsecuredLoginPrincipalClaimName="{login.claim}" '
                f'unsecuredLoginStringClaim_{login.claim}="{login.user}"'
            )
        elif login.mechanism == "PLAIN":
            module = "plain.PlainLoginModule"
        else:
            module = "scram.ScramLoginModule"
        if login.delegation_token:
            credentials += ' tokenauth="true"'
        return {
            "sasl.mechanism": login.mechanism,
            "sasl.jaas.config": f"{package}.{module} required {credentials};",
        }


class FranzClient(Client):
    """franz-go."""

    language = "franz-go"

    def _login_properties(self, login: Login) -> Mapping[str, str]:
        if login.mechanism == "OAUTHBEARER":
            return {"sasl.mechanism": login.mechanism, "sasl.oauthbearer.token": unsecured_token(login)}
        token = {"sasl.delegation.token": "true"} if login.delegation_token else {}
        return {**super()._login_properties(login), **token}

    def _command(self) -> Sequence[str | Path]:
        return [parts.FRANZ_CLIENT.require() / "franz-client"]


class LibrdkafkaClient(Client):
    """librdkafka, by way of confluent-kafka."""

    language = "librdkafka"

    def _login_properties(self, login: Login) -> Mapping[str, str]:
        if login.delegation_token:
            raise ValueError("librdkafka can't log in with a delegation token")
        if login.mechanism == "OAUTHBEARER":
            return {
                "sasl.mechanism": login.mechanism,
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": f"principalClaimName={login.claim} principal={login.user}",
            }
        return super()._login_properties(login)

    def _command(self) -> Sequence[str | Path]:
        return [sys.executable, "-m", "tests.testbed.clients.librdkafka"]

    @property
    def client_instance_id(self) -> str | None:
        """The client instance id, which librdkafka only logs, in ordinary base64."""
        ids = re.findall(r"instance id changed from \S+ to ([A-Za-z0-9+/]{22})", self.log_text())
        return ids[-1].translate(str.maketrans("+/", "-_")) if ids else None
