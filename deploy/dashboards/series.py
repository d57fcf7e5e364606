"""PromQL of clients' metrics: names in Prometheus, selections, rates.

The names are those of the plugin `prometheus`, and of OpenTelemetry's rules for collectors.
"""

from __future__ import annotations

from typing import Final

from deploy.dashboards.metrics import standard
from plugins._shared.cumulative import Kind
from plugins.prometheus.names import metric_name
from receiver.catalogue import MetricKind

__all__ = ["EVERY_CLIENT", "SELECTED", "WINDOW", "rate", "selected", "series"]

#: What the variables of the dashboards select. "All" is `.*`, which also matches a missing label.
SELECTED: Final = (
    'cluster_id=~"$cluster",client_software_name=~"$software",principal=~"$principal",'
    'group_id=~"$group",client_id=~"$client_id"'
)
#: The time of rates. Clients push totals once in an interval, so it has several pushes.
WINDOW: Final = "$window"


def series(name: str) -> str:
    """Return the name in Prometheus of a metric, which is named without ``org.apache.kafka.``."""
    metric = standard(name)
    kind = Kind.COUNTER if metric.kind is MetricKind.SUM else Kind.GAUGE
    return metric_name(metric.name, metric.unit or "", kind).name


def selected(name: str, more: str = "") -> str:
    """Return the selector of a metric's series; ``more`` are further matchers."""
    return f"{series(name)}{{{','.join(filter(None, (SELECTED, more)))}}}"


def rate(name: str) -> str:
    """Return the rate of a counter's selected series."""
    return f"rate({selected(name)}[{WINDOW}])"


_SIGNS: Final = [
    series(f"{role}.{name}")
    for role in ("producer", "consumer")
    for name in ("connection.creation.total", "node.request.latency.avg")
]
#: The series of which each producer and each consumer has at least one.
EVERY_CLIENT: Final = f'{{__name__=~"{"|".join(_SIGNS)}",{SELECTED}}}'
