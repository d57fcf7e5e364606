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
    """The start of a relay process.

    Attributes:
        slot: The number of the relay, from 1.
        counts: Its connections, and the memory that they hold by source. The other relays see them.
        relay_id: Unique among all relay processes of this machine.
        sockets: The listening sockets, by the listener's name.
        traffic: The descriptor of its table of traffic, which the core has too.
    """

    settings: ReceiverSettings
    slot: int
    relays: int
    counts: ProcessCounts
    relay_id: str
    sockets: Mapping[str, socket.socket]
    link: socket.socket
    traffic: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSetup:
    """The start of the core process.

    Attributes:
        first: Whether it is the first core of this receiver.
        relays: The number of relays that there should be.
        links: The links to the relays, by relay id.
        traffic: The descriptors of their tables of traffic, by relay id.
    """

    first: bool
    settings: ReceiverSettings
    relays: int
    rest: socket.socket
    bridge: socket.socket | None
    links: Mapping[str, socket.socket]
    traffic: Mapping[str, int]


#: Runs a relay process until the supervisor ends it, and returns its exit status.
RunRelay: TypeAlias = Callable[[ControlChannel, RelaySetup], int]

#: The same for the core process.
RunCore: TypeAlias = Callable[[ControlChannel, CoreSetup], int]
