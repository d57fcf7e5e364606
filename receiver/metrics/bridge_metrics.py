"""Counts what comes by bridges, the plugins in brokers, by broker.

A bridge reports its own counters since its start. The sums here grow by what is new, so that they
never fall while the receiver runs.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_PREFIX: Final = "kafka_telemetry_bridge_"

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

    def describe(self) -> list[Metric]:
        """Return nothing, because the series depend on the brokers."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return all series."""
        connections: Tally[str] = Tally()
        queued: dict[str, Tally[str]] = {"items": Tally(), "bytes": Tally()}
        for broker, values in self._open.values():
            connections[broker] += 1
            for unit, held in queued.items():
                held[broker] += values.get(f"queue_{unit}", 0)
        yield _gauge("connections", "Open connections of bridges.", connections)
        yield _gauge("queue_pushes", "Pushes that wait in the broker or are in flight.", queued["items"])
        yield _gauge("queue_bytes", "Bytes of these pushes.", queued["bytes"])
        events = CounterMetricFamily(
            _PREFIX + "events", "Pushes as the bridge counts them.", labels=("broker", "event")
        )
        for (broker, event), count in self._events.items():
            events.add_metric((broker, event), count)
        yield events
        pushes = CounterMetricFamily(
            _PREFIX + "pushes", "Pushes that came by a bridge.", labels=("broker", "result")
        )
        for (broker, result), count in self._pushes.items():
            pushes.add_metric((broker, result), count)
        yield pushes
        refusals = CounterMetricFamily(
            _PREFIX + "refusals", "Connections of bridges refused or ended.", labels=("reason",)
        )
        for reason, count in self._refusals.items():
            refusals.add_metric((reason,), count)
        yield refusals

    def _broker(self, node_id: int) -> str:
        broker = str(node_id) if node_id >= 0 else _UNKNOWN
        if broker not in self._brokers:
            if len(self._brokers) >= _MAX_BROKERS:
                return _OTHER
            self._brokers.add(broker)
        return broker


def _gauge(name: str, text: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(_PREFIX + name, text, labels=("broker",))
    for broker, value in values.items():
        family.add_metric((broker,), value)
    return family
