"""Exports pushes over OTLP, by gRPC or HTTP.

It implements the OTLP specification's exporter: request, compression, retryable answers and partial
success. The plugin host owns queues, batches and back-off.
"""

from plugins.otlp.config import OtlpConfig
from plugins.otlp.receiver import OtlpReceiver

__all__ = ["OtlpConfig", "OtlpReceiver"]
