"""What an idle connection costs the sidecar in memory, beside HAProxy.

Owns the number of connections and the goal. Counted is what the process alone holds in RAM; the
kernel's socket buffers belong to no process and are left out.

A process has free room in its heap when it starts, and the first connections hide in it: a thousand
seem to cost nothing. So the cost of one is what the second half of the connections adds to the
first half. Beside it stands an upper bound that no such effect touches: the whole process divided
by all connections.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from benchmarks.figures import Figure, Results, table
from benchmarks.load_generator import idle_connections
from benchmarks.relays import Relay

CONNECTIONS = 5_000
KIB_GOAL = 30.0

#: Before the first look, so that what is made once, at the first connection, is not counted for
#: each.
_FIRST_CONNECTIONS = 50
_SETTLE_SECONDS = 1.0
_HOLD_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What one relay held in RAM, in bytes.

    Attributes:
        connections: how many were open in between.
        before: without connections, after a few had come and gone.
        half: with half of them open and idle.
        open: with all of them open and idle.
        after: when all had gone.
    """

    connections: int
    before: int
    half: int
    open: int
    after: int

    @property
    def kib_by_connection(self) -> float:
        """What each connection of the second half took, in KiB."""
        return (self.open - self.half) / (self.connections - self.connections // 2) / 1024

    @property
    def kib_with_everything(self) -> float:
        """The whole process by connection, in KiB: more than a connection can have taken."""
        return self.open / self.connections / 1024


def measure(relays: Sequence[Relay]) -> Mapping[str, Memory]:
    """Open idle connections through each relay, each after one ApiVersions; keys are relay names.

    Args:
        relays: running, in front of the load server; those without a process are left out.

    Raises:
        LoadError: a connection failed, or was closed before its time.
    """
    return {relay.name: _memory(relay, CONNECTIONS) for relay in relays if relay.process is not None}


def _memory(relay: Relay, connections: int) -> Memory:
    assert relay.process is not None
    with idle_connections(relay.target, connections=_FIRST_CONNECTIONS, seconds=0):
        pass
    time.sleep(_SETTLE_SECONDS)
    before = relay.process.resident_bytes()
    first = connections // 2
    with idle_connections(relay.target, connections=first, seconds=2 * _HOLD_SECONDS):
        time.sleep(_SETTLE_SECONDS)
        half = relay.process.resident_bytes()
        with idle_connections(relay.target, connections=connections - first, seconds=_HOLD_SECONDS):
            time.sleep(_SETTLE_SECONDS)
            opened = relay.process.resident_bytes()
    time.sleep(_SETTLE_SECONDS)
    after = relay.process.resident_bytes()
    return Memory(connections=connections, before=before, half=half, open=opened, after=after)


def figures(memory: Mapping[str, Memory], subject: str, *, why_missing: str = "") -> list[Figure]:
    """Return the goal with what ``subject`` (a relay's name) reached."""
    seen = memory.get(subject)
    beside = memory.get("haproxy")
    return [
        Figure(
            name=f"memory by idle connection, {CONNECTIONS:,} connections",
            value=seen.kib_by_connection if seen else None,
            unit="KiB",
            at_most=KIB_GOAL,
            note=_note(seen, beside) if seen else why_missing,
        )
    ]


def _note(seen: Memory, beside: Memory | None) -> str:
    haproxy = f"; HAProxy {beside.kib_by_connection:.1f} KiB" if beside else ""
    return f"{seen.kib_with_everything:.1f} KiB with the whole process{haproxy}"


def describe(memory: Mapping[str, Memory]) -> str:
    """Return a table by relay, in MiB and by connection in KiB."""
    rows = [
        (
            name,
            f"{of.connections:,}",
            *(f"{held / 2**20:.1f}" for held in (of.before, of.half, of.open, of.after)),
            f"{of.kib_by_connection:.1f}",
            f"{of.kib_with_everything:.1f}",
        )
        for name, of in memory.items()
    ]
    head = (
        "relay",
        "connections",
        "MiB before",
        "MiB half",
        "MiB open",
        "MiB after",
        "KiB by connection",
        "whole process",
    )
    return table(head, rows)


def record(memory: Mapping[str, Memory], results: Results) -> None:
    """Keep what was read in ``results``."""
    results.raw["idle"] = {name: asdict(of) for name, of in memory.items()}
