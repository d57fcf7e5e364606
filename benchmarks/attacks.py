"""What an attacker does, attack by attack.

Owns the list, and how much each takes; how it is done is the load generator's.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.attacks.payloads import Payload, bombs, empty_metrics, entity_keys, exclamations
from benchmarks.captured import LIBRDKAFKA_PRODUCER
from receiver.settings.model import TelemetrySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attack.

    Attributes:
        name: its row in the tables.
        kind: what the load generator calls it.
        connections: how many it wants to have open.
        payload: what it pushes; None where it pushes nothing.
        tls: whether it goes to the TLS listener; the producer stays on the plain one.
        alike: whether another attack is so much like it that a quick run leaves it out.
    """

    name: str
    kind: str
    connections: int
    payload: Payload | None = None
    tls: bool = False
    alike: bool = False


def attacks() -> list[Attack]:
    """Return the attacks, in the order of the tables."""
    settings = TelemetrySettings()
    size = settings.max_inflated_bytes - 64
    real = LIBRDKAFKA_PRODUCER
    captured = Payload(codec="zstd", compressed=real.zstd(), inflated_bytes=len(real.inflated()))
    return [
        Attack(name="10,000 connections", kind="connections", connections=10_000),
        Attack(name="slow-loris, 1 MB pushes", kind="slow-loris", connections=500),
        Attack(name="slow-loris, TLS", kind="tls-hello", connections=500, tls=True),
        *(
            Attack(
                name=f"bombs, {codec}",
                kind="pushes",
                connections=8,
                payload=bomb,
                alike=codec != "zstd",
            )
            for codec, bomb in bombs().items()
        ),
        Attack(name="telemetry flood", kind="telemetry-flood", connections=8, payload=captured),
        *(
            Attack(name=name, kind="pushes", connections=8, payload=payload, alike=name.endswith("keys"))
            for name, payload in {
                "too many messages": empty_metrics(inflated_bytes=size, metrics=size // 2 - 100),
                "almost too many messages": empty_metrics(
                    inflated_bytes=size, metrics=settings.max_entries * 9 // 10
                ),
                "costly strings, entity keys": entity_keys(inflated_bytes=size),
                "costly strings, names": exclamations(inflated_bytes=size),
            }.items()
        ),
    ]
