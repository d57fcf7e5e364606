"""Tells Prometheus what clients push: to be scraped, and by remote write.

Owns Prometheus's side of the translation: names, labels, samples, both text formats, both versions of remote
write. How deltas become cumulative is ``plugins._shared.cumulative``'s.
"""

from plugins.prometheus.config import PrometheusConfig
from plugins.prometheus.receiver import PrometheusReceiver

__all__ = ["PrometheusConfig", "PrometheusReceiver"]
