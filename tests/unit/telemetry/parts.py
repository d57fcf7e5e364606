"""Builders for tests of the core: connections, subscriptions, clients, captured payloads."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import cramjam
import lz4.frame
import zstandard
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from receiver.settings.limits import LimitsSettings
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.current_subscriptions import CurrentSubscriptions
from receiver.telemetry.identity import Broker, ClientIdentity
from receiver.telemetry.outcomes import PushOutcome, SubscriptionsOutcome
from receiver.telemetry.subscription import Subscription, SubscriptionSet
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire.error_codes import ErrorCode
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import ZERO_UUID, Uuid, uuid_from_text

PAYLOADS = Path(__file__).parents[2] / "data" / "payloads"
JAVA_PRODUCER = "java44-producer-star-01"
JAVA_CONSUMER = "java44-consumer-star-01"
ALL_PAYLOADS = sorted(path.stem for path in PAYLOADS.glob("*.bin"))

#: The instance id of a real client.
INSTANCE = uuid_from_text("7wk08yJMQAOK9PUGl2Zmrg")
RECEIVED_AT_NS = 1_795_255_024_788_074_000


def payload(name: str) -> bytes:
    return (PAYLOADS / f"{name}.bin").read_bytes()


def connection(**changes: Any) -> ClientIdentity:
    facts: dict[str, Any] = {
        "id": "c1",
        "listener": "CLIENT",
        "security_protocol": "PLAINTEXT",
        "source_address": "10.0.0.7",
        "source_port": 51234,
        "since": 1_795_255_000.0,
        "client_id": "java-producer",
        "client_software_name": "apache-kafka-java",
        "client_software_version": "4.4.0",
    }
    return ClientIdentity(**(facts | changes))


def client(client_instance_id: Uuid | None = None, **changes: Any) -> ClientIdentity:
    return connection(client_instance_id=client_instance_id or INSTANCE, **changes)


def subscription(
    name: str = "all",
    metrics: tuple[str, ...] = ("*",),
    interval_ms: int = 10_000,
    match: Mapping[str, str] | None = None,
) -> Subscription:
    return Subscription(name, metrics, interval_ms, match or {})


#: The broker of every :class:`Client`.
BROKER = Broker(id=1, cluster_id="5L6g3nShT-eMCtK--X86sw")


class Client:
    """A client of one telemetry core; it keeps its instance id and subscription id."""

    def __init__(
        self,
        *subscriptions: Subscription,
        settings: TelemetrySettings | None = None,
        limits: LimitsSettings | None = None,
        connected: ClientIdentity | None = None,
    ) -> None:
        self.telemetry = ClientTelemetry(
            settings=settings or TelemetrySettings(),
            subscriptions=CurrentSubscriptions(SubscriptionSet(subscriptions)),
            limits=Limits(limits or LimitsSettings()),
            random_bytes=os.urandom,
        )
        self.identity = replace(connected or connection(), broker=BROKER)
        self.id: Uuid = ZERO_UUID
        self.subscription_id = 0

    def get(self, now: float, **changes: Any) -> SubscriptionsOutcome:
        request = GetTelemetrySubscriptionsRequest(**({"client_instance_id": self.id} | changes))
        outcome = self.telemetry.get_telemetry_subscriptions(self.identity, request, now=now)
        self.identity = outcome.identity
        if outcome.response.error_code == 0:
            self.id = outcome.client_instance_id
            self.subscription_id = outcome.response.subscription_id
        return outcome

    def push(
        self, now: float, metrics: Any = b"", *, received_at_ns: int = RECEIVED_AT_NS, **changes: Any
    ) -> PushOutcome:
        request = PushTelemetryRequest(
            **(
                {
                    "client_instance_id": self.id,
                    "subscription_id": self.subscription_id,
                    "metrics": metrics,
                }
                | changes
            )
        )
        outcome = self.telemetry.push_telemetry(
            self.identity, request, now=now, received_at_ns=received_at_ns
        )
        self.identity = outcome.identity
        return outcome


#: Compression by codec, as clients do it.
COMPRESSED: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: gzip.compress,
    2: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    3: lz4.frame.compress,
    4: zstandard.compress,
}


def ready(*, interval_ms: int = 10_000, **settings: Any) -> Client:
    """Return a client that got its subscription at second 0."""
    client = Client(subscription(interval_ms=interval_ms), settings=TelemetrySettings(**settings))
    assert client.get(0).response.error_code == ErrorCode.NONE
    return client


def all_metrics(data: MetricsData) -> Iterator[Metric]:
    for resource_metrics in data.resource_metrics:
        for scope_metrics in resource_metrics.scope_metrics:
            yield from scope_metrics.metrics


def labels_of(data: MetricsData) -> list[dict[str, str]]:
    """Return the attributes of each Resource; a duplicate key fails."""
    found = []
    for resource_metrics in data.resource_metrics:
        attributes = resource_metrics.resource.attributes
        labels = {attribute.key: attribute.value.string_value for attribute in attributes}
        assert len(labels) == len(attributes)
        found.append(labels)
    return found
