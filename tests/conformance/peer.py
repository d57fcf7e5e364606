"""The peers of a case: a broker with a telemetry plugin, and the receiver before a plain broker.

Owns how each is subscribed and where it listens. It knows nothing of cases.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from prometheus_client.parser import text_string_to_metric_families

from tests.conformance import answers, requests
from tests.conformance.answers import Reading
from tests.conformance.talk import Talk
from tests.testbed.broker import KafkaBroker
from tests.testbed.process import wait_until
from tests.testbed.sidecar import Sidecar

Listener = Literal["CLIENT", "SASL"]

#: How a case's client is subscribed. ``slow``: to some metrics, with an interval that never goes by
#: in a test; ``fast``: with one that does; ``all``: to all metrics; ``none``: not at all.
Subscribed = Literal["slow", "fast", "all", "none"]

INTERVAL_MS: Final[Mapping[str, int]] = MappingProxyType({"slow": 60_000, "fast": 200, "all": 60_000})
_METRICS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "slow": ("org.apache.kafka.producer.",),
        "fast": ("org.apache.kafka.consumer.",),
        "all": ("*",),
    }
)
#: The receiver's counters of telemetry requests.
_TAKEN: Final = frozenset({"kafka_telemetry_subscription_requests_total", "kafka_telemetry_pushes_total"})
_FURTHER: Final = "further"
_FURTHER_METRIC: Final = "org.apache.kafka.admin."


class Peer(ABC):
    """A peer that a case is run against.

    Attributes:
        name: ``kafka`` or ``receiver``.
        telemetry_versions: The versions that it has of both telemetry requests.
        topic: A topic that is there.
    """

    name: str
    telemetry_versions: tuple[int, int]
    topic: Final = "conformance"

    @abstractmethod
    def port(self, listener: Listener) -> int:
        """Return a listener's port."""

    @abstractmethod
    def subscribe(self, name: str, metrics: tuple[str, ...], interval_ms: int, client_id: str) -> None:
        """Create or replace a subscription for clients whose id matches a regular expression."""

    @abstractmethod
    def unsubscribe(self, name: str) -> None:
        """Remove a subscription."""

    def subscribe_all(self) -> None:
        """Create the subscriptions of all cases."""
        for name, metrics in _METRICS.items():
            self.subscribe(name, metrics, INTERVAL_MS[name], f"{name}-.*")
            self._wait_for("" if metrics == ("*",) else metrics[0], f"{name}-client")

    def subscribe_further(self, client_id: str) -> None:
        """Have one more subscription match a client, and wait until that is in force."""
        self.subscribe(_FURTHER, (_FURTHER_METRIC,), INTERVAL_MS["slow"], client_id)
        self._wait_for(_FURTHER_METRIC, client_id)

    def unsubscribe_further(self) -> None:
        """Remove that subscription."""
        self.unsubscribe(_FURTHER)

    def _wait_for(self, metric: str, client_id: str) -> None:
        wait_until(
            lambda: metric in self._metrics_of_a_new_instance(client_id),
            timeout_s=120,
            what=f"{self.name} to ask {client_id} for {metric}",
        )

    def _metrics_of_a_new_instance(self, client_id: str) -> str:
        asked_with = bytes([1]) + secrets.token_bytes(15)
        head = requests.header(requests.GET_TELEMETRY_SUBSCRIPTIONS, 0, 1, client_id, requests.NO_TAGS)
        body = head + asked_with + requests.NO_TAGS
        with Talk(self.port("CLIENT")) as talk:
            talk.send(requests.frame(body))
            return answers.read(talk.receive(), 1, answers.get("probe", asked_with), Reading()).text


class KafkaPeer(Peer):
    """A real broker with a telemetry plugin."""

    name = "kafka"
    telemetry_versions = (0, 0)

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker

    def port(self, listener: Listener) -> int:
        """Return a listener's port."""
        return self._broker.port(listener)

    def subscribe(self, name: str, metrics: tuple[str, ...], interval_ms: int, client_id: str) -> None:
        """Create or replace a subscription in Kafka's own client metrics configuration."""
        self._broker.alter_client_metrics(name, metrics, interval_ms, {"client_id": client_id})

    def unsubscribe(self, name: str) -> None:
        """Remove a subscription."""
        self._broker.delete_client_metrics(name)


class ReceiverPeer(Peer):
    """The receiver in front of a real broker without a telemetry plugin."""

    name = "receiver"
    telemetry_versions = (0, 1)

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar

    def port(self, listener: Listener) -> int:
        """Return a listener's port."""
        return self._sidecar.port(listener)

    def subscribe(self, name: str, metrics: tuple[str, ...], interval_ms: int, client_id: str) -> None:
        """Create or replace a subscription over REST."""
        self._sidecar.put_subscription(name, metrics, interval_ms, {"client_id": client_id})

    def unsubscribe(self, name: str) -> None:
        """Remove a subscription over REST."""
        self._sidecar.http.delete(f"/v1/subscriptions/{name}").raise_for_status()

    def telemetry_requests_decided(self) -> float:
        """Return how many telemetry requests the core has decided, of both kinds."""
        page = self._sidecar.http.get("/metrics").raise_for_status().text
        return sum(
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name in _TAKEN
        )
