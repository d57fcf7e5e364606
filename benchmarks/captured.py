"""Captured pushes of real clients, as the benchmarks use them.

Owns which of ``tests/data/payloads`` stand for which client; its README tells where they come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import zstandard

PAYLOADS = Path(__file__).parent.parent / "tests" / "data" / "payloads"


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
        """Return it compressed as clients do: zstd's default level, as a stream that tells no size."""
        stream = zstandard.ZstdCompressor().compressobj()
        return stream.compress(self.inflated()) + stream.flush()


JAVA_PRODUCER = Captured(client="Java producer", file="java44-producer-star-02")
JAVA_CONSUMER = Captured(client="Java consumer", file="java44-consumer-star-02")
LIBRDKAFKA_PRODUCER = Captured(client="librdkafka producer", file="ck-producer-star-02")
LIBRDKAFKA_CONSUMER = Captured(client="librdkafka consumer", file="ck-consumer-star-02")
FRANZ_GO_PRODUCER = Captured(client="franz-go producer", file="franz-producer-okprefix-02")
