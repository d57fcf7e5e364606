"""Settings of the prometheus plugin and the checks between them.

It opens secret files only, and no socket.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator

from plugins._shared.cumulative import DEFAULT_MAX_BYTES
from plugins._shared.destination import PROTOCOL_HEADERS, check_endpoint, check_headers
from plugins.prometheus.trust import ATTRIBUTE_PREFIX, PROMETHEUS_LABELS
from receiver.plugin import PluginConfig
from receiver.plugin.secret import FILES_ARE_ELSEWHERE, Secret
from receiver.plugin.tls import TlsConfig
from spark_streaming.scraping.web import Web

#: Resource attributes that are labels of each series by default.
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


class RemoteWriteConfig(PluginConfig):
    """Settings of a remote write destination."""

    url: str
    """Where to POST, with its path, for example `http://127.0.0.1:9090/api/v1/write`; `https://` is
    TLS."""
    version: Literal["1.0", "2.0"] = "2.0"
    """2.0 also sends types, units and start times. Set 1.0 for a destination without 2.0."""
    headers: dict[str, Secret] = Field(default={})
    """Headers of every request. Each value is a secret: text, or `{file: PATH}`."""
    timeout_ms: int = Field(default=10_000, ge=1, le=600_000)
    """Timeout of one request, after which it is retried."""
    tls: TlsConfig | None = None
    """Certificates; null: the default authorities and no client certificate."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        check_endpoint(url, grpc=False)
        if urlsplit(url).path in {"", "/"}:
            raise ValueError("needs the path too; Prometheus's own is /api/v1/write")
        return url

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, Secret]) -> dict[str, Secret]:
        check_headers(headers, _RESERVED_HEADERS)
        return headers

    @field_validator("tls")
    @classmethod
    def _check_tls_needs_https(cls, tls: TlsConfig | None, info: ValidationInfo) -> TlsConfig | None:
        if tls is not None and info.data.get("url", "https://").startswith("http://"):
            raise ValueError("the url is http://, which is plaintext: write https://, or leave tls out")
        return tls


class PrometheusConfig(PluginConfig):
    """Settings of the prometheus plugin."""

    bind: str | None = None
    """Address of the scrape endpoint: `host:port`, for example `127.0.0.1:9464`; the path is
    `/metrics`. Without `web_config_file` everyone who can connect can read it. null: no scrape
    endpoint."""
    web_config_file: Path | None = None
    """TLS and logins of the scrape endpoint: a web configuration file of Prometheus, with
    `tls_server_config` and `basic_auth_users`. It and the certificates are read again when they
    change. null: plaintext, and no login."""
    remote_write: RemoteWriteConfig | None = None
    """Destination of remote write; null: no remote write."""
    linger_s: int = Field(default=60, ge=0, le=3600)
    """How long scrapes still show the series of a client after its last push. Set it to the longest
    scrape interval."""
    resource_labels: tuple[str, ...] = DEFAULT_RESOURCE_LABELS
    """Resource attributes of a client that are labels of each of its series. The others are labels
    of `target_info`."""
    job: str = Field(default="kafka_clients", min_length=1, max_length=200)
    """The `job` label of every client. No attribute of a client changes it."""
    metric_prefixes: tuple[str, ...] = Field(default=("org.apache.kafka.",), max_length=100)
    """Prefixes of OTLP metric names that keep their names in Prometheus; an empty prefix allows
    all. Other metrics get the prefix `client_metric_`, and so do names that Prometheus or the
    receiver uses, for example `up`."""
    allowed_hosts: tuple[str, ...] = Field(default=(), max_length=100)
    """Host names that a scrape may use, without a port. IP addresses, `localhost` and the host of
    `bind` are always allowed; a scrape by another name is answered with 421."""
    max_series: int = Field(default=40_000, ge=1, le=100_000_000)
    """Bound on series. When `max_series` or `max_bytes` is reached, series of the peer with the
    most end. A peer is a principal, or a source address of clients without a login."""
    max_bytes: int = Field(default=DEFAULT_MAX_BYTES, ge=1_000_000, le=1 << 40)
    """Bound on the estimated memory of all series in bytes. A Java producer with 108 series counts
    as 300 kB. Keep it well below the memory limit of the container."""

    @field_validator("bind")
    @classmethod
    def _address(cls, bind: str | None) -> str | None:
        if bind is not None:
            _host_and_port(bind)
        return bind

    @field_validator("web_config_file")
    @classmethod
    def _check_web_config(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        if info.context is not FILES_ARE_ELSEWHERE:
            Web(path)
        return path

    @field_validator("resource_labels")
    @classmethod
    def _labels(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _LABEL_NAME.fullmatch(name) or name.startswith("__"):
                raise ValueError(f"{name!r} is no label name; use letters, digits and _")
            if name in PROMETHEUS_LABELS:
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
    def _check_has_output(self) -> PrometheusConfig:
        if self.bind is None and self.remote_write is None:
            raise ValueError("needs bind, for example 127.0.0.1:9464, or remote_write, or both")
        if self.bind is None and self.web_config_file is not None:
            raise ValueError("web_config_file is for the scrape endpoint: set bind, or leave it out")
        return self

    @property
    def address(self) -> tuple[str, int] | None:
        """The address of the scrape endpoint; None if there is none."""
        return None if self.bind is None else _host_and_port(self.bind)


def _host_and_port(bind: str) -> tuple[str, int]:
    host, _, port = bind.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise ValueError("must be host:port, for example 127.0.0.1:9464 or [::1]:9464")
    return host, int(port)
