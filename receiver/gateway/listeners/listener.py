"""Accepts the clients of one listener and connects each to the broker.

Owns the port and its connections. A refused client, or one whose broker can't be
reached, is reset at once, as by a broker that shuts down. The log gives the reason, at a limited
rate.

**The broker is away.** While no connection to the broker opens, the port is closed: the kernel
refuses clients, as it would in front of a broker that is down, and they retry no more often than
then. A client that is accepted and then reset takes the broker for alive, and retries at once. Any
relay closes the port, and any of them opens it again when it reaches the broker.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

from receiver.brokers.listener_broker import ListenerBroker
from receiver.brokers.upstream import Upstream
from receiver.event_loop import running_loop
from receiver.gateway.connection.closing import CloseReason, close_with_reset
from receiver.gateway.connection.connection import Connection, ConnectionServices
from receiver.gateway.connection.system_buffers import fix, tune
from receiver.gateway.connection.tls_socket import TlsSocket
from receiver.gateway.core_link import CoreLink
from receiver.gateway.listeners.admission import Admission, RefusalReason, RefusedError
from receiver.gateway.listeners.nodes import Nodes
from receiver.gateway.listeners.port import OUT_OF_FILES, Port
from receiver.gateway.listeners.proxy_protocol import plain_address
from receiver.gateway.upstream.address import UpstreamAddress, describe_error
from receiver.gateway.upstream.watch import UpstreamWatch
from receiver.log import RateLimitedLog
from receiver.metrics import RelayMetrics
from receiver.request_log import connection_fields
from receiver.session.effects import LoginOutcome
from receiver.session.session import Session
from receiver.settings.limits import SCARCE_BUFFER_BYTES
from receiver.settings.listeners import ListenerSettings
from receiver.telemetry.identity import ANONYMOUS, ClientIdentity, port_name
from receiver.workers import start_task

#: Makes the session of a new connection.
SessionFactory = Callable[[ClientIdentity, Upstream], Session]

_ENDED_BY_BROKER: Final = frozenset(
    {CloseReason.BROKER_CLOSED, CloseReason.BROKER_RESET, CloseReason.BROKER_TLS_ERROR}
)
_LIMITS: Final = {
    CloseReason.HELD_BYTES: "limits.max_held_bytes",
    CloseReason.REQUEST_TIMEOUT: "limits.request_timeout_ms",
}
_DRAIN_CHECK_S: Final = 0.05
#: Seconds for which a connection still takes requests in a drain, and may close between two. A
#: producer may always have one in flight, so it takes none after that.
_RETIRED_S: Final = 1.0
_LISTEN_AGAIN_S: Final = 5.0

#: Seconds for which a client of a node that is away is held before the next try, where the port
#: can't be closed.
_AWAY_HOLD_S: Final = 1.0

_log = structlog.get_logger("receiver.gateway")


class Listener:
    """The gateway's side of one advertised listener of the broker.

    Args:
        listening: The listening socket, which all relays share; the listener owns its
            descriptor. None: another listener gives it clients.
        node_id: The node whose port this is, of a rewriting listener; None: the listener itself.
        nodes: The nodes behind it, whose addresses it rewrites; None: there are none.
    """

    def __init__(
        self,
        settings: ListenerSettings,
        listening: socket.socket | None,
        *,
        node_id: int | None = None,
        admission: Admission,
        address: UpstreamAddress,
        nodes: Nodes[Listener] | None = None,
        broker: ListenerBroker,
        upstream: Upstream,
        core: CoreLink,
        metrics: RelayMetrics,
        services: ConnectionServices,
        make_session: SessionFactory,
    ) -> None:
        self.settings = settings
        self.node_id = node_id
        self.nodes = nodes
        self.broker = broker
        self._upstream = upstream
        self._core = core
        self._metrics = metrics
        self._limits = services.limits
        self._services = services
        self._make_session = make_session
        self._admission = admission
        self._address = address
        self._watch = UpstreamWatch(
            settings,
            address,
            broker,
            upstream,
            on_change=self._follow_upstream,
            on_cluster=None if nodes is None else nodes.saw,
            name=self.name,
        )
        self._open: set[Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._has_ended = False
        self._port = None
        if listening is not None:
            self._port = Port(
                listening,
                services.spread,
                on_client=self._admit,
                on_out_of_files=lambda error: self._refuse(RefusalReason.OUT_OF_FILES, describe_error(error)),
                on_closed=self._watch.start,
            )
        self._traffic_of_closed = (0, 0)
        self._warnings = RateLimitedLog("receiver.gateway")

    @property
    def name(self) -> str:
        """The listener's name, and the node's if the port is that of one: ``ALL/2``."""
        return port_name(self.settings.name, self.node_id)

    @property
    def upstream_problem(self) -> str | None:
        """Why the broker can't be reached; None while it can."""
        return self._watch.problem

    @property
    def certificates(self) -> list[tuple[str, float]]:
        """The expiry of the certificates shown to ``client`` and ``upstream``."""
        contexts = (("client", self._admission.tls), ("upstream", self._address.tls))
        return [
            (side, expiry)
            for side, tls in contexts
            if tls is not None and (expiry := tls.not_after()) is not None
        ]

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes read since the start, from clients and from the broker."""
        from_clients, from_broker = self._traffic_of_closed
        for connection in self._open:
            up, down = connection.traffic
            from_clients += up
            from_broker += down
        if self.nodes is not None:
            up, down = self.nodes.traffic
            from_clients += up
            from_broker += down
        return from_clients, from_broker

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._open)

    @property
    def empty(self) -> bool:
        """Whether no connection is open or about to be."""
        nodes = () if self.nodes is None else self.nodes.all_listeners
        return not self._open and not self._connecting and all(node.empty for node in nodes)

    def open(self) -> None:
        """Begin to accept clients, and to probe the broker."""
        self._open_port()
        self._watch.start()
        if self.nodes is not None:
            self.nodes.open()
        _log.info(
            "accepting clients",
            # Of its own, because another relay may have told of the broker meanwhile.
            once=f"open {self.name}",
            listener=self.name,
            bind=str(self.settings.bind),
            upstream=str(self.settings.upstream),
        )

    def stop_accepting(self) -> None:
        """Close this process's descriptor of the listening socket."""
        self._has_ended = True
        if self.nodes is not None:
            self.nodes.stop_accepting()
        if self._port is not None:
            self._port.end()
        self._watch.stop()

    async def drain(self, deadline: float) -> None:
        """Finish responses in flight until a deadline in loop time, then close all."""
        if self.nodes is None:
            await self._drain(deadline)
        else:
            await asyncio.gather(self._drain(deadline), self.nodes.drain(deadline))

    async def _drain(self, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        for task in tuple(self._connecting):
            task.cancel()
        for connection in self._open:
            connection.retire()
        now = loop.time()
        await self._close_drained(until=min(now + _RETIRED_S, (now + deadline) / 2))
        for connection in self._open:
            connection.drain()
        await self._close_drained(until=deadline)
        for connection in tuple(self._open):
            connection.close(CloseReason.DRAINED)

    async def _close_drained(self, until: float) -> None:
        """Close the connections without due responses, until a time of the loop."""
        loop = asyncio.get_running_loop()
        while self._open and (now := loop.time()) < until:
            for connection in tuple(self._open):
                if connection.is_drained(now):
                    connection.close(CloseReason.DRAINED)
            await asyncio.sleep(min(_DRAIN_CHECK_S, until - now))

    # -- the port ----------------------------------------------------------------------------------

    def _follow_upstream(self) -> None:
        if self._watch.away:
            if self._port is not None and self._port.is_open:
                self._warnings.warning(
                    "clients are refused until the broker can be reached",
                    kind="away",
                    once=f"listener {self.name}",
                    listener=self.name,
                    upstream=str(self.settings.upstream),
                    problem=self._watch.problem,
                )
            self.close_port()
        elif self._watch.problem is None:
            self._open_port()
        self._core.problems_changed()

    def _open_port(self) -> None:
        if self._port is None or self._has_ended:
            return
        try:
            self._port.open()
        except OSError as error:  # another program has the port of a node that was not open yet
            self._warnings.warning(
                "can't listen",
                kind="listen",
                once=f"listener {self.name}",
                listener=self.name,
                problem=describe_error(error),
            )
            asyncio.get_running_loop().call_later(_LISTEN_AGAIN_S, self._open_port)

    def close_port(self) -> None:
        """Let the kernel refuse clients, in all relays."""
        if self._port is not None:
            self._port.close()

    # -- accepting ---------------------------------------------------------------------------------

    def _admit(self, client: socket.socket, source_address: str, source_port: int) -> None:
        client.setblocking(False)  # noqa: FBT003 - the socket's own signature
        by_name = 0 if self.nodes is None else self.nodes.connections_by_name
        full = self.connections + len(self._connecting) + by_name >= self.settings.max_connections
        if full and not self._admission.displace():
            close_with_reset(client)
            problem = f"listeners[].max_connections ({self.settings.max_connections}) connections are open"
            self._refuse(RefusalReason.LIMIT, problem, source_address=plain_address(source_address))
            return
        source_address = plain_address(source_address)
        if self._admission.knows_source(source_address):
            try:
                self._admission.count(source_address)
            except RefusedError as error:
                close_with_reset(client)
                error.source_address = source_address
                self._refuse_at_admission(error)
                return
        number, connection_id = self._core.new_connection()
        identity = ClientIdentity(
            id=connection_id,
            listener=self.settings.name,
            node_id=self.node_id,
            security_protocol=self.settings.security_protocol,
            source_address=source_address,
            source_port=source_port,
            since=time.time(),
        )
        started = time.perf_counter()
        if self._admission.needs_no_bytes and (broker := self._address.connect_at_once()) is not None:
            self._metrics.upstream_connected(self.settings.name, time.perf_counter() - started)
            self._join(client, broker, number, identity)
            return
        task = start_task("admission", self._admit_and_join(client, number, identity))
        self._connecting.add(task)
        self._services.spread.add(1)
        task.add_done_callback(self._connected)

    def _connected(self, task: asyncio.Task[None]) -> None:
        self._connecting.discard(task)
        self._services.spread.add(-1)

    async def _admit_and_join(self, client: socket.socket, number: int, identity: ClientIdentity) -> None:
        try:
            client, identity = await self._admission.admit(client, identity)
        except RefusedError as error:
            self._refuse_at_admission(error)
            return
        if identity.principal != ANONYMOUS:
            self._metrics.authentication(self.settings.name, "TLS", LoginOutcome.SUCCEEDED)
        try:
            target = self._target(client)
        except LookupError as error:
            close_with_reset(client)
            self._limits.connection_closed(identity)
            self._refuse(RefusalReason.UPSTREAM, str(error))
            return
        await target.connect_and_join(client, number, replace(identity, node_id=target.node_id))

    def _target(self, client: socket.socket) -> Listener:
        """Return the listener of the broker whose name a client asked for (SNI)."""
        if self.nodes is None or not isinstance(client, TlsSocket):
            return self
        return self.nodes.named(client.asked_name) or self

    async def connect_and_join(self, client: socket.socket, number: int, identity: ClientIdentity) -> None:
        """Connect an admitted client to the broker; its socket is owned here."""
        try:
            if self._watch.away and (self._port is None or self._has_ended):
                # Nodes with names share a port that stays open. A client that was reset at once
                # would come back at once.
                await asyncio.sleep(_AWAY_HOLD_S)
            broker = await self._connect(identity)
        except BaseException as error:
            close_with_reset(client)
            self._limits.connection_closed(identity)
            if isinstance(error, OSError):
                self._refuse_for_upstream(error)
                return
            raise
        self._join(client, broker, number, identity)

    def _join(
        self, client: socket.socket, broker: socket.socket, number: int, identity: ClientIdentity
    ) -> None:
        buffer_bytes = self.settings.socket_buffer_bytes
        if self._services.memory.is_scarce(identity.peers.block):
            buffer_bytes = min(buffer_bytes or SCARCE_BUFFER_BYTES, SCARCE_BUFFER_BYTES)
        try:
            for side in (client, broker):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                side.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if buffer_bytes is None:
                tune(client, broker)
            else:
                fix(client, broker, buffer_bytes)
        except OSError as error:  # one of them is gone already
            client.close()
            broker.close()
            self._limits.connection_closed(identity)
            self._refuse(RefusalReason.GONE, describe_error(error))
            return
        session = self._make_session(identity, self._upstream)
        loop = running_loop()
        share = loop.share_of(identity.peers.block)
        connection = Connection(
            loop,
            number,
            identity,
            client,
            broker,
            session,
            self._services,
            share,
            self._closed,
        )
        self._open.add(connection)
        self._services.spread.add(1)
        self._core.opened(number, identity, connection)
        self._metrics.connection_opened(self.settings.name)
        connection.start()

    async def _connect(self, identity: ClientIdentity) -> socket.socket:
        started = running_loop().time()
        async with asyncio.timeout(self.settings.connect_timeout_ms / 1000):
            broker = await self._address.connect(identity.peers.block)
        self._metrics.upstream_connected(self.settings.name, running_loop().time() - started)
        return broker

    def _refuse_at_admission(self, error: RefusedError) -> None:
        if error.exceeded is not None:
            self._metrics.limit_exceeded(error.exceeded)
        if error.reason is RefusalReason.PRINCIPAL:
            self._metrics.authentication(self.settings.name, "TLS", LoginOutcome.FAILED)
        self._refuse(
            error.reason, str(error), source_address=error.source_address, likely_cause=error.likely_cause
        )

    def _refuse_for_upstream(self, error: OSError) -> None:
        if error.errno in OUT_OF_FILES:
            self._refuse(RefusalReason.OUT_OF_FILES, describe_error(error))
            return
        reason = "no answer in time" if isinstance(error, TimeoutError) else describe_error(error)
        self._refuse(RefusalReason.UPSTREAM, f"{self.settings.upstream}: {reason}")
        if not self._has_ended:
            self._watch.failed(reason)

    def _closed(self, connection: Connection, reason: CloseReason, error: Exception | None) -> None:
        identity = connection.identity
        self._open.discard(connection)
        self._services.spread.add(-1)
        self._core.closed(connection.number, reason)
        self._limits.connection_closed(identity)
        up, down = connection.traffic
        from_clients, from_broker = self._traffic_of_closed
        self._traffic_of_closed = (from_clients + up, from_broker + down)
        self._metrics.connection_closed(self.settings.name, reason)
        if reason in _ENDED_BY_BROKER and not self._has_ended:
            self._watch.check()
        if reason is CloseReason.INTERNAL_ERROR:
            _log.error("internal error, connection closed", exc_info=error, **connection_fields(identity))
        elif error is not None:
            self._metrics.protocol_error(self.settings.name, reason)
            self._warnings.warning(
                "closed for malformed bytes",
                kind=reason,
                reason=reason,
                problem=describe_error(error) if isinstance(error, OSError) else str(error),
                **connection_fields(identity),
            )
        elif reason in _LIMITS:
            self._warnings.warning(
                "closed at a limit", kind=reason, limit=_LIMITS[reason], **connection_fields(identity)
            )

    def _refuse(self, reason: RefusalReason, problem: str, **known: str | None) -> None:
        self._metrics.connection_refused(self.settings.name, reason)
        if reason is RefusalReason.GONE:
            return
        fields = {name: value for name, value in known.items() if value is not None}
        self._warnings.warning(
            "connection refused", kind=reason, listener=self.name, reason=reason, problem=problem, **fields
        )
