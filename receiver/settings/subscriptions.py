"""Settings of the store of subscriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from receiver.settings.base import Settings
from receiver.settings.hostport import HostPorts
from receiver.settings.kafka_options import checked_login, checked_options

_SQLITE_FILE: Final = Path("./subscriptions.db")
_Options = Annotated[dict[str, Any], AfterValidator(checked_options), AfterValidator(checked_login)]

_COPY: Final = Path("./subscriptions-kafka.json")


class KafkaStoreSettings(Settings):
    """The cluster whose CLIENT_METRICS resources are the subscriptions."""

    bootstrap_servers: HostPorts
    """Brokers to connect to first, `host:port,host:port`: a listener that does not lead through the
    sidecar, so that subscriptions don't wait for it."""
    # Not in the repr, because it may hold a password.
    options: _Options = Field(default={}, repr=False)
    """Client options: `security.protocol`, `sasl.mechanism`, `sasl.username`, `sasl.password`,
    `ssl.ca.location` and others ([list](subscription-stores.md#client-options)). Those of a login
    may be `{file: PATH}`, which is read at each connection."""
    topic: str = Field(
        default="kafka-telemetry-subscriptions", pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,248}$"
    )
    """Compacted topic for settings that Kafka has no key for. It is created when it is needed
    first."""


class SubscriptionStoreSettings(Settings):
    """The store of subscriptions."""

    store: Literal["sqlite", "file", "kafka"] = "sqlite"
    """Type of the store. `sqlite`: a file of this receiver, changed over REST. `file`: a folder of
    YAML files, changed there only. `kafka`: the cluster's CLIENT_METRICS resources, changed over
    REST and by Kafka's tools."""
    path: Path | None = None
    """With `sqlite`: the file, by default `./subscriptions.db`; it is created with mode 0600 if it
    does not exist. With `file`: the folder, required. With `kafka`: the local copy, by default
    `./subscriptions-kafka.json`."""
    kafka: KafkaStoreSettings | None = None
    accept_loss: bool = False
    """Let a reload change to a store that lacks subscriptions which are in force, or that can't be
    read. Otherwise such a reload is refused and names them; `kafka-telemetry subscriptions copy`
    copies them before."""
    kafka_tools: bool = True
    """Answer `kafka-client-metrics.sh`, `kafka-configs.sh` and other clients that read and write
    client metrics resources through a listener, where its broker does not keep these resources
    (before Kafka 3.7, Redpanda). The broker decides who may."""

    @property
    def sqlite_file(self) -> Path:
        """The file of the store `sqlite`."""
        return self.path or _SQLITE_FILE

    @property
    def folder(self) -> Path:
        """The folder of the store `file`."""
        assert self.path is not None, "a validator checks it"  # noqa: S101
        return self.path

    @property
    def copy_file(self) -> Path:
        """The local copy of the store `kafka`."""
        return self.path or _COPY

    @model_validator(mode="after")
    def _parts_of_the_store(self) -> Self:
        if self.store == "file" and self.path is None:
            raise ValueError(
                "path: required with store: file; set it to the folder of YAML files, "
                "for example path: ./subscriptions.d"
            )
        if self.store == "kafka" and self.kafka is None:
            raise ValueError(
                "kafka: required with store: kafka; set kafka: {bootstrap_servers: "
                '"127.0.0.1:29093"} to a listener of the brokers'
            )
        if self.store != "kafka" and self.kafka is not None:
            raise ValueError(f"kafka: has no effect with store: {self.store}; set store: kafka, or omit it")
        return self
