"""Which names in Prometheus a client may choose, and which belong to the receiver.

Owns the reserved label names and the metric names that clients may use. Whatever a client names like one of
the receiver's own gets a prefix, so that no query takes a client's word for the receiver's. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from plugins._shared.cumulative import Kind
from plugins.prometheus.names import MetricName, metric_name
from receiver.catalogue import CATALOGUE, MetricKind

__all__ = [
    "ATTRIBUTE_PREFIX",
    "METRIC_PREFIX",
    "RECEIVER_LABELS",
    "MetricNames",
    "client_label",
    "reserved_labels",
]

#: What a client's attribute gets in front of its name where the name is reserved.
ATTRIBUTE_PREFIX: Final = "attribute_"
#: What a client's metric gets in front of its name where the operator has not allowed the name.
METRIC_PREFIX: Final = "client_metric_"

#: Attributes of a Resource that the receiver sets and removes from what clients send.
RECEIVER_LABELS: Final = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
        "principal",
        "broker_id",
        "listener",
        "security_protocol",
        "cluster_id",
        "sasl_mechanism",
    }
)
#: Labels with a meaning in Prometheus.
_PROMETHEUS_LABELS: Final = frozenset({"job", "instance", "le", "quantile"})

_KINDS: Final = {
    MetricKind.GAUGE: Kind.GAUGE,
    MetricKind.SUM: Kind.COUNTER,
    MetricKind.HISTOGRAM: Kind.HISTOGRAM,
}


def reserved_labels(names: Iterable[str]) -> frozenset[str]:
    """Label names that no attribute of a client may become.

    Args:
        names: Attributes of the Resource that are labels of each series.
    """
    return RECEIVER_LABELS | _PROMETHEUS_LABELS | frozenset(names)


def client_label(name: str, reserved: frozenset[str]) -> str:
    """Name a label that a client chose.

    ``exported_`` is reserved too: Prometheus renames the receiver's own labels so where a scrape does not set
    ``honor_labels``, and lets a label that has such a name already keep it.
    """
    if name in reserved or name.startswith(("__", "exported_")):
        return ATTRIBUTE_PREFIX + name
    return name


class MetricNames:
    """Names the metrics of clients.

    A metric keeps its name if it begins with an allowed prefix. A metric of the catalogue keeps it only if it
    has the catalogue's type, so that no client can change the type of a standard metric. All others get
    :data:`METRIC_PREFIX`: so no client can write ``up``, ``ALERTS`` or another exporter's metric.

    Args:
        prefixes: Prefixes of OTLP metric names that the operator allows.
    """

    def __init__(self, prefixes: Sequence[str]) -> None:
        self._prefixes = tuple(prefixes)

    def of(self, name: str, unit: str, kind: Kind) -> MetricName:
        """Name a metric.

        Args:
            name: The OTLP metric's name.
            unit: Its unit (UCUM), may be empty.
            kind: What it is.
        """
        made = metric_name(name, unit, kind)
        allowed = name in _MADE_BY_RECEIVER or name.startswith(self._prefixes)
        if allowed and not _RESERVED.fullmatch(made.name):
            owners = [_STANDARD[one] for one in made.openmetrics if one in _STANDARD]
            if all(made.name == owner.name and made.type is owner.type for owner in owners):
                return made
        return metric_name(METRIC_PREFIX + name.replace(":", "_"), unit, kind)


#: Names that Prometheus itself or the receiver writes. No client gets them, whatever the operator allows.
_RESERVED: Final = re.compile(
    r"(up|ALERTS|ALERTS_FOR_STATE|target_info|target|scrape_.*|prometheus_.*|kafka_telemetry_.*|.*:.*)"
)
#: The receiver makes this metric where a push has more series than it may have.
_MADE_BY_RECEIVER: Final = frozenset({"kafka.client.telemetry.overflow"})


def _standard() -> dict[str, MetricName]:
    """The metric that has a name in Prometheus, for every name that a standard metric needs."""
    taken: dict[str, MetricName] = {}
    for metric in CATALOGUE:
        # Clients that tell no unit have names without one.
        for unit in {metric.unit or "", ""}:
            made = metric_name(metric.name, unit, _KINDS[metric.kind])
            taken.update(dict.fromkeys(made.openmetrics, made))
    return taken


_STANDARD: Final = _standard()
