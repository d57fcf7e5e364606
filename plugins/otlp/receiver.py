"""The otlp plugin: joins the pushes of a batch into one request."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from plugins.otlp.balance import BalancedTransport, Transport
from plugins.otlp.config import Endpoint, OtlpConfig
from plugins.otlp.cumulative_exports import CumulativeExports
from plugins.otlp.grpc_transport import GrpcTransport
from plugins.otlp.http_transport import HttpTransport
from plugins.otlp.naming import renamed
from receiver.plugin import (
    ClientTelemetryReceiver,
    ExportError,
    ExportResult,
    PluginConfig,
    Push,
    RetryableError,
)


class OtlpReceiver(ClientTelemetryReceiver):
    """Exports pushes over OTLP (opentelemetry.io/docs/specs/otlp)."""

    Config: ClassVar[type[OtlpConfig]] = OtlpConfig
    #: Protobuf has no limit. The operator's ``batch`` settings apply.
    max_batch_items = 100_000

    def __init__(self, config: OtlpConfig) -> None:
        super().__init__(config)
        self._config = config
        self._transport = _transport(config)
        self._cumulative = CumulativeExports(config) if config.temporality == "cumulative" else None

    def start(self) -> None:
        """Open the transport without waiting for the destination."""
        self._transport.open()

    def use_config(self, config: PluginConfig) -> None:
        """Connect anew with changed headers and certificates; cumulative sums go on."""
        assert isinstance(config, OtlpConfig)  # noqa: S101 - the host checked it as Config
        transport = _transport(config)
        try:
            transport.open()
        except BaseException:
            transport.close()
            raise
        before, self._transport = self._transport, transport
        self.config = self._config = config
        before.close()

    def export_batch(self, pushes: Sequence[Push]) -> ExportResult | None:
        """Export pushes in one request; none if no push has metrics.

        Returns:
            None, or the points that the destination rejected (OTLP's partial success) or that
            cannot be made cumulative, or that nothing was sent.
        """
        if self._cumulative is None:
            body = b"".join([push.payload.data for push in pushes])
            return self._send(body) if body else ExportResult(sent=False)
        return self._cumulative.export(pushes, self._send)

    def _send(self, body: bytes) -> ExportResult | None:
        naming = self._config.naming
        return self._transport.export(body if naming == "kafka" else renamed(body, both=naming == "both"))

    def stop(self) -> None:
        """Close the connection."""
        self._transport.close()

    def check_destination(self, timeout_s: float) -> str:
        """Send each endpoint a request without metrics.

        Raises:
            ExportError: An endpoint does not answer, answers as no OTLP endpoint does, or refuses
                the request, for example its token.
        """
        transports = _transports(self._config.model_copy(update={"timeout_ms": int(timeout_s * 1000)}))
        with ThreadPoolExecutor(len(transports)) as pool:
            failures = [error for error in pool.map(_problem, transports) if error is not None]
        if failures:
            raise failures[0]
        names = ", ".join(endpoint.text for endpoint, _ in transports)
        return f"{names}: takes OTLP over {self._config.protocol}"


def _transport(config: OtlpConfig) -> Transport:
    transports = _transports(config)
    # The host's circuit breaker of the plugin covers a single endpoint.
    if len(transports) == 1:
        return transports[0][1]
    return BalancedTransport(transports, timeout_s=config.timeout_ms / 1000)


def _transports(config: OtlpConfig) -> list[tuple[Endpoint, Transport]]:
    transport_type = GrpcTransport if config.protocol == "grpc" else HttpTransport
    return [(endpoint, transport_type(config, endpoint)) for endpoint in config.all_endpoints]


def _problem(route: tuple[Endpoint, Transport]) -> ExportError | None:
    """Return why an endpoint does not take a request without metrics; None if it does."""
    endpoint, transport = route
    try:
        transport.open()
        transport.export(b"")
    except ExportError as error:
        error.reason = f"{endpoint.text}: {error.reason}"
        return error
    except OSError as error:
        return RetryableError(f"{endpoint.text}: {error}")
    finally:
        transport.close()
    return None
