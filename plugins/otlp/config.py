"""Settings of the otlp plugin and the checks between them.

It opens secret files only, and no socket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator

from plugins._shared.cumulative import DEFAULT_MAX_BYTES
from plugins._shared.destination import PROTOCOL_HEADERS, check_endpoint, check_headers
from receiver.plugin import PluginConfig
from receiver.plugin.secret import Secret
from receiver.plugin.tls import TlsConfig

#: OTLP/HTTP's default path for metrics (OTLP specification, "OTLP/HTTP Request").
METRICS_PATH = "/v1/metrics"

#: For more endpoints, use a load balancer.
MAX_ENDPOINTS = 64


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One OTLP destination: its URL as the operator wrote it, already checked."""

    text: str

    @property
    def secure(self) -> bool:
        """Whether the endpoint uses TLS."""
        return self.text.startswith("https://")

    @property
    def target(self) -> str:
        """The target of the gRPC channel."""
        return f"dns:///{urlsplit(self.text).netloc}"

    @property
    def url(self) -> str:
        """The URL of HTTP POSTs, with the default path if the operator gave none."""
        url = urlsplit(self.text)
        return url._replace(path=METRICS_PATH).geturl() if url.path in {"", "/"} else self.text


class OtlpConfig(PluginConfig):
    """Settings of the otlp plugin."""

    # Declared before the endpoints, because their check reads it.
    protocol: Literal["grpc", "http"] = "grpc"
    """OTLP's transport."""
    endpoint: str | None = None
    """Where to export: `http://host:port` in plaintext, `https://host:port` with TLS. gRPC needs
    the port (4317 is usual); HTTP posts to `/v1/metrics` unless the endpoint has a path. Set this
    or `endpoints`."""
    endpoints: list[str] | None = Field(default=None, min_length=1, max_length=MAX_ENDPOINTS)
    """Several endpoints, which take turns. An endpoint that fails is skipped for a while, and the
    others get its exports. Replaces `endpoint`."""
    headers: dict[str, Secret] = Field(default={})
    """Headers (gRPC: metadata) of every export. Each value is a secret: text, or `{file: PATH}`."""
    compression: Literal["none", "gzip"] = "none"
    """Compression of an export."""
    timeout_ms: int = Field(default=10_000, ge=1, le=600_000)
    """Timeout of one export to one endpoint, after which it is retried."""
    temporality: Literal["as_received", "cumulative"] = "as_received"
    """`as_received`: export pushes with the temporality that clients sent. `cumulative`: convert
    deltas to totals since the receiver first saw the client."""
    naming: Literal["kafka", "otel", "both"] = "kafka"
    """Names of attributes. `otel`: OpenTelemetry's, such as `messaging.client.id` for `client_id`
    and `messaging.destination.name` for `topic`. `both`: these and Kafka's."""
    max_series: int = Field(default=40_000, ge=1, le=100_000_000)
    """With `cumulative`: bound on series. When `max_series` or `max_bytes` is reached, series of
    the peer with the most end. A peer is a principal, or a source address of clients without a
    login."""
    max_bytes: int = Field(default=DEFAULT_MAX_BYTES, ge=1_000_000, le=1 << 40)
    """With `cumulative`: bound on the estimated memory of all series in bytes. Keep it well below
    the memory limit of the container."""
    tls: TlsConfig | None = None
    """Certificates; null: the default authorities and no client certificate."""

    @field_validator("endpoint", "endpoints")
    @classmethod
    def _check_endpoints(cls, given: str | list[str] | None, info: ValidationInfo) -> str | list[str] | None:
        grpc = info.data.get("protocol") == "grpc"
        if isinstance(given, str):
            check_endpoint(given, grpc=grpc)
            return given
        for url in given or ():
            try:
                check_endpoint(url, grpc=grpc)
            except ValueError as error:
                raise ValueError(f"{url!a}: {error}") from None
        places: dict[str, str] = {}
        for url in given or ():
            place = Endpoint(url).url
            if place in places:
                raise ValueError(f"{places[place]} and {url} are one endpoint: leave one out")
            places[place] = url
        return given

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, Secret]) -> dict[str, Secret]:
        check_headers(headers, PROTOCOL_HEADERS)
        for name in headers:
            if name.startswith("grpc-"):
                raise ValueError(f"{name} is set by the protocol: leave it out")
            if name.endswith("-bin"):
                raise ValueError(f"{name}: binary headers (-bin) are not supported")
        return headers

    @field_validator("tls")
    @classmethod
    def _check_tls_needs_https(cls, tls: TlsConfig | None, info: ValidationInfo) -> TlsConfig | None:
        urls = [info.data.get("endpoint"), *(info.data.get("endpoints") or ())]
        if tls is not None and any(url is not None and url.startswith("http://") for url in urls):
            raise ValueError("the endpoint is http://, which is plaintext: write https://, or leave tls out")
        return tls

    @model_validator(mode="after")
    def _check_one_of_endpoint_and_endpoints(self) -> OtlpConfig:
        if self.endpoint is None and self.endpoints is None:
            raise ValueError("needs endpoint, for example http://127.0.0.1:4317, or endpoints, a list")
        if self.endpoint is not None and self.endpoints is not None:
            raise ValueError("has endpoint and endpoints: write all into endpoints, and leave endpoint out")
        return self

    @property
    def all_endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints of ``endpoint`` or ``endpoints``."""
        urls = self.endpoints or ([] if self.endpoint is None else [self.endpoint])
        return tuple(Endpoint(url) for url in urls)
