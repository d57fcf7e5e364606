"""Benchmark of idle connections: their memory in the sidecar, beside HAProxy.

The memory of a process that starts to serve grows by more than its connections: allocators fill up,
and code pages become private. So one connection costs what the second half of the connections adds
to the first half. The whole process divided by all connections is an upper bound without such
effects.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.figures import Figure, Report, table
from benchmarks.load_generator import fake_broker
from benchmarks.processes import Running
from benchmarks.relays import in_front_of

_CONNECTIONS = 5_000
_KIB_GOAL = 30.0
_SETTLE_SECONDS = 1.0
_FIRST_CONNECTIONS = 50
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Private memory of a relay in bytes: before, with half and with all connections open."""

    connections: int
    before: int
    half: int
    open: int

    @property
    def kib_by_connection(self) -> float:
        """KiB of each connection of the second half."""
        return (self.open - self.half) / (self.connections - self.connections // 2) / 1024

    @property
    def kib_with_everything(self) -> float:
        """KiB of the whole process by connection."""
        return self.open / self.connections / 1024


def run(folder: Path, *, quick: bool) -> Report:
    """Open idle connections through each relay, each after one ApiVersions."""
    with fake_broker(folder) as (broker, _), in_front_of(broker, folder) as relays:
        memory = {
            relay.name: measure(relay.process, relay.target, _CONNECTIONS)
            for relay in relays
            if relay.process is not None
        }
    sidecar, haproxy = memory["sidecar"], memory["haproxy"]
    head = (
        "relay", "connections", "MiB before", "MiB half", "MiB open", "KiB by connection", "whole process",
    )  # fmt: skip
    rows = [
        (
            name,
            f"{item.connections:,}",
            *(f"{size / 2**20:.1f}" for size in (item.before, item.half, item.open)),
            f"{item.kib_by_connection:.1f}",
            f"{item.kib_with_everything:.1f}",
        )
        for name, item in memory.items()
    ]
    return Report(
        title="Memory of idle connections",
        text=table(head, rows),
        raw={name: asdict(item) for name, item in memory.items()},
        figures=[
            Figure(
                name=f"memory by idle connection, {_CONNECTIONS:,} connections",
                value=sidecar.kib_by_connection,
                unit="KiB",
                at_most=_KIB_GOAL,
                note=f"{sidecar.kib_with_everything:.1f} KiB with the whole process; "
                f"HAProxy {haproxy.kib_by_connection:.1f} KiB",
            )
        ],
    )


def measure(process: Running, target: str, connections: int, *, ca: Path | None = None) -> Memory:
    """Measure a relay at ``target`` (host:port), with ``ca`` over TLS."""

    def settled() -> int:
        time.sleep(_SETTLE_SECONDS)
        return process.resident_bytes()

    first = connections // 2
    # A few first, so that what is made once, at the first connection, does not count.
    with held(target, _FIRST_CONNECTIONS, ca):
        pass
    before = settled()
    with held(target, first, ca):
        half = settled()
        with held(target, connections - first, ca):
            opened = settled()
    return Memory(connections=connections, before=before, half=half, open=opened)


@contextlib.contextmanager
def held(target: str, count: int, ca: Path | None) -> Iterator[None]:
    """Hold connections, each after one ApiVersions; none may be closed by the relay."""
    host, _, port = target.rpartition(":")
    context = None if ca is None else ssl.create_default_context(cafile=ca)
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            if context is not None:
                connection = stack.enter_context(context.wrap_socket(connection, server_hostname=host))
            connection.sendall(_API_VERSIONS)
            if not connection.recv(4096):
                raise ConnectionError(f"{target} closed a connection after ApiVersions")
            opened.append(connection)
        yield
        for connection in opened:
            connection.settimeout(0)
            with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
                connection.recv(1)
                raise ConnectionError(f"{target} closed an idle connection")
