"""What is known of the broker behind a listener, and what was proven.

A broker does not say who it is. Metadata names all brokers of the cluster, and
:mod:`receiver.gateway.upstream.node_id` finds out which of them answers. Until that is proven, the
sidecar answers nothing in the name of a node id (KIP-1242). Labels may use an id that is only
likely:

===========================================  ======  ==================
evidence of the node id                      proven  used for labels
===========================================  ======  ==================
the broker's answer to a question for it     yes     always
``broker.id`` of the configuration           no      unless disproven
the only broker of the cluster, the only     no      with ``id: auto``
one that advertises the upstream's address,
or the only one that advertises our port
===========================================  ======  ==================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from receiver.telemetry.identity import Broker
from receiver.wire.k03_metadata import Cluster

#: Most brokers of a cluster that are asked for, or kept as known.
_MAX_CANDIDATES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBroker:
    """A broker as far as it is known."""

    broker: Broker
    """Its node id and its cluster id."""
    proven: bool = False
    """Whether it has shown that the node id is its own."""
    advertised: str | None = None
    """The address that it tells clients, ``host:port``."""
    takes_telemetry: bool = False
    """Whether it takes client telemetry itself (KIP-714)."""
    unread_resources: int = 0
    """The number of its client metrics resources that the receiver does not read; 0 where the
    receiver may not ask."""
    keeps_resources: bool | None = None
    """Whether it keeps client metrics resources itself (Kafka 3.7); None: not known yet."""
    nodes: tuple[int, ...] = ()
    """The ids of its cluster's brokers, at most 64; empty: not known yet."""
    named_at_port: int | None = None
    """The only node that Metadata names at the listener's port, if it is another one."""


