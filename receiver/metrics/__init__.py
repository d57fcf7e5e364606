"""The receiver's own metrics: event counters, and gauges read at each scrape.

Owns the names, labels and series of ``/metrics``, and the bound on their number. It must not log or
decide anything: no count changes a response to a client.
"""

from receiver.metrics.labels import OTHER, SoftwareLabels
from receiver.metrics.receiver_metrics import ReceiverMetrics
from receiver.metrics.relay_metrics import RelayMetrics, replay
from receiver.metrics.sources import ProcessNumbers, Sources

__all__ = [
    "OTHER",
    "ProcessNumbers",
    "ReceiverMetrics",
    "RelayMetrics",
    "SoftwareLabels",
    "Sources",
    "replay",
]
