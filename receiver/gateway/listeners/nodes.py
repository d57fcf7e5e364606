"""The node listeners behind a rewriting listener.

Each node that is known has a listener of its own, on its own port: with its own watch, its own
broker and its own API versions. So a node's port is closed while its broker is away, and what its
clients push is labelled with it. Owns these listeners and the sockets of the ports, which are bound
from the start, so that a response never names a port that is not open yet.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeAlias, TypeVar

import structlog

from receiver.brokers.node_table import NodeTable
from receiver.log import RateLimitedLog
from receiver.settings.hostport import HostPort
from receiver.settings.listeners import ListenerSettings
from receiver.wire.broker_addresses import BrokerAddress
from receiver.wire.k03_metadata import Cluster


class NodeListener(Protocol):
    """The listener of one node."""

    @property
    def connections(self) -> int:
        """How many connections are open."""

    @property
    def empty(self) -> bool:
        """Whether no connection is open or about to be."""

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes read since the start, from clients and from the broker."""

    def open(self) -> None:
        """Begin to accept clients."""

    def close_port(self) -> None:
        """Let the kernel refuse clients."""

    def stop_accepting(self) -> None:
        """Close this process's descriptor of the listening socket."""

    async def drain(self, deadline: float) -> None:
        """Finish responses in flight until a deadline in loop time, then close all."""


_Listener = TypeVar("_Listener", bound=NodeListener)

#: Makes the listener of a node at an address, on a socket that it owns. Without one, the rewriting
#: listener gives it the clients that ask for its name.
MakeNodeListener: TypeAlias = Callable[[int, HostPort, socket.socket | None], _Listener]

_log = structlog.get_logger("receiver.gateway")


class Nodes(Generic[_Listener]):
    """The nodes of one rewriting listener.

    Args:
        sockets: The sockets of the node ports, bound, by node id; owned here. Empty if nodes have
            names.
        on_new: Called with a node's id and address when a response has named it, to tell the other
            relays.
        on_hidden: Called when a broker was named that clients can't reach.
    """

    def __init__(
        self,
        settings: ListenerSettings,
        sockets: Mapping[int, socket.socket],
        *,
        make_listener: MakeNodeListener[_Listener],
        on_new: Callable[[int, HostPort], None],
        on_hidden: Callable[[], None],
    ) -> None:
        self._name = settings.name
        self._sockets = dict(sockets)
        self._make_listener = make_listener
        self._on_new = on_new
        self._on_hidden = on_hidden
        self._table = NodeTable(settings, on_change=self._named, on_hidden=self._hidden)
        self._listeners: dict[int, _Listener] = {}
        self._retired: list[_Listener] = []
        self._traffic_of_gone = (0, 0)
        self._rewrite = settings.rewrite
        self._warnings = RateLimitedLog("receiver.gateway", fields={"listener": settings.name})
        self._is_open = False
        self._has_ended = False

    @property
    def addresses(self) -> Mapping[int, HostPort]:
        """The addresses that the known nodes advertise, by node id."""
        return self._table.addresses

    @property
    def listeners(self) -> Mapping[int, _Listener]:
        """The listeners of the known nodes, by node id."""
        return self._listeners

    @property
    def all_listeners(self) -> list[_Listener]:
        """Those listeners, and those that only have open connections left."""
        return [*self._listeners.values(), *self._retired]

    @property
    def connections_by_name(self) -> int:
        """How many connections to nodes came by the rewriting listener's own port."""
        return 0 if self._sockets else sum(listener.connections for listener in self.all_listeners)

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes read since the start, from clients and from the nodes."""
        for listener in [retired for retired in self._retired if retired.empty]:
            self._retired.remove(listener)
            self._traffic_of_gone = _sum(self._traffic_of_gone, listener.traffic)
        total = self._traffic_of_gone
        for listener in self.all_listeners:
            total = _sum(total, listener.traffic)
        return total

    def named(self, name: str) -> _Listener | None:
        """Return the listener of the node for whose name a client asks.

        None: it bootstraps.

        Args:
            name: The name, in lower case.

        Raises:
            LookupError: The node is not known.
        """
        if self._rewrite is None or not self._rewrite.names_nodes:
            return None
        node_id = self._rewrite.node_of(name)
        if node_id is None:
            return None
        listener = self._listeners.get(node_id)
        if listener is None:
            raise LookupError(f"{name}: the cluster has not named node {node_id}")
        return listener

    def replace(self, broker: BrokerAddress) -> tuple[str, int]:
        """Return the address to write for a broker of a response, and learn the broker."""
        return self._table.name(broker)

    def learn(self, node_id: int, address: HostPort) -> None:
        """Take a node's address from another relay, or from before a reload."""
        if self._table.learn(node_id, address):
            self._serve(node_id, address)

    def saw(self, cluster: Cluster) -> None:
        """Take the brokers of the cluster from an answer to the sidecar's own question."""
        for broker in cluster.brokers:
            if broker.node_id >= 0:
                self._table.name(broker)
        for node_id in self._table.record_nodes({broker.node_id for broker in cluster.brokers}):
            once = f"node {self._name} {node_id}"
            _log.info("a node has left the cluster", once=once, listener=self._name, node=node_id)
            if (listener := self._listeners.pop(node_id, None)) is not None:
                listener.close_port()
                self._retire(listener)

    def open(self) -> None:
        """Begin to accept the clients of nodes."""
        self._is_open = True
        for listener in self._listeners.values():
            listener.open()

    def stop_accepting(self) -> None:
        """Close this process's descriptors of the sockets."""
        self._has_ended = True
        for listener in self._listeners.values():
            listener.stop_accepting()
        for listening in self._sockets.values():
            listening.close()
        self._sockets.clear()

    async def drain(self, deadline: float) -> None:
        """Finish responses in flight until a deadline in loop time, then close all."""
        await asyncio.gather(*(listener.drain(deadline) for listener in self.all_listeners))

    def _named(self, node_id: int, address: HostPort) -> None:
        self._serve(node_id, address)
        self._on_new(node_id, address)

    def _hidden(self, broker: BrokerAddress) -> None:
        self._on_hidden()
        self._warnings.warning(
            "clients can't reach a broker",
            kind="hidden",
            once=f"hidden {self._name} {broker.node_id}",
            node=broker.node_id,
            address=f"{broker.host}:{broker.port}",
            problem="its address is not valid, or its node id is not less than rewrite.nodes; raise that",
        )

    def _serve(self, node_id: int, address: HostPort) -> None:
        """Accept the clients of a node that is new, or that has moved."""
        if self._has_ended:
            return
        before = self._listeners.get(node_id)
        listening = self._sockets.get(node_id)
        listener = self._make_listener(node_id, address, None if listening is None else listening.dup())
        self._listeners[node_id] = listener
        if before is not None:
            self._retire(before)
        if self._is_open:
            listener.open()

    def _retire(self, listener: _Listener) -> None:
        listener.stop_accepting()
        self._retired.append(listener)


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]
