"""The attacks: their traffic, configuration, and verdicts beyond the common ones.

The load generator (``benchmarks/load``) makes each kind of traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from benchmarks.captured import LIBRDKAFKA_PRODUCER
from receiver.settings.model import TelemetrySettings
from tests.attacks.payloads import (
    Payload,
    bombs,
    empty_metrics,
    entity_keys,
    exclamations,
    long_name,
    many_series,
)

Port = Literal["plain", "tls", "proxy", "rewriting", "rest", "bridge"]

#: The source address of all attacks.
ATTACKER: Final = "127.0.0.2"

_ADDRESS_CONNECTIONS: Final = 500

#: listeners[].max_connections, its default.
_LISTENER_CONNECTIONS: Final = 10_000

#: A minute's worth of bytes may come at once, so a shorter attack is within the limit.
_A_MINUTES_BYTES_SECONDS: Final = 45.0

#: A size that is large compared with the cost of reading.
_ACCEPTED_PUSH_BYTES: Final = 512 << 10

#: Entries that take some milliseconds to read.
_SERIES_OF_COSTLY_PUSH: Final = 1_000

#: So few series that a short attack can use them up.
_SERIES: Final = 20_000
_SERIES_OF_PUSH: Final = 4_000
#: So few new series that a short attack is over the limit with a few pushes.
_NEW_SERIES: Final = 20_000


#: The innocent client's longest wait, in milliseconds.
LONGEST_MS: Final = 50.0
#: That of a telemetry request beside pushes that are as costly as the limits allow: one push is
#: decided in one piece, which takes up to 190 ms, and some of them pass before
#: ``core_ms_per_second`` holds their peer back.
_COSTLY_MS: Final = 500.0
#: The same beside a flood of HTTP requests. REST is for operators, and on loopback unless it asks
#: for tokens.
_HTTP_MS: Final = 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attack.

    Attributes:
        name: Its name on the command line and in the table.
        kind: The load generator's name of the traffic; empty where there is none.
        connections: How many connections it keeps open.
        port: Which port it goes to.
        innocent_port: Which port the innocent client uses.
        payload: The Metrics field of its pushes; None where it pushes nothing.
        flags: More flags of the load generator.
        settings: Sections of the receiver's configuration beside the defaults.
        paused: Whether the target is stopped for most of the time, like by a busy host or a CPU
            limit. The waits are then no verdict.
        innocent_payload: What the innocent clients push, compressed with zstd; None: a captured
            push.
        innocent_clients: Innocent clients that push telemetry.
        innocent_late: Whether those connect in the middle of the attack instead of before it.
        innocent_codec: What they compress with, zstd or none.
        spool: Whether the receiver has the spool_files plugin, whose files then count too.
        refused: Whether each of the attack's pushes must be refused.
        buffered: Whether what the receiver and the system buffer for the attack is a verdict.
        least_seconds: How long it takes at least until its verdict can fail.
        bounded: Whether the accepted bytes of the attack are a verdict.
        most_new_series: The limit on new series of its source address in an hour, if the stored
            series of the attack are a verdict.
        telemetry_longest_ms: The bound on the longest wait of the innocent client's telemetry.
    """

    name: str
    kind: str
    connections: int = 8
    port: Port = "plain"
    innocent_port: Port = "plain"
    payload: Payload | None = None
    flags: Mapping[str, object] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    paused: bool = False
    innocent_payload: Payload | None = None
    innocent_clients: int = 1
    innocent_late: bool = False
    innocent_codec: Literal["zstd", "none"] = "zstd"
    spool: bool = False
    refused: bool = False
    bounded: bool = False
    most_new_series: int | None = None
    least_seconds: float = 0.0
    buffered: bool = False
    telemetry_longest_ms: float = LONGEST_MS


def attacks() -> tuple[Attack, ...]:
    """Return all attacks, in the order of the table."""
    return (
        *_tls(),
        *_requests(),
        *_connections(),
        *_http(),
        *_bridges(),
        *_telemetry(),
        *_host(),
    )


def _tls() -> tuple[Attack, ...]:
    return (
        Attack(name="key-update", kind="key-updates", port="tls", connections=2),
        Attack(name="key-update-request", kind="key-update-requests", port="tls", connections=2),
        Attack(name="tls-empty-records", kind="empty-records", port="tls"),
        Attack(name="tls12-empty-records", kind="empty-records-12", port="tls"),
        Attack(name="tls12-renegotiation", kind="renegotiations", port="tls"),
        Attack(name="tls-3-byte", kind="swallowed-records", port="tls"),
        Attack(name="tls-1-byte", kind="request-records", port="tls"),
        Attack(name="tls-hello-1-byte", kind="hello-records", port="tls"),
        Attack(name="tls-handshakes", kind="handshakes", port="tls"),
        Attack(name="tls-half-handshakes", kind="half-handshakes", port="tls", connections=64),
        Attack(name="tls-slow-loris", kind="tls-hello", port="tls", connections=_ADDRESS_CONNECTIONS),
    )


