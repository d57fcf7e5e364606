"""Takes pushes to an OpenTelemetry Collector, or to whatever else speaks OTLP, over gRPC or HTTP.

Owns what the OTLP specification asks of an exporter: the request, the compression, which answers are worth
another try, and partial success. Queues, batches and back-off are the host's.
"""

from plugins.otlp.config import OtlpConfig
from plugins.otlp.receiver import OtlpReceiver

__all__ = ["OtlpConfig", "OtlpReceiver"]
