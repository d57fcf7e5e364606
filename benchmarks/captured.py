"""Captured pushes of real clients; ``tests/data/payloads`` has their README."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import zstandard

from benchmarks.processes import BenchmarkError
from receiver.plugin import Push
from receiver.settings.limits import LimitsSettings
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.compression import CODECS
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.current_subscriptions import CurrentSubscriptions
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.subscription import Subscription, SubscriptionSet
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import Uuid

_EVERYTHING = Subscription(name="everything", metrics=("*",), interval_ms=5_000)
CLUSTER = "kafka-telemetry-testQQ"
_PAYLOADS = Path(__file__).parent.parent / "tests" / "data" / "payloads"


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """One push: its client, and the name of its file without the suffix."""

    client: str
    file: str

    def inflated(self) -> bytes:
        """Return its OTLP bytes."""
        return (_PAYLOADS / f"{self.file}.bin").read_bytes()

    def zstd(self) -> bytes:
        """Compress it as clients do: zstd's default level, as a stream without its size."""
        stream = zstandard.ZstdCompressor().compressobj()
        return stream.compress(self.inflated()) + stream.flush()


JAVA_PRODUCER = Captured(client="Java producer", file="java44-producer-star-02")
JAVA_CONSUMER = Captured(client="Java consumer", file="java44-consumer-star-02")
LIBRDKAFKA_PRODUCER = Captured(client="librdkafka producer", file="ck-producer-star-02")
LIBRDKAFKA_CONSUMER = Captured(client="librdkafka consumer", file="ck-consumer-star-02")
FRANZ_GO_PRODUCER = Captured(client="franz-go producer", file="franz-producer-okprefix-02")


def telemetry_core(
    settings: TelemetrySettings | None = None, *, hash_key: bytes | None = None
) -> ClientTelemetry:
    """Return a telemetry core with default limits, whose random bytes are always the same.

    A subscription asks for all metrics, because others would be dropped.
    """
    return ClientTelemetry(
        settings=settings or TelemetrySettings(),
        subscriptions=CurrentSubscriptions(SubscriptionSet((_EVERYTHING,))),
        limits=Limits(LimitsSettings()),
        random_bytes=lambda count: bytes(range(count)),
        hash_key=hash_key,
    )


def push_request(
    telemetry: ClientTelemetry, client: ClientIdentity, instance: Uuid, otlp: bytes
) -> tuple[PushTelemetryRequest, float]:
    """Get the subscription of a client instance; return its push and its interval in seconds.

    The codec is "none", for which inflating returns the same bytes.
    """
    get = GetTelemetrySubscriptionsRequest(client_instance_id=instance)
    response = telemetry.get_telemetry_subscriptions(client, get, now=0.0).response
    request = PushTelemetryRequest(
        client_instance_id=instance,
        subscription_id=response.subscription_id,
        terminating=False,
        compression_type=CODECS["none"],
        metrics=otlp,
    )
    return request, response.push_interval_ms / 1000


def push_of(telemetry: ClientTelemetry, client: ClientIdentity, instance: Uuid, captured: Captured) -> Push:
    """Return the push that plugins receive when a client instance pushes a captured push."""
    request, _ = push_request(telemetry, client, instance, captured.inflated())
    outcome = telemetry.push_telemetry(client, request, now=0.0, received_at_ns=1)
    if outcome.push is None:
        raise BenchmarkError(f"{captured.file} was refused: {outcome.problem}")
    return outcome.push
