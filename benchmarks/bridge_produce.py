"""The latency of Produce beside pushes: a broker with the bridge, and one with a no-op plugin.

Both run all the time and take turns, round after round.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.bridge_programs import Programs
from benchmarks.captured import JAVA_PRODUCER
from benchmarks.figures import Figure, Report, table
from benchmarks.load_generator import load, push_flags
from benchmarks.passthrough import rotated
from receiver.bridge.listener import WINDOW
from tests.integration.bridge.peer import Peer
from tests.integration.bridge.support import properties
from tests.testbed import jvm, parts
from tests.testbed.broker import KafkaBroker

_TOPIC: Final = "produced"
_RECORDS_A_SECOND: Final = 200
#: Each connection pushes ten times a second: 500 pushes a second.
_CONNECTIONS: Final = 50
_INTERVAL_MS: Final = 100
_WARM_UP_PAIRS: Final = 10_000
_MOST_SECONDS: Final = 300.0
_BRIDGE: Final = "bridge"
_NOTHING: Final = "no-op plugin"


def run(folder: Path, *, quick: bool) -> Report:
    """Time records to both brokers in turns, while clients push to them."""
    seconds, rounds = (4, 2) if quick else (10, 5)
    payload = folder / "payload"
    payload.write_bytes(JAVA_PRODUCER.zstd())
    programs = Programs(folder)
    found: dict[str, list[dict[str, Any]]] = {_NOTHING: [], _BRIDGE: []}
    with _brokers(programs) as brokers:
        for broker in brokers.values():
            flags = push_flags(broker.bootstrap, payload, [broker.pid], connections=_CONNECTIONS)
            pairs = _WARM_UP_PAIRS // (4 if quick else 1)
            with load("push", {**flags, "count": pairs, "warmup": 0}) as warming:
                warming.result(_MOST_SECONDS)
        for number in range(rounds):
            for name in rotated(list(brokers), number):
                found[name].append(_time(programs, brokers[name], payload, seconds))
    p50, p99 = (
        {name: statistics.median(item[value] for item in timed) for name, timed in found.items()}
        for value in ("p50_us", "p99_us")
    )
    rows = [
        (
            name,
            f"{p50[name]:,.0f}",
            f"{p99[name]:,.0f}",
            f"{min(item['p99_us'] for item in timed):,.0f}-{max(item['p99_us'] for item in timed):,.0f}",
        )
        for name, timed in found.items()
    ]
    return Report(
        title="Produce beside 500 pushes a second",
        text=table(("broker with", "p50 us", "p99 us", "from-to"), rows),
        raw=found,
        figures=[
            Figure(
                name="bridge, p99 of Produce / no-op plugin's",
                value=p99[_BRIDGE] / p99[_NOTHING],
                at_most=1.15,
                note=f"{p99[_BRIDGE]:,.0f} and {p99[_NOTHING]:,.0f} us",
            )
        ],
    )


@contextlib.contextmanager
def _brokers(programs: Programs) -> Iterator[dict[str, KafkaBroker]]:
    jar = parts.BRIDGE.require() / "kafka-telemetry-bridge.jar"
    quiet = {"testbed.telemetry.log": "false"}
    with (
        Peer(keeps=False, window=WINDOW) as peer,
        KafkaBroker(telemetry_plugin=True, jvm_flags=jvm.WARM, properties=quiet) as nothing,
        KafkaBroker(
            plugins=[jar], jvm_flags=jvm.WARM, properties=properties(programs.token, peer.port)
        ) as bridged,
    ):
        brokers = {_NOTHING: nothing, _BRIDGE: bridged}
        for broker in brokers.values():
            broker.create_topic(_TOPIC)
            broker.alter_client_metrics("bench", ["*"], _INTERVAL_MS)
        yield brokers


def _time(programs: Programs, broker: KafkaBroker, payload: Path, seconds: int) -> dict[str, Any]:
    flags = push_flags(broker.bootstrap, payload, [broker.pid], connections=_CONNECTIONS)
    # More than the round takes: they end with the block.
    with load("push", {**flags, "count": 1_000_000, "warmup": 0}):
        arguments = (broker.bootstrap, _TOPIC, _RECORDS_A_SECOND, seconds)
        (line,) = programs.lines("ProduceLatency", *arguments, seconds=_MOST_SECONDS)
    return line
