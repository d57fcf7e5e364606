"""Real relays have as many connections as each other, whatever happens to one of them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.integration.gateway.support import TIMEOUT_S, GatewaySidecar, Raw, config
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import ScriptedBroker, produce_frame

#: Most that the busiest relay may have more than the least busy one, as a part.
TOLERANCE = 0.1


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


def by_relay(sidecar: GatewaySidecar) -> list[int]:
    """How many connections each relay has, the least first."""
    counts = Counter(connection["id"].rpartition("-")[0] for connection in sidecar.connections())
    return sorted(counts.values())


def is_even(sidecar: GatewaySidecar, relays: int) -> bool:
    """Whether the relays have as many as each other: within the tolerance, or one connection."""
    counts = by_relay(sidecar)
    return len(counts) == relays and counts[-1] - counts[0] <= max(1, TOLERANCE * counts[-1])


def connect(sidecar: GatewaySidecar, opened: contextlib.ExitStack, count: int) -> list[Raw]:
    """Open connections one after the other."""
    raws = [opened.enter_context(Raw(sidecar.port())) for _ in range(count)]
    for raw in raws:
        assert raw.exchange(produce_frame(2, b"through")).endswith(b"through")
    return raws


def even_after_more(sidecar: GatewaySidecar, opened: contextlib.ExitStack, relays: int) -> None:
    """Open connections until they are even: a relay that was slow for a moment catches up."""
    for _ in range(100):
        if is_even(sidecar, relays):
            return
        connect(sidecar, opened, relays)
    pytest.fail(f"connections by relay: {by_relay(sidecar)}")


@pytest.mark.full
@pytest.mark.parametrize(
    ("relays", "connections"),
    [(2, 100), *(pytest.param(*case, marks=pytest.mark.full) for case in ((4, 100), (16, 100), (16, 1_000)))],
)
def test_connections_are_spread_evenly_also_after_a_relay_died(
    broker: ScriptedBroker, relays: int, connections: int
) -> None:
    limits = {"source_address": {"new_connections_per_second": 10_000, "connections": 10_000}}
    settings = config(broker.port, gateway={"relays": relays}, limits=limits)
    with GatewaySidecar(settings) as sidecar, contextlib.ExitStack() as opened:
        connect(sidecar, opened, connections)
        even_after_more(sidecar, opened, relays)
        before = len(sidecar.connections())
        os.kill(sidecar.processes()["kct-relay-1"], signal.SIGKILL)
        wait_until(
            lambda: len(sidecar.connections()) < before, timeout_s=TIMEOUT_S, what="the death of a relay"
        )
        wait_until(lambda: sidecar.value("relays") == relays, timeout_s=TIMEOUT_S, what="a new relay")
        connect(sidecar, opened, before - len(sidecar.connections()))
        even_after_more(sidecar, opened, relays)
