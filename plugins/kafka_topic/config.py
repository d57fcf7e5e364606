"""Settings of the kafka_topic plugin and their librdkafka properties.

It opens secret files only, and no socket.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from receiver.plugin import PluginConfig
from receiver.plugin.endpoint import check_host_port
from receiver.plugin.existing_file import ExistingFile
from receiver.plugin.secret import Secret
from receiver.plugin.tls import TlsConfig

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class OAuthConfig(PluginConfig):
    """Client credentials (RFC 6749, section 4.4) for ``sasl_mechanism`` OAUTHBEARER."""

    token_endpoint_url: str
    """URL of the token endpoint: `https://`, or `http://`."""
    client_id: str = Field(min_length=1)
    """The sidecar's client id."""
    client_secret: Secret
    """The client secret: text, or `{file: PATH}`."""
    scope: str | None = None
    """The scope to request."""
    ca_file: ExistingFile | None = None
    """Certificate authorities of the token endpoint (PEM); null: the system's authorities."""

    @field_validator("token_endpoint_url")
    @classmethod
    def _check_token_endpoint(cls, value: str) -> str:
        try:
            url = urlsplit(value)
        except ValueError:
            raise ValueError("is no URL; write for example https://login.example.com/token") from None
        if url.scheme not in {"http", "https"} or not url.hostname or "@" in url.netloc:
            raise ValueError("must be an http:// or https:// URL without a user")
        check_host_port(url.netloc, needs_port=False)
        return value


class CreateTopic(PluginConfig):
    """Settings of a topic that the plugin creates."""

    partitions: int | None = Field(default=None, ge=1, le=100_000)
    """Number of partitions; null: the cluster's default."""
    replication_factor: int | None = Field(default=None, ge=1, le=100)
    """Number of replicas; null: the cluster's default."""
    retention_hours: int | None = Field(default=None, ge=1, le=1_000_000)
    """Retention of records, in hours; null: the cluster's default."""


class KafkaTopicConfig(PluginConfig):
    """Settings of the kafka_topic plugin, with Kafka's names."""

    bootstrap_servers: str
    """Bootstrap brokers: `host:port`, separated by commas."""
    topic: str
    """The topic."""
    create_topic: CreateTopic | None = CreateTopic()
    """How the plugin creates a missing topic, if the cluster allows it. null: it never creates
    it."""
    client_id: str = Field(default="kafka-client-telemetry", pattern=r"^[A-Za-z0-9._-]{1,249}$")
    """The sidecar's `client.id`."""
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "zstd"
    """Compression of record batches."""
    timeout_ms: int = Field(default=10_000, ge=100, le=600_000)
    """Timeout of one export: until the cluster has acknowledged its records."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Security protocol of the cluster's listener."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = None
    """SASL mechanism; required with SASL."""
    sasl_username: str | None = None
    """User name for PLAIN and SCRAM."""
    sasl_password: Secret | None = None
    """Password for PLAIN and SCRAM: text, or `{file: PATH}`."""
    oauth: OAuthConfig | None = None
    """Source of tokens for OAUTHBEARER."""
    tls: TlsConfig | None = None
    """Certificates; null: the system's authorities and no client certificate."""

    @field_validator("bootstrap_servers")
    @classmethod
    def _check_bootstrap_servers(cls, value: str) -> str:
        if "@" in value:
            raise ValueError("must not hold a user or password; use sasl_username and sasl_password")
        for server in value.split(","):
            try:
                check_host_port(server.strip())
            except ValueError as error:
                raise ValueError(f"{server.strip()}: {error}") from None
        return value

    @field_validator("topic")
    @classmethod
    def _check_topic(cls, value: str) -> str:
        if not _TOPIC.fullmatch(value) or value in {".", ".."}:
            raise ValueError("is no topic's name: 1 to 249 letters, digits, dots, - and _")
        return value

    @model_validator(mode="after")
    def _check_security(self) -> KafkaTopicConfig:
        sasl, tls = self.security_protocol.startswith("SASL"), self.security_protocol.endswith("SSL")
        if self.tls is not None and not tls:
            raise ValueError(f"tls goes with SSL; security_protocol is {self.security_protocol}")
        if sasl and self.sasl_mechanism is None:
            raise ValueError(f"security_protocol {self.security_protocol} needs sasl_mechanism")
        if not sasl and self.sasl_mechanism is not None:
            raise ValueError(f"sasl_mechanism goes with SASL; security_protocol is {self.security_protocol}")
        bearer = self.sasl_mechanism == "OAUTHBEARER"
        if bearer != (self.oauth is not None):
            raise ValueError("oauth and sasl_mechanism OAUTHBEARER go together")
        password = sasl and not bearer
        if (password, password) != (self.sasl_username is not None, self.sasl_password is not None):
            raise ValueError("sasl_username and sasl_password go with PLAIN and SCRAM, and with nothing else")
        if password and not (self.sasl_username and self.sasl_password):
            raise ValueError("sasl_username and sasl_password must not be empty")
        return self

    def client_properties(self) -> dict[str, str | int | float | bool]:
        """Return the librdkafka properties of any client, with secrets."""
        properties: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": self.client_id,
            "security.protocol": self.security_protocol,
            "allow.auto.create.topics": False,
            # Otherwise it would push metrics about writing its own metrics, in an endless loop.
            "enable.metrics.push": False,
            # librdkafka would write to stderr. Its errors reach us by callback.
            "log_level": 0,
            "reconnect.backoff.max.ms": 2_000,
            "socket.keepalive.enable": True,
        }
        password = None if self.sasl_password is None else self.sasl_password.get_secret_value()
        optional: dict[str, str | Path | None] = {
            "sasl.mechanism": self.sasl_mechanism,
            "sasl.username": self.sasl_username,
            "sasl.password": password,
        }
        if self.oauth is not None:
            optional |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": self.oauth.token_endpoint_url,
                "sasl.oauthbearer.client.id": self.oauth.client_id,
                "sasl.oauthbearer.client.secret": self.oauth.client_secret.get_secret_value(),
                "sasl.oauthbearer.scope": self.oauth.scope,
                "https.ca.location": self.oauth.ca_file,
            }
        if self.tls is not None:
            optional |= {
                "ssl.ca.location": self.tls.ca_file,
                "ssl.certificate.location": self.tls.cert_file,
                "ssl.key.location": self.tls.key_file,
            }
        return properties | {name: str(value) for name, value in optional.items() if value is not None}
