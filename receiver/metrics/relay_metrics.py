"""Counts events in a relay, and has the core count them for ``/metrics``.

The core's counters are the only ones. They hold what relays reported, also after a relay has died.
Events are added up while the core is away. Their number is bounded, because all labels are from
bounded sets, and times are counted by the bucket of their histogram.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from receiver.metrics.connect_times import connect_bucket
from receiver.metrics.labels import mechanism_label
from receiver.metrics.receiver_metrics import ReceiverMetrics
from receiver.session.effects import LoginOutcome
from receiver.telemetry.control.limits import Exceeded
from receiver.wire.api_keys import api_name
from receiver.wire.error_codes import error_name

#: Name of the event, labels, and how often it happened or the value that was observed.
MetricEvent: TypeAlias = tuple[str, tuple[str, ...], float]


class RelayMetrics:
    """The events of one relay since its last report."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, tuple[str, ...]], int] = {}
        self._connect_seconds: dict[str, float] = {}  # by listener
        self.on_event: Callable[[], None] = _ignore

    def take(self) -> list[MetricEvent]:
        """Return the events since the last call."""
        events: list[MetricEvent] = [(name, labels, count) for (name, labels), count in self._counts.items()]
        events += [
            ("connect_seconds", (listener,), sum_s) for listener, sum_s in self._connect_seconds.items()
        ]
        self._counts.clear()
        self._connect_seconds.clear()
        return events

    def worker_failed(self, name: str) -> None:
        """Count a thread or task of the relay that ended by an exception."""
        self._count("worker_failed", name)

    def connection_opened(self, listener: str) -> None:
        """Count an accepted client connection."""
        self._count("connection_opened", listener)

    def connection_closed(self, listener: str, reason: str) -> None:
        """Count a closed client connection; ``reason`` must be one of a bounded set."""
        self._count("connection_closed", listener, reason)

    def connection_refused(self, listener: str, reason: str) -> None:
        """Count a refused client connection; ``reason`` must be one of a bounded set."""
        self._count("connection_refused", listener, reason)

    def protocol_error(self, listener: str, reason: str) -> None:
        """Count a protocol error of a client; ``reason`` must be one of a bounded set."""
        self._count("protocol_error", listener, reason)

    def api_versions_answered(self, error_code: int) -> None:
        """Count one answered ApiVersions (KIP-35, KIP-511, KIP-1242)."""
        self._count("api_versions_answered", error_name(error_code))

    def config_request(self, listener: str, api_key: int, result: str) -> None:
        """Count a request about client metrics resources.

        Args:
            api_key: One of the four API keys of such requests.
            result: ``answered`` by the receiver, ``refused`` by the broker, or ``hidden``: the
                broker keeps the resources, and the receiver does not read them.
        """
        self._count("config_request", listener, api_name(api_key), result)

    def authentication(self, listener: str, mechanism: str, outcome: LoginOutcome) -> None:
        """Count a completed login.

        Args:
            mechanism: The SASL mechanism that the client named, or ``TLS`` for a certificate. An
                unknown mechanism counts as :data:`~receiver.metrics.labels.OTHER`.
        """
        self._count("authentication", listener, mechanism_label(mechanism), outcome)

    def limit_exceeded(self, exceeded: Exceeded) -> None:
        """Count a connection, request or push over a limit."""
        self._count("limit_exceeded", exceeded.limit, exceeded.scope)

    def node_hidden(self, listener: str) -> None:
        """Count a broker that a response named and that has no port of its own."""
        self._count("node_hidden", listener)

    def core_unavailable(self) -> None:
        """Count a telemetry request that was throttled because the core did not answer."""
        self._count("core_unavailable")

    def forwarded(self, listener: str, direction: str, count: int) -> None:
        """Count bytes that a listener has forwarded, ``from_clients`` or ``to_clients``."""
        self._count("forwarded", listener, direction, count=count)

    def deferred(self, count: int) -> None:
        """Count the times that a connection waited for another turn of the event loop."""
        self._count("deferred", count=count)

    def upstream_connected(self, listener: str, seconds: float) -> None:
        """Record the time to connect to the broker."""
        self._connect_seconds[listener] = self._connect_seconds.get(listener, 0.0) + seconds
        self._count("upstream_connected", listener, connect_bucket(seconds))

    def _count(self, name: str, *labels: str, count: int = 1) -> None:
        event = (name, labels)
        self._counts[event] = self._counts.get(event, 0) + count
        self.on_event()


def replay(metrics: ReceiverMetrics, events: Iterable[MetricEvent]) -> None:
    """Count the events of a relay in the receiver's metrics.

    Raises:
        ValueError: There is no such event, or it has other labels.
    """
    counters = {
        "connection_opened": metrics.connections_opened,
        "connection_closed": metrics.connections_closed,
        "connection_refused": metrics.connections_refused,
        "protocol_error": metrics.protocol_errors,
        "api_versions_answered": metrics.api_versions,
        "authentication": metrics.authenticated,
        "limit_exceeded": metrics.limits_exceeded,
        "forwarded": metrics.listener_bytes,
        "node_hidden": metrics.hidden_nodes,
        "config_request": metrics.config_requests,
        "worker_failed": metrics.worker_failures,
    }
    plain = {"core_unavailable": metrics.core_unavailable, "deferred": metrics.deferred_calls}
    for name, labels, value in events:
        if name == "upstream_connected":
            listener, bucket = labels
            metrics.connect_times.count(listener, bucket, value)
        elif name == "connect_seconds":
            (listener,) = labels
            metrics.connect_times.add(listener, value)
        elif name in plain and not labels:
            plain[name].inc(value)
        elif (counter := counters.get(name)) is not None:
            counter[labels].inc(value)
        else:
            raise ValueError(f"no metric event: {name!r}")


def _ignore() -> None:
    """Do nothing."""
