"""What operators see of a listener."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from receiver.brokers.listener_broker import KnownBroker
from receiver.settings.listeners import ListenerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerState:
    """A listener, the broker behind it, and the nodes behind a rewriting one."""

    settings: ListenerSettings
    known: KnownBroker
    connections: int
    nodes: Mapping[int, KnownBroker] = field(default_factory=dict)
    """What is known of the broker behind each node port, by node id."""
