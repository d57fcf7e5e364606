"""The roll-up's own metrics, and the HTTP server that Prometheus scrapes.

The job and its batches report to :class:`RollupMetrics`. This package imports neither of them.
"""

from spark_streaming.metrics.rollup_metrics import RollupMetrics, Stage, StageClock
from spark_streaming.metrics.server import FindingsUnavailableError, MetricsError, MetricsServer

__all__ = [
    "FindingsUnavailableError",
    "MetricsError",
    "MetricsServer",
    "RollupMetrics",
    "Stage",
    "StageClock",
]
