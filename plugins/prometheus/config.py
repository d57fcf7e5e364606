"""What an operator sets for the prometheus plugin, and the rules between the settings.

Owns the checks that can be made without a connection. Opens no file but those of secrets, and no socket.
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator

from plugins._shared.cumulative import DEFAULT_MAX_BYTES
from plugins._shared.destination import PROTOCOL_HEADERS, check_endpoint, check_headers
from plugins.prometheus.trust import ATTRIBUTE_PREFIX
from receiver.plugin import PluginConfig
from receiver.plugin.secret import Secret
from receiver.plugin.tls import TlsConfig

__all__ = ["DEFAULT_RESOURCE_LABELS", "PrometheusConfig", "RemoteWriteConfig"]

#: Which of a Resource's attributes are labels of each series, unless the operator says otherwise.
DEFAULT_RESOURCE_LABELS = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "principal",
    "group_id",
    "broker_id",
    "cluster_id",
)

_RESERVED_HEADERS = PROTOCOL_HEADERS | {"x-prometheus-remote-write-version"}
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})")
#: The plugin's own labels, and those that Prometheus gives a meaning.
_OWN_LABELS = frozenset({"job", "instance", "le", "quantile"})


class RemoteWriteConfig(PluginConfig):
    """Where samples are written to by Prometheus's remote write."""

    url: str = Field(
        description="Where to POST, with its path, for example `http://127.0.0.1:9090/api/v1/write`; "
        "`https://` is TLS."
    )
    version: Literal["1.0", "2.0"] = Field(
        default="2.0",
        description="2.0 tells types, units and start times too; write 1.0 for a destination that lacks it.",
    )
    headers: dict[str, Secret] = Field(
        default={},
        description="Headers of every request. Each value is a secret: text, or `{file: PATH}`.",
    )
    timeout_ms: int = Field(
        default=10_000,
        ge=1,
        le=600_000,
        description="How long one request may take before it is tried again.",
    )
    tls: TlsConfig | None = Field(
        default=None, description="Certificates; null: the default authorities, no certificate of our own."
    )

    @field_validator("url")
    @classmethod
    def _exact(cls, url: str) -> str:
        check_endpoint(url, grpc=False)
        if urlsplit(url).path in {"", "/"}:
            raise ValueError("needs the path too; Prometheus's own is /api/v1/write")
        return url

    @field_validator("headers")
    @classmethod
    def _legal(cls, headers: dict[str, Secret]) -> dict[str, Secret]:
        check_headers(headers, _RESERVED_HEADERS)
        return headers

    @field_validator("tls")
    @classmethod
    def _needs_https(cls, tls: TlsConfig | None, info: ValidationInfo) -> TlsConfig | None:
        if tls is not None and info.data.get("url", "https://").startswith("http://"):
            raise ValueError("the url is http://, which is plaintext: write https://, or leave tls out")
        return tls


class PrometheusConfig(PluginConfig):
    """Settings of the prometheus plugin."""

    bind: str | None = Field(
        default=None,
        description="Where Prometheus scrapes: `host:port`, for example `127.0.0.1:9464`; the path is "
        "`/metrics`. Whoever can connect can read. null: no scrape endpoint.",
    )
    remote_write: RemoteWriteConfig | None = Field(
        default=None, description="Where samples are written to; null: nowhere."
    )
    linger_s: int = Field(
        default=60,
        ge=0,
        le=3600,
        description="How long the series of a client that has pushed its last are still shown to scrapes: "
        "as long as the longest scrape interval.",
    )
    resource_labels: tuple[str, ...] = Field(
        default=DEFAULT_RESOURCE_LABELS,
        description="Attributes of a client's Resource that are labels of each of its series; the others are "
        "labels of `target_info`.",
    )
    job: str = Field(
        default="kafka_clients",
        min_length=1,
        max_length=200,
        description="The label `job` of every client. No attribute of a client changes it.",
    )
    metric_prefixes: tuple[str, ...] = Field(
        default=("org.apache.kafka.",),
        max_length=100,
        description="Prefixes of OTLP metric names that keep their names in Prometheus; an empty prefix "
        "allows all. Other metrics get the prefix `client_metric_`, and so do names that Prometheus or the "
        "receiver writes, `up` for example.",
    )
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        max_length=100,
        description="Host names by which Prometheus scrapes, without a port. IP addresses, `localhost` and "
        "the host of `bind` are always allowed; a scrape by another name is answered 421.",
    )
    max_series: int = Field(
        default=40_000,
        ge=1,
        le=100_000_000,
        description="Bound on series. When `max_series` or `max_bytes` is reached, room is taken from the "
        "peer that holds most: a principal, or a source address of clients that have not logged in.",
    )
    max_bytes: int = Field(
        default=DEFAULT_MAX_BYTES,
        ge=1_000_000,
        le=1 << 40,
        description="Bound on the memory of all series in bytes, as the plugin estimates it. A Java producer "
        "with 108 series counts for 300 kB. Keep it well below the memory limit of the container.",
    )

    @field_validator("bind")
    @classmethod
    def _address(cls, bind: str | None) -> str | None:
        if bind is not None:
            _host_and_port(bind)
        return bind

    @field_validator("resource_labels")
    @classmethod
    def _labels(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _LABEL_NAME.fullmatch(name) or name.startswith("__"):
                raise ValueError(f"{name!r} is no label name; use letters, digits and _")
            if name in _OWN_LABELS:
                raise ValueError(f"{name} is set by the plugin: leave it out")
            if name.startswith(("exported_", ATTRIBUTE_PREFIX)):
                raise ValueError(f"{name} has a prefix that clients' own labels get: leave it out")
        return names

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _HOST.fullmatch(host):
                raise ValueError(f"{host!r} is no host name: leave out the scheme, the port and wildcards")
        return tuple(host.lower() for host in hosts)

    @model_validator(mode="after")
    def _somewhere(self) -> PrometheusConfig:
        if self.bind is None and self.remote_write is None:
            raise ValueError("needs bind, for example 127.0.0.1:9464, or remote_write, or both")
        return self

    @property
    def address(self) -> tuple[str, int] | None:
        """Where to listen, None where there is no scrape endpoint."""
        return None if self.bind is None else _host_and_port(self.bind)


def _host_and_port(bind: str) -> tuple[str, int]:
    host, _, port = bind.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise ValueError("must be host:port, for example 127.0.0.1:9464 or [::1]:9464")
    return host, int(port)
