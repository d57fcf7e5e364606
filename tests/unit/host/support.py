"""Helpers: pushes, and plugins with a behaviour set by the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from receiver.host.delivery.statistics import PluginStatistics
from receiver.host.discovery import HostedPlugin
from receiver.host.host import PluginHost
from receiver.host.settings import HostSettings
from receiver.plugin import (
    ClientTelemetryContext,
    ClientTelemetryPayload,
    ClientTelemetryReceiver,
    ExportResult,
    PluginConfig,
    Push,
)
from tests.testbed.process import PATIENCE_S

Export = Callable[[Sequence[Push]], ExportResult | None]

#: Fast enough for a test, and still a back-off. Nothing on disk unless a test says where.
FAST = {"retry": {"initial_ms": 1, "max_ms": 5}, "batch": {"linger_ms": 0}, "delivery": "memory"}


def push(number: int = 0, *, data: bytes | None = None, size: int = 10) -> Push:
    """A push that can be told from others by its connection id."""
    return Push(
        context=ClientTelemetryContext(
            connection_id=str(number),
            listener="CLIENT",
            security_protocol="PLAINTEXT",
            source_address="127.0.0.1",
            source_port=40000,
            principal="User:ANONYMOUS",
            client_id="producer-1",
            client_software_name="apache-kafka-java",
            client_software_version="4.4.0",
            broker_id=1,
            cluster_id="5L6g3nShT-eMCtK--X86sw",
            subscription_id=7,
            push_interval_ms=1000,
            received_at_ns=1_700_000_000_000_000_000,
        ),
        payload=ClientTelemetryPayload(
            client_instance_id="AAAAAAAAAAAAAAAAAAAAAQ",
            terminating=False,
            data=bytes(size) if data is None else data,
            sequence=number + 1,
            push_id=f"{number:032x}",
        ),
    )


def numbers(pushes: Sequence[Push]) -> list[int]:
    return [int(item.context.connection_id) for item in pushes]


class Single(ClientTelemetryReceiver):
    """A plugin that takes one push at a time and does what the test says."""

    def __init__(self, export: Export, config: PluginConfig | None = None) -> None:
        super().__init__(config or PluginConfig())
        self.calls: list[list[int]] = []
        self.threads: set[int] = set()
        self.started = 0
        self.stopped = 0
        self._export = export

    def start(self) -> None:
        self.threads.add(threading.get_ident())
        self.started += 1

    def export(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> ExportResult | None:
        return self._called([Push(context=context, payload=payload)])

    def stop(self) -> None:
        self.threads.add(threading.get_ident())
        self.stopped += 1

    @property
    def handed(self) -> list[int]:
        """The numbers of all pushes in the order of the calls."""
        return [number for call in self.calls for number in call]

    def _called(self, pushes: Sequence[Push]) -> ExportResult | None:
        self.threads.add(threading.get_ident())
        self.calls.append(numbers(pushes))
        return self._export(pushes)


class Batching(Single):
    """Likewise, several pushes at a time."""

    max_batch_items = 8

    def export_batch(self, pushes: Sequence[Push]) -> ExportResult | None:
        return self._called(pushes)


def took(pushes: Sequence[Push]) -> ExportResult | None:
    return None


def hosted(plugin: ClientTelemetryReceiver, *, name: str = "p", **settings: Any) -> HostedPlugin:
    return HostedPlugin(
        name=name, type="test", plugin=plugin, settings=HostSettings.model_validate({**FAST, **settings})
    )


def wait_for(condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """Wait for what another thread brings about; fails the test when it doesn't."""
    deadline = time.monotonic() + max(timeout_s, PATIENCE_S)
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.002)


def total(statistics: PluginStatistics) -> int:
    """Every push offered, or found on disk from before, is in exactly one of these places."""
    return (
        statistics.queue_items
        + statistics.spool_pushes
        + statistics.in_flight_pushes
        + statistics.exported_pushes
        + sum(statistics.dropped.values())
    )


def run(
    plugin: ClientTelemetryReceiver, pushes: int, *, drain_s: float = 60.0, **settings: Any
) -> PluginStatistics:
    """Offer pushes 0, 1, ... to a running plugin, stop it, and look at what became of them."""
    host = PluginHost([hosted(plugin, **settings)])
    host.start()
    for number in range(pushes):
        host.offer(push(number))
    host.stop(drain_s)
    (statistics,) = host.statistics()
    assert statistics.offered_pushes == pushes == total(statistics)
    return statistics
