"""Exposes clients' metrics to Prometheus: a scrape endpoint and remote write.

It translates OTLP to Prometheus: names, labels, samples, both text formats and both versions of
remote write. ``plugins._shared.cumulative`` converts deltas to cumulative values.
"""

from plugins.prometheus.config import PrometheusConfig
from plugins.prometheus.receiver import PrometheusReceiver

__all__ = ["PrometheusConfig", "PrometheusReceiver"]