class ListenerBroker:
    """The broker behind one listener.

    Args:
        configured: The node id and the cluster id of the configuration; None: to be learned.
        upstream: Host and port of the broker's own listener.
        machine: The name of this machine. In a pod a broker's address begins with it.
        is_one: Whether all connections reach one broker. Clients that only bootstrap may reach any.
        named_by_cluster: Whether the node id and the upstream are those of a Metadata response, and
            not the configuration's.

    Attributes:
        cluster: The cluster that the latest Metadata response named.
        wants_cluster: Whether the next Metadata response that passes should be read.
        on_change: Called when :attr:`known` has changed or :attr:`cluster` came.
    """

    def __init__(
        self,
        configured: Broker,
        upstream: tuple[str, int],
        port: int,
        *,
        machine: str = "",
        is_one: bool = True,
        named_by_cluster: bool = False,
    ) -> None:
        self._is_one = is_one
        self._named_by_cluster = named_by_cluster
        self._configured = configured
        self._upstream = upstream
        self._port = port
        self._machine = machine.partition(".")[0]
        self._last_proven: int | None = None
        self.known = KnownBroker(broker=configured)
        self.cluster: Cluster | None = None
        self.wants_cluster = True
        self.on_change: Callable[[], None] = _ignore

    @property
    def problem(self) -> str | None:
        """How the broker differs from the configuration; None if nothing is known of that."""
        configured, known = self._configured, self.known
        own = known.broker.id
        if known.proven and own is not None and configured.id is not None and configured.id != own:
            if self._named_by_cluster:
                return (
                    f"the cluster says that {self._upstream[0]}:{self._upstream[1]} is node {configured.id}, "
                    f"but node {own} answers there; check that the name leads to one broker"
                )
            return (
                f"broker.id is {configured.id}, but the broker's node id is {own}; set broker.id "
                f"to {own} or auto, or correct the upstream"
            )
        cluster_id = None if self.cluster is None else self.cluster.id
        if configured.cluster_id is not None and cluster_id not in {None, configured.cluster_id}:
            return (
                f"broker.cluster_id is {configured.cluster_id}, but the broker's cluster is {cluster_id}; "
                f"set broker.cluster_id to {cluster_id} or null, or correct the upstream"
            )
        return None

    def is_misrouted(self, cluster_id: str, node_id: int) -> bool:
        """Whether a client wants to reach another broker than this one (KIP-1242).

        Another cluster is known from what the broker itself said in a Metadata response, which any
        client's login brings. Another node is known only if the broker has proven its own.
        """
        if self.cluster is not None and not self.wants_cluster and self.cluster.id not in {None, cluster_id}:
            return True
        broker = self.known.broker
        return self.known.proven and (node_id != broker.id or broker.cluster_id not in {None, cluster_id})

    def candidates(self) -> list[int]:
        """Return the node ids that the broker may have, the likely ones first."""
        if self.cluster is None or not self._is_one:
            return []
        likely = (
            self._last_proven,
            self._configured.id,
            self.known.broker.id,
            *self._at_upstream(),
            *self._on_this_machine(),
            *self._at_port(),
        )
        alive = {broker.node_id: None for broker in self.cluster.brokers if broker.node_id >= 0}
        ids = dict.fromkeys([node_id for node_id in likely if node_id is not None]) | alive
        return list(ids)[:_MAX_CANDIDATES]

    def record_cluster(self, cluster: Cluster) -> None:
        """Take what a Metadata response says of the cluster."""
        self.wants_cluster = False
        came = self.cluster is None
        self.cluster = cluster
        self._conclude(self.known.broker.id if self.known.proven else None, came=came)

    def record_node_id(self, node_id: int | None) -> None:
        """Take the result of asking the broker for its node id; None: it did not say."""
        proven = self.known.broker.id if self.known.proven else None
        self._last_proven = proven if node_id is None else node_id
        self._conclude(self._last_proven)

    def record_telemetry(
        self, *, takes_telemetry: bool, unread_resources: int, keeps_resources: bool | None = None
    ) -> None:
        """Take what a probe found of the broker's own telemetry; see :class:`KnownBroker`."""
        self._take(
            replace(
                self.known,
                takes_telemetry=takes_telemetry,
                unread_resources=unread_resources,
                keeps_resources=keeps_resources,
            )
        )

    def adopt(self, known: KnownBroker) -> None:
        """Take what another relay has proven."""
        if known.proven and not self.known.proven:
            self.known = known
            self.on_change()

    def mark_away(self) -> None:
        """Forget what was proven: another broker may answer at the address next time."""
        self.wants_cluster = True
        self._conclude(None)

    def _conclude(self, proven: int | None, *, came: bool = False) -> None:
        cluster_id = self._configured.cluster_id
        if self.cluster is not None and self.cluster.id is not None:
            cluster_id = self.cluster.id
        elif cluster_id is None:
            cluster_id = self.known.broker.cluster_id
        node_id = proven
        if node_id is None:
            node_id = self._configured.id
        if node_id is None:
            node_id = self._likely()
        known = replace(
            self.known,
            broker=Broker(id=node_id, cluster_id=cluster_id),
            proven=proven is not None,
            advertised=self._advertised_by(node_id),
            nodes=self._nodes(),
            named_at_port=self._named_at_port(node_id),
        )
        self._take(known, came=came)

    def _nodes(self) -> tuple[int, ...]:
        brokers = () if self.cluster is None else self.cluster.brokers
        return tuple(sorted({broker.node_id for broker in brokers if broker.node_id >= 0})[:_MAX_CANDIDATES])

    def _take(self, known: KnownBroker, *, came: bool = False) -> None:
        if known != self.known or came:
            self.known = known
            self.on_change()

    def _advertised_by(self, node_id: int | None) -> str | None:
        for broker in () if self.cluster is None else self.cluster.brokers:
            if broker.node_id == node_id:
                host = f"[{broker.host}]" if ":" in broker.host else broker.host
                return f"{host}:{broker.port}"
        return None

    def _likely(self) -> int | None:
        if not self._is_one:
            return None
        if self.cluster is None:
            return self.known.broker.id
        brokers = self.cluster.brokers
        for ids in ([broker.node_id for broker in brokers], self._at_upstream(), self._at_port()):
            if len(ids) == 1:
                return ids[0]
        return None

    def _named_at_port(self, node_id: int | None) -> int | None:
        at_port = self._at_port()
        return at_port[0] if len(at_port) == 1 and node_id not in {None, *at_port} else None

    def _at_port(self) -> list[int]:
        brokers = () if self.cluster is None else self.cluster.brokers
        return [broker.node_id for broker in brokers if broker.port == self._port]

    def _on_this_machine(self) -> list[int]:
        brokers = () if self.cluster is None or not self._machine else self.cluster.brokers
        return [broker.node_id for broker in brokers if broker.host.partition(".")[0] == self._machine]

    def _at_upstream(self) -> list[int]:
        brokers = () if self.cluster is None else self.cluster.brokers
        return [broker.node_id for broker in brokers if (broker.host, broker.port) == self._upstream]


def _ignore() -> None:
    """Do nothing."""
