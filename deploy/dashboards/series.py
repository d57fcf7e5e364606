"""PromQL of clients' metrics: names in Prometheus, selections, rates.

The names are those of the plugin `prometheus`, and of OpenTelemetry's rules for collectors.
"""

from __future__ import annotations

from typing import Final

from deploy.dashboards.metrics import standard
from deploy.dashboards.units import unit_of
from plugins._shared.cumulative import Kind
from plugins.prometheus.names import metric_name
from receiver.catalogue import Combination, MetricKind

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


def whole(name: str, *more: str) -> str:
    """Return the selector of a metric's series, without those that break others down.

    Java consumers push `records.consumed.total` once for the client and once for each topic. Only
    the first kind counts each record once. ``more`` are further matchers.
    """
    metric = standard(name)
    further = {label for level in metric.by[1:] for label in level} - set(metric.by[0])
    return _selector(name, *more, *(f'{label}=""' for label in sorted(further)))


def by_topic(name: str, *more: str) -> str:
    """Return the selector of a metric's series with a topic; ``more`` are further matchers."""
    return _selector(name, *more, 'topic!=""')


def selected(name: str) -> str:
    """Return the selector of a metric's series of the chosen clients."""
    return whole(name, SELECTED)


def rate(name: str) -> str:
    """Return the rate of a counter's selected series."""
    return f"rate({selected(name)}[{WINDOW}])"


def of_instance(name: str, selector: str, window: str) -> str:
    """Return an expression with one value for each client instance, in the unit of panels."""
    metric = standard(name)
    by = "cluster_id, client_software_name, client_instance_id"
    if metric.combines is Combination.SUM:
        _, factor = unit_of(metric)
        scale = "" if factor == 1.0 else f"{factor:g} * "
        return f"{scale}sum by ({by}) (rate({selector}[{window}]))"
    # A small share of time in poll is the problem.
    worst = "min" if ".ratio." in name else "max"
    return f"{worst} by ({by}) ({selector})"


def _selector(name: str, *matchers: str) -> str:
    return f"{series(name)}{{{','.join(matchers)}}}"


_SIGNS: Final = [
    series(f"{role}.{name}")
    for role in ("producer", "consumer")
    for name in ("connection.creation.total", "node.request.latency.avg")
]
#: The series of which each producer and each consumer has at least one.
EVERY_CLIENT: Final = f'{{__name__=~"{"|".join(_SIGNS)}",{SELECTED}}}'
