"""The nodes behind a rewriting listener, and the address of each for clients.

Owns which nodes are known. Responses name them, those that pass and those to the sidecar's own
questions. The table does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Final

from receiver.settings.hostport import HostPort
from receiver.settings.listeners import ListenerSettings
from receiver.wire.broker_addresses import BrokerAddress

#: How often in a row a node must be missing in the cluster before it is forgotten. A broker that
#: has just restarted may not know all others yet.
_MISSING_BEFORE_FORGOTTEN: Final = 3

#: So many addresses of responses are kept as they were read.
_MAX_READ: Final = 256


class NodeTable:
    """The known nodes of one rewriting listener, at most one for each node port.

    Args:
        listener: The listener's settings, which say where clients reach the nodes.
        on_change: Called with a node's id and address when a response names another address, before
            the response goes on to the client.
        on_hidden: Called with a broker that has no port or name, or whose address is no address.
    """

    def __init__(
        self,
        listener: ListenerSettings,
        *,
        on_change: Callable[[int, HostPort], None],
        on_hidden: Callable[[BrokerAddress], None],
    ) -> None:
        self._listener = listener
        self._on_change = on_change
        self._nodes: dict[int, HostPort] = {}
        self._missing: dict[int, int] = {}
        self._on_hidden = on_hidden
        # A response may name one broker thousands of times.
        self._read = lru_cache(maxsize=_MAX_READ)(self._addresses_of)

    @property
    def addresses(self) -> Mapping[int, HostPort]:
        """The addresses that the known nodes advertise, by node id."""
        return self._nodes

    def name(self, broker: BrokerAddress) -> tuple[str, int]:
        """Record a broker that a response names, and return the address to write.

        A node without a port gets the address at which clients bootstrap. Clients do not reach the
        node there, but its own address is not shown either.
        """
        public, address = self._read(broker)
        if public is None or address is None:
            self._on_hidden(broker)
            bootstrap = self._listener.public_bootstrap
            return bootstrap.host, bootstrap.port
        if self._nodes.get(broker.node_id) != address:
            self._nodes[broker.node_id] = address
            self._on_change(broker.node_id, address)
        return public.host, public.port

    def _addresses_of(self, broker: BrokerAddress) -> tuple[HostPort | None, HostPort | None]:
        """Return the address for clients, and the one that the broker advertises."""
        return self._listener.public_address(broker.node_id), _address(broker)

    def learn(self, node_id: int, address: HostPort) -> bool:
        """Record an address of another relay process; return whether it is new here."""
        if self._listener.public_address(node_id) is None or self._nodes.get(node_id) == address:
            return False
        self._nodes[node_id] = address
        return True

    def record_nodes(self, node_ids: Collection[int]) -> list[int]:
        """Take the ids of all brokers of the cluster, as one of them knows it.

        Returns:
            The nodes that are forgotten, because they were missing a few times in a row.
        """
        self._missing = {
            node_id: self._missing.get(node_id, 0) + 1 for node_id in self._nodes if node_id not in node_ids
        }
        gone = [node for node, times in self._missing.items() if times >= _MISSING_BEFORE_FORGOTTEN]
        for node_id in gone:
            del self._nodes[node_id], self._missing[node_id]
        return gone


def _address(broker: BrokerAddress) -> HostPort | None:
    host = f"[{broker.host}]" if ":" in broker.host else broker.host
    try:
        address = HostPort.parse(f"{host}:{broker.port}")
    except ValueError:
        return None
    return address if address.port else None
