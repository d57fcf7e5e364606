"""Prefixes client-chosen names that are reserved for the receiver or Prometheus.

So no query mistakes a client's label or metric for the receiver's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from plugins._shared.cumulative import Kind, Series
from plugins.prometheus.names import MetricName, metric_name
from receiver.catalogue import CATALOGUE, MetricKind

#: Prefix of a client's attribute with a reserved name.
ATTRIBUTE_PREFIX: Final = "attribute_"
#: Prefix of a client's metric whose name the operator does not allow.
METRIC_PREFIX: Final = "client_metric_"

#: Resource attributes that the receiver sets, and removes from pushes.
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
        "client_owner",
    }
)
#: Labels with a meaning in Prometheus.
PROMETHEUS_LABELS: Final = frozenset({"job", "instance", "le", "quantile"})

_UNDESCRIBED: Final = "A metric that its clients do not describe."

_KINDS: Final = {
    MetricKind.GAUGE: Kind.GAUGE,
    MetricKind.SUM: Kind.COUNTER,
    MetricKind.HISTOGRAM: Kind.HISTOGRAM,
}


def reserved_labels(names: Iterable[str]) -> frozenset[str]:
    """Return the label names that no attribute of a client may have.

    ``names`` are the Resource attributes that are labels of each series.
    """
    return RECEIVER_LABELS | PROMETHEUS_LABELS | frozenset(names)


def client_label(name: str, reserved: frozenset[str]) -> str:
    """Name a label that a client chose.

    ``exported_`` is reserved too. Without ``honor_labels``, Prometheus renames the receiver's own
    labels so, and does not replace an existing label with that name.
    """
    if name in reserved or name.startswith(("__", "exported_")):
        return ATTRIBUTE_PREFIX + name
    return name


class MetricNames:
    """Names the metrics of clients.

    A metric with an allowed prefix keeps its name. A standard metric keeps it only with the
    catalogue's type, so that no client can change that type. All others get :data:`METRIC_PREFIX`,
    so that no client can write ``up``, ``ALERTS`` or another exporter's metric.
    """

    def __init__(self, prefixes: Sequence[str]) -> None:
        self._prefixes = tuple(prefixes)

    def of(self, name: str, unit: str, kind: Kind) -> MetricName:
        """Name an OTLP metric in Prometheus."""
        translated = metric_name(name, unit, kind)
        allowed = name in _MADE_BY_RECEIVER or name.startswith(self._prefixes)
        if allowed and not _RESERVED.fullmatch(translated.name):
            owners = [_STANDARD[used] for used in translated.openmetrics if used in _STANDARD]
            if all(translated == owner for owner in owners):
                return translated
        return metric_name(METRIC_PREFIX + name.replace(":", "_"), unit, kind)


def description(series: Series, name: MetricName) -> str:
    """Describe a metric: the catalogue's text for a standard one, then the client's.

    ``name`` is its name in Prometheus.
    """
    standard = CATALOGUE.metric(series.name)
    if standard is not None and not name.name.startswith(METRIC_PREFIX):
        return standard.description
    return series.description or _UNDESCRIBED


#: Names that Prometheus or the receiver writes. No client may use them, whatever the operator
#: allows.
_RESERVED: Final = re.compile(
    r"(up|ALERTS|ALERTS_FOR_STATE|target_info|target|scrape_.*|prometheus_.*|kafka_telemetry_.*|.*:.*)"
)
#: The receiver adds this metric to a push with too many series.
_MADE_BY_RECEIVER: Final = frozenset({"kafka.client.telemetry.overflow"})


def _standard() -> dict[str, MetricName]:
    """Map every name that a standard metric uses in Prometheus to that metric."""
    owners: dict[str, MetricName] = {}
    for metric in CATALOGUE:
        # Clients that send no unit have names without one.
        for unit in {metric.unit or "", ""}:
            translated = metric_name(metric.name, unit, _KINDS[metric.kind])
            owners.update(dict.fromkeys(translated.openmetrics, translated))
    return owners


_STANDARD: Final = _standard()
