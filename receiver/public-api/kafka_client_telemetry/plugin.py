"""The plugin contract under its public name: ``from kafka_client_telemetry import plugin``.

The public names are exactly those of :mod:`receiver.plugin`, which documents them and the
lifecycle.
"""

from __future__ import annotations

from receiver.plugin import (
    OTLP_CONTENT_TYPE,
    BatchRefusedError,
    ClientTelemetryContext,
    ClientTelemetryPayload,
    ClientTelemetryReceiver,
    ExportError,
    ExportResult,
    PermanentError,
    PluginConfig,
    Push,
    PushIdentity,
    RetryableError,
    Secret,
    TlsConfig,
)

__all__ = [
    "OTLP_CONTENT_TYPE",
    "BatchRefusedError",
    "ClientTelemetryContext",
    "ClientTelemetryPayload",
    "ClientTelemetryReceiver",
    "ExportError",
    "ExportResult",
    "PermanentError",
    "PluginConfig",
    "Push",
    "PushIdentity",
    "RetryableError",
    "Secret",
    "TlsConfig",
]
