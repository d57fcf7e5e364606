"""What has arrived at the collector, client by client.

Owns the tally and the judgement whether a client's metrics arrived with all labels; draws nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.testbed.collector import ExportedMetric

#: The labels that the sidecar puts on every push.
LABELS: Final = frozenset(
    {
        "broker_id",
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
        "cluster_id",
        "listener",
        "principal",
        "security_protocol",
    }
)

_LATENCY: Final = ".node.request.latency.avg"


@dataclass(slots=True)
class ClientArrivals:
    """What arrived of one client.

    Attributes:
        labels: Its labels, as last seen.
        missing: Labels that some push lacked or had empty.
        names: Names of its metrics.
        points: Data points so far.
        latency_ms: Its latest average request latency in milliseconds, None before the first.
    """

    labels: Mapping[str, object] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    points: int = 0
    latency_ms: float | None = None

    @property
    def complete(self) -> bool:
        """Whether metrics came, all of them with all labels."""
        return bool(self.names) and not self.missing


class Arrivals:
    """A tally by client id, fed with what the collector exports."""

    def __init__(self, expected: Iterable[str]) -> None:
        self._clients = {client_id: ClientArrivals() for client_id in expected}

    def __getitem__(self, client_id: str) -> ClientArrivals:
        return self._clients[client_id]

    def take(self, metrics: Iterable[ExportedMetric]) -> None:
        """Count metrics that arrived."""
        for metric in metrics:
            client = self._clients.get(str(metric.resource.get("client_id")))
            if client is None:
                continue
            client.labels = metric.resource
            client.missing |= {label for label in LABELS if not metric.resource.get(label)}
            client.names.add(metric.name)
            client.points += len(metric.points)
            if metric.name.endswith(_LATENCY) and metric.points:
                value = metric.points[-1].value
                client.latency_ms = None if value is None else float(value)

    @property
    def complete(self) -> bool:
        """Whether metrics of every client arrived with all labels."""
        return all(client.complete for client in self._clients.values())
