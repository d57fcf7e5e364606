"""Captured pushes of real clients, as the benchmarks use them.

Owns which of ``tests/data/payloads`` stand for which client (its README tells where they come
from), and how the telemetry core takes one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import zstandard

from receiver.plugin import Push
from receiver.telemetry.compression import CODECS
from receiver.telemetry.connection import Connection
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import Uuid

PAYLOADS = Path(__file__).parent.parent / "tests" / "data" / "payloads"


class CapturedError(RuntimeError):
    """The telemetry core refused a captured push."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """One push.

    Attributes:
        client: who pushed it; its row in the tables.
        file: its file's name, without the ending.
    """

    client: str
    file: str

    def inflated(self) -> bytes:
        """Return its OTLP bytes."""
        return (PAYLOADS / f"{self.file}.bin").read_bytes()

    def zstd(self) -> bytes:
        """Compress it like clients do: zstd's default level, as a stream without its size."""
        stream = zstandard.ZstdCompressor().compressobj()
        return stream.compress(self.inflated()) + stream.flush()


JAVA_PRODUCER = Captured(client="Java producer", file="java44-producer-star-02")
JAVA_CONSUMER = Captured(client="Java consumer", file="java44-consumer-star-02")
LIBRDKAFKA_PRODUCER = Captured(client="librdkafka producer", file="ck-producer-star-02")
LIBRDKAFKA_CONSUMER = Captured(client="librdkafka consumer", file="ck-consumer-star-02")
FRANZ_GO_PRODUCER = Captured(client="franz-go producer", file="franz-producer-okprefix-02")


def push_of(telemetry: ClientTelemetry, connection: Connection, instance: Uuid, captured: Captured) -> Push:
    """Return the push that plugins receive when a client instance pushes this.

    Raises:
        CapturedError: The core refused it; says why.
    """
    asked = telemetry.get_telemetry_subscriptions(
        connection, GetTelemetrySubscriptionsRequest(client_instance_id=instance), now=0.0
    )
    request = PushTelemetryRequest(
        client_instance_id=instance,
        subscription_id=asked.response.subscription_id,
        terminating=False,
        compression_type=CODECS["none"],
        metrics=captured.inflated(),
    )
    outcome = telemetry.push_telemetry(connection, request, now=0.0, received_at_ns=1)
    if outcome.push is None:
        raise CapturedError(f"{captured.file} was refused: {outcome.problem}")
    return outcome.push