def _requests() -> tuple[Attack, ...]:
    translate_all = {"kip1313": {"translate_all": True}}
    return (
        Attack(name="unknown-key", kind="unknown-keys"),
        Attack(name="translate-all", kind="small-requests", settings=translate_all),
        Attack(name="translate-all-v3", kind="headers-v3", settings=translate_all),
        Attack(name="small-requests", kind="small-requests"),
        Attack(name="least-requests", kind="least-requests"),
        Attack(name="byte-segments", kind="byte-segments"),
        Attack(name="api-versions", kind="api-versions"),
        Attack(name="metadata", kind="metadata"),
        Attack(name="sasl-handshakes", kind="sasl-handshakes"),
        Attack(name="sasl-tokens", kind="sasl-tokens"),
        Attack(name="huge-lengths", kind="huge-lengths"),
        Attack(name="garbage", kind="garbage"),
        Attack(name="tagged-bodies", kind="tagged-bodies", connections=24),
        Attack(name="tagged-tokens", kind="tagged-tokens", connections=24),
        Attack(name="altered-configs", kind="altered-configs"),
        Attack(name="coordinators", kind="coordinators", port="rewriting"),
        Attack(name="tracked", kind="tracked", port="rewriting", connections=64),
        Attack(name="tracked-closed", kind="tracked-closed", port="rewriting", connections=64),
        Attack(name="slow-readers", kind="slow-readers", connections=300, buffered=True),
    )


def _connections() -> tuple[Attack, ...]:
    return (
        Attack(name="connections", kind="connections", connections=10_000),
        Attack(name="proxy-headers", kind="proxy-headers", port="proxy", connections=64),
        Attack(
            name="proxy-silent",
            kind="connections",
            port="proxy",
            innocent_port="proxy",
            connections=_LISTENER_CONNECTIONS + 500,
            innocent_late=True,
        ),
    )


def _http() -> tuple[Attack, ...]:
    return (
        Attack(
            name="metrics",
            kind="http",
            port="rest",
            flags={"path": "/metrics"},
            telemetry_longest_ms=_HTTP_MS,
        ),
        Attack(name="rest", kind="http", port="rest", flags={"path": "/v1/subscriptions"}),
    )


def _bridges() -> tuple[Attack, ...]:
    return (
        Attack(name="bridge-silent", kind="connections", port="bridge", connections=1_000),
        Attack(name="bridge-garbage", kind="garbage", port="bridge"),
        Attack(name="bridge-huge-lengths", kind="huge-lengths", port="bridge"),
        Attack(name="bridge-proofs", kind="bridge-proofs", port="bridge"),
    )


def _telemetry() -> tuple[Attack, ...]:
    settings = TelemetrySettings()
    size = settings.max_inflated_bytes - 64
    real = LIBRDKAFKA_PRODUCER
    captured = Payload(codec="zstd", compressed=real.zstd(), inflated_bytes=len(real.inflated()))
    costly = {
        "push-too-many-entries": empty_metrics(inflated_bytes=size, metrics=size // 2 - 100),
        "push-most-entries": empty_metrics(inflated_bytes=size, metrics=settings.max_entries * 9 // 10),
        "push-entity-keys": entity_keys(inflated_bytes=size),
        "push-long-name": exclamations(inflated_bytes=size),
    }
    return (
        Attack(name="push-slow-loris", kind="slow-loris", connections=_ADDRESS_CONNECTIONS),
        *(Attack(name=f"bomb-{codec}", kind="pushes", payload=bomb) for codec, bomb in bombs().items()),
        *(
            Attack(name=name, kind="pushes", payload=payload, telemetry_longest_ms=_COSTLY_MS)
            for name, payload in costly.items()
        ),
        Attack(name="telemetry-flood", kind="telemetry-flood", payload=captured),
        Attack(
            name="accepted-bytes",
            telemetry_longest_ms=_COSTLY_MS,
            kind="steady-pushes",
            connections=20,
            payload=long_name(inflated_bytes=_ACCEPTED_PUSH_BYTES),
            spool=True,
            bounded=True,
            least_seconds=_A_MINUTES_BYTES_SECONDS,
        ),
        Attack(
            name="dead-instances",
            telemetry_longest_ms=_COSTLY_MS,
            kind="single-pushes",
            connections=4,
            payload=many_series(series=_SERIES_OF_PUSH),
            settings={"telemetry": {"series": {"max_per_client": _SERIES_OF_PUSH, "max_total": _SERIES}}},
            innocent_late=True,
            spool=True,
        ),
        Attack(
            name="series",
            telemetry_longest_ms=_COSTLY_MS,
            kind="single-pushes",
            connections=4,
            payload=many_series(series=_SERIES_OF_PUSH),
            settings={"limits": {"source_address": {"new_series_per_hour": _NEW_SERIES}}},
            spool=True,
            most_new_series=_NEW_SERIES,
        ),
        Attack(
            name="excluded-codec",
            kind="pushes",
            payload=captured,
            settings={"telemetry": {"compression": ["gzip"]}},
            innocent_codec="none",
            refused=True,
        ),
    )


def _host() -> tuple[Attack, ...]:
    # A push of some milliseconds, so that the pauses come within it. A client pushes ten times a
    # second. The plugin is one that works little, so the three stay within their CPU time.
    return (
        Attack(
            name="host-busy",
            kind="",
            paused=True,
            innocent_payload=many_series(series=_SERIES_OF_COSTLY_PUSH),
            innocent_clients=3,
            spool=True,
        ),
    )
