"""Counts requests, responses, connections and errors, and their durations.

Owns the counters on the paths of requests and connections. A call costs about a microsecond,
because a dict keeps the series of each set of labels.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.process_collector import ProcessCollector

from receiver.metrics.bridge_metrics import BridgeMetrics
from receiver.metrics.connect_times import ConnectTimes
from receiver.metrics.families import PREFIX
from receiver.metrics.labels import SoftwareLabels
from receiver.metrics.sources import PulledMetrics, Sources
from receiver.telemetry.control.limits import Exceeded
from receiver.telemetry.outcomes import PushOutcome, SubscriptionsOutcome
from receiver.telemetry.steps.counts import StepCounts
from receiver.wire.error_codes import ErrorCode, error_name
from receiver.wire.walk import DATA_PATH
from spark_streaming.scraping.negotiation import scrape_format

#: From the usual cost of a response (tens of microseconds) to one that an operator must know of.
_ANSWER_SECONDS = (50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 0.5, 1.0)

#: Far above a few scrapers at intervals of seconds. At this bound, writing takes a quarter of a
#: core.
_SCRAPES_AT_ONCE: Final = 50
_SCRAPES_PER_S: Final = 50.0
#: The most cached texts, one for each content type.
_MAX_FORMATS: Final = 4

_GET = "get_telemetry_subscriptions"
_PUSH = "push_telemetry"

_Wrapped = TypeVar("_Wrapped", bound=MetricWrapperBase)


class _Series(Generic[_Wrapped]):
    """The series of one metric by label values, each built once."""

    __slots__ = ("_children", "_family")

    def __init__(self, family: _Wrapped) -> None:
        self._family = family
        self._children: dict[tuple[str, ...], _Wrapped] = {}

    def __getitem__(self, labels: tuple[str, ...]) -> _Wrapped:
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = self._family.labels(*labels)
        return child


class ReceiverMetrics:
    """The receiver's metrics, in a registry of their own.

    Args:
        version: The receiver's version, for ``kafka_telemetry_build_info``.

    Attributes:
        registry: Holds every series of the receiver, and none of another library.
    """

    def __init__(
        self,
        *,
        version: str,
        labels: SoftwareLabels | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._scrapes_paid_until = float("-inf")
        self._written: dict[str, bytes] = {}
        # Creation times would double the series, and counter resets show without them.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=False)
        self.labels = labels or SoftwareLabels()
        self.subscription_requests = self._counter(
            "subscription_requests",
            "GetTelemetrySubscriptions requests answered (KIP-714).",
            "outcome",
            "client_software_name",
        )
        self.pushes = self._counter(
            "pushes", "PushTelemetry requests answered (KIP-714).", "outcome", "client_software_name"
        )
        self.throttled = self._counter(
            "throttled", "Telemetry requests answered THROTTLING_QUOTA_EXCEEDED.", "request"
        )
        self.unknown_subscription_ids = self._plain_counter(
            "unknown_subscription_ids", "Pushes answered UNKNOWN_SUBSCRIPTION_ID."
        )
        self.push_bytes = self._plain_counter(
            "push_bytes", "Bytes of metrics pushed, as compressed by clients."
        )
        self.push_inflated_bytes = self._plain_counter(
            "push_inflated_bytes", "Bytes of metrics pushed, once inflated."
        )
        self.dropped_points = self._counter(
            "dropped_points", "Data points removed from accepted pushes.", "reason"
        )
        self.removed_labels = self._plain_counter(
            "removed_labels", "Labels reserved for the receiver that clients sent and that were removed."
        )
        self.marked_points = self._plain_counter(
            "marked_points",
            "Data points marked known_bad, because the client reports wrong values.",
        )
        self.private_attributes = self._counter(
            "private_attributes", "Attributes dropped or hashed by a privacy rule.", "action"
        )
        self.unnormalized_pushes = self._plain_counter(
            "unnormalized_pushes", "Pushes forwarded without normalisation, because they have too many items."
        )
        self.api_versions = self._counter(
            "api_versions", "ApiVersions requests answered (KIP-35).", "outcome"
        )
        self.connections_opened = self._counter(
            "connections_opened", "Client connections accepted.", "listener"
        )
        self.listener_bytes = self._counter(
            "listener_bytes", "Bytes that a listener has forwarded, by direction.", "listener", "direction"
        )
        self.deferred_calls = self._plain_counter(
            "deferred_calls",
            "Times that a connection waited for another turn because its peer's share was used up.",
        )
        self.connections_closed = self._counter(
            "connections_closed", "Client connections that ended.", "listener", "reason"
        )
        self.connections_refused = self._counter(
            "connections_refused", "Client connections refused.", "listener", "reason"
        )
        self.protocol_errors = self._counter(
            "protocol_errors", "Connections with malformed or forbidden requests.", "listener", "reason"
        )
        self.without_plugin = self._plain_counter(
            "pushes_without_plugin", "Pushes of bridges that went nowhere, because plugins is empty."
        )
        self.not_stored = self._plain_counter(
            "pushes_not_stored",
            "Pushes answered THROTTLING_QUOTA_EXCEEDED because a plugin did not store them in time.",
        )
        self.core_unavailable = self._plain_counter(
            "core_unavailable_calls",
            "Telemetry requests answered THROTTLING_QUOTA_EXCEEDED because the core did not answer in time.",
        )
        self.limits_exceeded = self._counter(
            "limit_exceeded", "Connections, requests and pushes over a limit.", "limit", "scope"
        )
        self.worker_failures = self._counter(
            "worker_failures", "Threads and tasks that ended by an exception.", "worker"
        )
        self.hidden_nodes = self._counter(
            "hidden_nodes",
            "Times that a response named a broker without a port, which clients can't reach.",
            "listener",
        )
        self.config_requests = self._counter(
            "config_requests",
            "Requests of Kafka's tools and clients about client metrics resources.",
            "listener",
            "api",
            "result",
        )
        self.authenticated = self._counter(
            "authenticated", "Completed logins of clients.", "listener", "mechanism", "outcome"
        )
        self.get_seconds = self._histogram(
            "get_seconds", "Time of the telemetry core for a GetTelemetrySubscriptions.", _ANSWER_SECONDS
        )
        self.push_seconds = self._histogram(
            "push_seconds", "Time of the telemetry core for a PushTelemetry.", _ANSWER_SECONDS
        )
        self.connect_times = ConnectTimes(
            f"{PREFIX}upstream_connect_seconds", "Time to connect to the broker."
        )
        self.registry.register(self.connect_times)
        self.bridges = BridgeMetrics()
        self.registry.register(self.bridges)
        self.rest_requests_refused = self._counter(
            "rest_requests_refused", "REST requests refused for their sender's rights.", "reason"
        )
        Gauge(
            f"{PREFIX}build_info",
            "1; the labels have the versions.",
            ["version", "python", "speedups"],
            registry=self.registry,
        ).labels(version, platform.python_version(), DATA_PATH).set(1)
        ProcessCollector(registry=self.registry)

    def observe(self, sources: Sources) -> None:
        """Collect these sources at every scrape from now on; call it once."""
        self.registry.register(PulledMetrics(sources, self.labels))

    def exposition(self, accept: str | None = None) -> tuple[bytes, str]:
        """Return all metrics as text for a scraper, and its content type.

        Writing the text takes milliseconds of the event loop. So scrapes beyond 50 at once and 50 a
        second get the last text.

        Args:
            accept: The scraper's ``Accept`` header; None: Prometheus' text format.
        """
        encoder, content_type = choose_encoder(scrape_format(accept or ""))
        now = self._clock()
        self._scrapes_paid_until = max(self._scrapes_paid_until, now)
        if self._written and self._scrapes_paid_until - now > _SCRAPES_AT_ONCE / _SCRAPES_PER_S:
            if content_type not in self._written:  # a scraper may ask for any number of versions
                content_type = next(iter(self._written))
            return self._written[content_type], content_type
        self._scrapes_paid_until += 1 / _SCRAPES_PER_S
        if len(self._written) >= _MAX_FORMATS:
            self._written.clear()
        text = self._written[content_type] = encoder(self.registry)
        return text, content_type

    def subscriptions_answered(
        self, outcome: SubscriptionsOutcome, client_software_name: str, seconds: float
    ) -> None:
        """Count one answered GetTelemetrySubscriptions."""
        code = outcome.response.error_code
        self.subscription_requests[error_name(code), self.labels.name(client_software_name)].inc()
        if code:
            self._errors(code, _GET)
        self.get_seconds.observe(seconds)

    def push_answered(self, outcome: PushOutcome, client_software_name: str, seconds: float) -> None:
        """Count one answered PushTelemetry; arguments as above."""
        code = outcome.response.error_code
        self.pushes[error_name(code), self.labels.name(client_software_name)].inc()
        if code:
            self._errors(code, _PUSH)
        self.push_taken(outcome, seconds)

    def push_taken(self, outcome: PushOutcome, seconds: float) -> None:
        """Count the metrics of a push, whichever way it came."""
        metrics = outcome.metrics
        self.push_bytes.inc(outcome.wire_bytes)
        self.push_inflated_bytes.inc(outcome.inflated_bytes)
        if metrics.dropped_points:
            self.dropped_points["not_finite",].inc(metrics.dropped_points)
        for reason, points in (
            ("over_budget", metrics.overflowed - metrics.not_admitted),
            ("new_series", metrics.not_admitted),
        ):
            if points:
                self.dropped_points[reason,].inc(points)
        if metrics.removed_labels:
            self.removed_labels.inc(metrics.removed_labels)
        self._steps_done(metrics.steps)
        self.push_seconds.observe(seconds)

    def push_not_stored(self) -> None:
        """Count a push that was refused because it was not on disk in time."""
        self.not_stored.inc()

    def limit_exceeded(self, exceeded: Exceeded) -> None:
        """Count a connection, request or push over a limit."""
        self.limits_exceeded[exceeded.limit, exceeded.scope].inc()

    def rest_refused(self, reason: str) -> None:
        """Count a refused REST request; ``reason`` must be one of a bounded set."""
        self.rest_requests_refused[reason,].inc()

    def _steps_done(self, steps: StepCounts) -> None:
        for reason, points in (
            ("unsubscribed", steps.unsubscribed_points),
            ("known_bad", steps.bad_points),
            ("privacy", steps.private_points),
        ):
            if points:
                self.dropped_points[reason,].inc(points)
        for action, attributes in (("drop", steps.dropped_attributes), ("hash", steps.hashed_attributes)):
            if attributes:
                self.private_attributes[action,].inc(attributes)
        if steps.marked_points:
            self.marked_points.inc(steps.marked_points)
        if steps.unnormalized:
            self.unnormalized_pushes.inc()

    def _errors(self, code: int, request: str) -> None:
        if code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            self.throttled[request,].inc()
        elif code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID:
            self.unknown_subscription_ids.inc()

    def _counter(self, name: str, text: str, *labels: str) -> _Series[Counter]:
        return _Series(Counter(PREFIX + name, text, labels, registry=self.registry))

    def _plain_counter(self, name: str, text: str) -> Counter:
        return Counter(PREFIX + name, text, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(PREFIX + name, text, labels, buckets=buckets, registry=self.registry)
