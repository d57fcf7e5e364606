"""The receiver's metrics of itself: what happened, counted where it happens, and what is, asked at scrape.

Owns the names, labels and series of ``/metrics``, and the bound on their number. It must not read a clock,
log, or decide anything; nothing that is counted here changes what a client is answered.
"""

from receiver.metrics.labels import OTHER, SoftwareLabels
from receiver.metrics.receiver_metrics import ReceiverMetrics
from receiver.metrics.sources import ListenerBytes, PluginFigures, Sources

__all__ = [
    "OTHER",
    "ListenerBytes",
    "PluginFigures",
    "ReceiverMetrics",
    "SoftwareLabels",
    "Sources",
]
