"""Counts what comes by bridges, the plugins in brokers, by broker.

A bridge reports its own counters since its start. The sums here grow by what is new, so that they
never fall while the receiver runs.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from receiver.metrics.families import counter, gauge

#: Most brokers with series of their own.
_MAX_BROKERS: Final = 1000
#: Most bridges whose last report is remembered, so that it is not added again.
_MAX_BRIDGES: Final = 4096
_OTHER: Final = "other"
_UNKNOWN: Final = "unknown"

#: A bridge's counters that are shown. The others are gauges, or of no use here.
_EVENTS: Final = (
    "received",
    "forwarded",
    "acknowledged",
    "refused",
    "resent",
    "dropped_queue_full",
    "dropped_too_large",
    "dropped_stopped",
    "dropped_error",
)


class BridgeMetrics(Collector):
    """The series of bridges, collected at every scrape."""

    def __init__(self) -> None:
        self._brokers: set[str] = set()
        self._open: dict[int, tuple[str, Mapping[str, int]]] = {}  # by connection
        self._reported: OrderedDict[bytes, Mapping[str, int]] = OrderedDict()
        self._events: Tally[tuple[str, str]] = Tally()
        self._pushes: Tally[tuple[str, str]] = Tally()
        self._refusals: Tally[str] = Tally()

    def joined(self, connection: int, node_id: int) -> None:
        """Count an open connection of a broker's bridge."""
        self._open[connection] = self._broker(node_id), {}

    def left(self, connection: int) -> None:
        """Forget a connection that has closed."""
        self._open.pop(connection, None)

    def refused(self, reason: str) -> None:
        """Count a connection that was refused or ended.

        ``reason`` must be one of a bounded set.
        """
        self._refusals[reason] += 1

    def push(self, node_id: int, result: str) -> None:
        """Count a push; ``result`` must be one of a bounded set."""
        self._pushes[self._broker(node_id), result] += 1

    def reported(self, connection: int, bridge_id: bytes, values: Mapping[str, int]) -> None:
        """Take the counters of a bridge since its start."""
        broker = self._open[connection][0]
        before = self._reported.get(bridge_id, {})
        for event in _EVENTS:
            new = values.get(event, 0) - before.get(event, 0)
            if new > 0:
                self._events[broker, event] += new
        self._reported[bridge_id] = values
        self._reported.move_to_end(bridge_id)
        if len(self._reported) > _MAX_BRIDGES:
            self._reported.popitem(last=False)
        self._open[connection] = broker, values

    def collect(self) -> Iterator[Metric]:
        """Return all series."""
        connections: Tally[str] = Tally()
        queued: dict[str, Tally[str]] = {"items": Tally(), "bytes": Tally()}
        for broker, values in self._open.values():
            connections[broker] += 1
            for unit, held in queued.items():
                held[broker] += values.get(f"queue_{unit}", 0)
        yield gauge("bridge_connections", "Open connections of bridges.", connections, "broker")
        yield gauge(
            "bridge_queue_pushes",
            "Pushes that wait in the broker or are in flight.",
            queued["items"],
            "broker",
        )
        yield gauge("bridge_queue_bytes", "Bytes of these pushes.", queued["bytes"], "broker")
        yield counter("bridge_events", "Pushes as the bridge counts them.", self._events, "broker", "event")
        yield counter("bridge_pushes", "Pushes that came by a bridge.", self._pushes, "broker", "result")
        yield counter("bridge_refusals", "Connections of bridges refused or ended.", self._refusals, "reason")

    def _broker(self, node_id: int) -> str:
        broker = str(node_id) if node_id >= 0 else _UNKNOWN
        if broker not in self._brokers:
            if len(self._brokers) >= _MAX_BROKERS:
                return _OTHER
            self._brokers.add(broker)
        return broker
