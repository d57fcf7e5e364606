"""OTLP over gRPC: one channel and one unary call without serialisers."""

from __future__ import annotations

from typing import Any

import grpc

from plugins._shared.destination import USER_AGENT, redact, tls_context
from plugins.otlp import status
from plugins.otlp.config import Endpoint, OtlpConfig
from receiver.plugin import ExportResult, RetryableError

_METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_DETAILS = "grpc-status-details-bin"


class GrpcTransport:
    """Exports over a gRPC channel, which connects and reconnects by itself."""

    def __init__(self, config: OtlpConfig, endpoint: Endpoint) -> None:
        self._config = config
        self._endpoint = endpoint
        self._timeout_s = config.timeout_ms / 1000
        self._metadata = tuple((name, value.get_secret_value()) for name, value in config.headers.items())
        self._compression = grpc.Compression.Gzip if config.compression == "gzip" else None
        self._channel: Any = None
        self._export: Any = None

    def open(self) -> None:
        """Create the channel; see :class:`plugins.otlp.balance.Transport`."""
        options = [
            ("grpc.primary_user_agent", USER_AGENT),
            # No proxy: only the configuration decides where telemetry goes.
            ("grpc.enable_http_proxy", 0),
            # The host retries. During gRPC's back-off of up to two minutes its attempts would fail
            # without a connection attempt.
            ("grpc.max_reconnect_backoff_ms", 5000),
        ]
        if self._endpoint.secure:
            self._channel = grpc.secure_channel(self._endpoint.target, self._credentials(), options)
        else:
            self._channel = grpc.insecure_channel(self._endpoint.target, options)
        # Without serialisers, requests and answers are bytes.
        self._export = self._channel.unary_unary(_METHOD)

    def export(self, body: bytes) -> ExportResult | None:
        """Send a request; see :class:`plugins.otlp.balance.Transport`."""
        try:
            answer = self._export(
                body, timeout=self._timeout_s, metadata=self._metadata, compression=self._compression
            )
        except grpc.RpcError as error:
            raise self._export_error(error) from None
        try:
            return status.result(answer)
        except ValueError as error:
            raise RetryableError(
                f"OK with an unreadable answer ({error}), so this is no OTLP endpoint"
            ) from None

    def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _credentials(self) -> Any:
        tls = self._config.tls
        # gRPC reports an invalid file only when it connects, and does not name it.
        tls_context(self._config)
        if tls is None:
            return grpc.ssl_channel_credentials()
        return grpc.ssl_channel_credentials(
            root_certificates=tls.ca_file.read_bytes() if tls.ca_file else None,
            private_key=tls.key_file.read_bytes() if tls.key_file else None,
            certificate_chain=tls.cert_file.read_bytes() if tls.cert_file else None,
        )

    def _export_error(self, error: Any) -> Exception:
        code: grpc.StatusCode = error.code()
        reason = redact(f"{code.name}: {error.details() or ''}", self._config)
        details = next((value for key, value in error.trailing_metadata() or () if key == _DETAILS), None)
        return status.grpc_error(code, reason, details)
