"""What a child process gets from the supervisor when it starts."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from receiver.settings.model import ReceiverSettings
from receiver.supervisor.channel import ControlChannel
from receiver.supervisor.shared_counts import ProcessCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySetup:
    """The start of a relay process."""

    settings: ReceiverSettings
    slot: int
    """The number of the relay, from 1."""
    relays: int
    counts: ProcessCounts
    """Its connections, and the memory that they hold by source. The other relays see them."""
    relay_id: str
    """Unique among all relay processes of this machine."""
    sockets: Mapping[str, socket.socket]
    """The listening sockets, by the listener's name."""
    link: socket.socket
    traffic: int
    """The descriptor of its table of traffic, which the core has too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSetup:
    """The start of the core process."""

    first: bool
    """Whether it is the first core of this receiver."""
    settings: ReceiverSettings
    relays: int
    """The number of relays that there should be."""
    rest: socket.socket
    bridge: socket.socket | None
    links: Mapping[str, socket.socket]
    """The links to the relays, by relay id."""
    traffic: Mapping[str, int]
    """The descriptors of their tables of traffic, by relay id."""


#: Runs a relay process until the supervisor ends it, and returns its exit status.
RunRelay: TypeAlias = Callable[[ControlChannel, RelaySetup], int]

#: The same for the core process.
RunCore: TypeAlias = Callable[[ControlChannel, CoreSetup], int]
