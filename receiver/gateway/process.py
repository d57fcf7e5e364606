"""The composition root of a relay.

A relay owns connections: admission, TLS, login, sessions, bytes. It shares its listening sockets
with the other relays and has a link to the core. The supervisor starts it, gives it new links and
configurations, and drains it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from receiver import workers
from receiver.brokers.delegation_tokens import DelegationTokens
from receiver.brokers.listener_broker import ListenerBroker
from receiver.brokers.upstream import Upstream
from receiver.clock import SystemClock
from receiver.event_loop import run as run_event_loop
from receiver.event_loop import running_loop
from receiver.gateway.connection.connection import ConnectionServices
from receiver.gateway.connection.request_memory import RequestMemory
from receiver.gateway.core_link import CoreLink
from receiver.gateway.events import GatewayEvents
from receiver.gateway.gateway import Gateway
from receiver.gateway.handshake import HandshakeTurns
from receiver.gateway.listeners.admission import Admission
from receiver.gateway.listeners.listener import Listener
from receiver.gateway.listeners.nodes import Nodes
from receiver.gateway.random_numbers import random_numbers
from receiver.gateway.spread import Spread
from receiver.gateway.upstream.address import UpstreamAddress
from receiver.link.messages import Statistics
from receiver.log import configure as configure_log
from receiver.metrics import RelayMetrics
from receiver.peers.pending_work import PendingWorks
from receiver.process_memory import resident_bytes, tune_garbage_collection
from receiver.request_log import RequestLog
from receiver.session.session import Session
from receiver.settings.hostport import HostPort, HostPorts
from receiver.settings.listeners import ListenerSettings
from receiver.settings.model import ReceiverSettings
from receiver.supervisor.channel import ControlChannel, Message, read_file
from receiver.supervisor.setup import RelaySetup
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.identity import Broker, ClientIdentity, port_name
from receiver.tls import TlsFilesError
from receiver.traffic.table import RelayTable
from receiver.wire.broker_addresses import ReplaceAddress
from receiver.workers import start_task
from spark_streaming import dumps
from spark_streaming.log_writer import dropped_lines

#: Seconds between two looks at whether the connections of a drained relay have ended.
_DRAIN_CHECK_S: Final = 0.1


def run(channel: ControlChannel, setup: RelaySetup) -> int:
    """Run a relay until its supervisor ends it; return the exit status."""
    workers.install()
    return run_event_loop(_Relay(channel, setup).run())


class _ListenerError(Exception):
    """A TLS file of a listener can't be used."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A configuration that can be applied."""

    reload: int
    settings: ReceiverSettings
    listeners: tuple[Listener, ...]
    relays: int


class _Relay:
    """A relay."""

    def __init__(self, channel: ControlChannel, setup: RelaySetup) -> None:
        self._channel = channel
        self._settings = settings = setup.settings
        self._sockets = dict(setup.sockets)
        self._link = setup.link
        self._relay_id = setup.relay_id
        self._clock = SystemClock()
        self._random_number = random_numbers()
        self._limits = Limits(settings.limits, relays=setup.relays)
        self._memory = RequestMemory(settings.limits, setup.counts, setup.relays)
        self._spread = Spread(setup.counts)
        traffic = RelayTable(setup.traffic)
        os.close(setup.traffic)
        self._metrics = RelayMetrics()
        self._log = RequestLog(self._metrics.limit_exceeded, log_requests=settings.log.requests)
        self._delegation_tokens = DelegationTokens()
        self._pending_works = PendingWorks()
        self._gateway = Gateway()
        self._core = CoreLink(
            setup.relay_id,
            process=f"relay-{setup.slot}",
            brokers=self._gateway.brokers,
            limits=self._limits,
            metrics=self._metrics,
            tokens=self._delegation_tokens,
            clock=self._clock,
            problems=self._gateway.problems,
            traffic=traffic,
            statistics=self._statistics,
            count_traffic=self._count_traffic,
            ask_for_link=self._ask_for_link,
        )
        self._services = ConnectionServices(
            core=self._core,
            limits=self._limits,
            memory=self._memory,
            events=GatewayEvents(self._metrics, self._log, self._clock),
            log=self._log,
            clock=self._clock,
            spread=self._spread,
            traffic=traffic,
        )
        self._counted: dict[str, tuple[int, int]] = {}
        self._deferred = 0
        self._prepared: _Prepared | None = None
        self._draining: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()

    async def run(self) -> int:
        """Run until the supervisor has this relay drained."""
        loop = asyncio.get_running_loop()
        try:
            listeners = self._listeners(self._settings, self._sockets)
        except _ListenerError as error:
            self._channel.send("failed", problem=str(error), status=1)
            return 1
        workers.watch_loop(loop)
        workers.on_failure(loop, self._metrics.worker_failed)
        self._core.attach(self._link)
        self._gateway.replace(listeners)
        self._core.problems_changed()
        loop.add_reader(self._channel.fileno(), self._control)
        tune_garbage_collection()
        self._spread.start()
        self._channel.send("ready")
        await self._stopped.wait()
        loop.remove_reader(self._channel.fileno())
        self._core.close()
        return 0

    # -- the supervisor's messages -----------------------------------------------------------------

    def _control(self) -> None:
        for message in self._channel.messages():
            self._handle(message)

    def _handle(self, message: Message) -> None:
        match message.type:
            case "ping":
                self._channel.send("pong")
            case "link":
                self._core.attach(socket.socket(fileno=message.fds[0]))
            case "configure":
                self._prepare(message)
            case "commit":
                self._commit()
            case "abort":
                self._prepared = None
            case "node":
                self._learn_node(message)
            case "drain":
                self._drain(message.fields["after_s"], message.fields["timeout_s"])

    def _ask_for_link(self) -> None:
        self._channel.send("need_link")

    def _tell_node(self, listener: str, node_id: int, address: HostPort) -> None:
        # Clients may connect to the node through any relay.
        self._channel.send("node", listener=listener, node=node_id, address=str(address))
        self._core.problems_changed()

    def _learn_node(self, message: Message) -> None:
        for listener in self._gateway.listeners:
            if listener.nodes is not None and listener.settings.name == message.fields["listener"]:
                listener.nodes.learn(message.fields["node"], HostPort.parse(message.fields["address"]))

    def _prepare(self, message: Message) -> None:
        text, *descriptors = message.fds
        number, relays = int(message.fields["reload"]), int(message.fields["relays"])
        sockets = {
            name: socket.socket(fileno=fd)
            for name, fd in zip(message.fields["names"], descriptors, strict=True)
        }
        try:
            settings = ReceiverSettings.model_validate_json(read_file(text), strict=True)
            self._prepared = _Prepared(number, settings, self._listeners(settings, sockets), relays)
        except _ListenerError as error:
            for listening in sockets.values():
                listening.close()
            self._channel.send("refused", reload=number, problem=str(error))
        else:
            self._channel.send("prepared", reload=number)

    def _commit(self) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            return
        self._settings = settings = prepared.settings
        self._limits.replace_settings(settings.limits, relays=prepared.relays)
        self._memory.replace_settings(settings.limits, prepared.relays)
        configure_log(settings.log)
        dumps.apply(dumpable=settings.debug.dumpable)
        self._log.log_requests = settings.log.requests
        self._gateway.replace(prepared.listeners)
        self._core.problems_changed()
        self._channel.send("applied", reload=prepared.reload)

    def _drain(self, after_s: float, timeout_s: float) -> None:
        self._spread.stop()
        self._gateway.stop_accepting()
        if self._draining is not None:
            self._draining.cancel()
        self._draining = start_task("drain", self._drain_and_stop(after_s, timeout_s))

    async def _drain_and_stop(self, after_s: float, timeout_s: float) -> None:
        deadline = self._clock.monotonic() + after_s
        # Polled, because a connection that closes should cost nothing for the sake of a rare drain.
        while not self._gateway.empty and (left_s := deadline - self._clock.monotonic()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(_DRAIN_CHECK_S, left_s))
        await self._gateway.drain(timeout_s)
        self._channel.send("drained")
        self._stopped.set()

    # -- parts -------------------------------------------------------------------------------------

    def _listeners(
        self, settings: ReceiverSettings, sockets: Mapping[str, socket.socket]
    ) -> tuple[Listener, ...]:
        """Return the listeners of a configuration; one that did not change goes on."""
        unchanged = {
            listener.settings.name: listener
            for listener in self._gateway.listeners
            if listener.settings in settings.listeners
            and settings.kip1313 == self._settings.kip1313
            and bool(settings.plugins) == bool(self._settings.plugins)
            and settings.telemetry.max_bytes == self._settings.telemetry.max_bytes
        }
        listeners = []
        for candidate in settings.listeners:
            listener = unchanged.get(candidate.name)
            if listener is not None:
                for name in _socket_names(candidate):  # it has its own descriptors of the same sockets
                    sockets[name].close()
            else:
                listener = self._listener(candidate, settings, sockets)
            listeners.append(listener)
        return tuple(listeners)

    def _listener(
        self, settings: ListenerSettings, receiver: ReceiverSettings, sockets: Mapping[str, socket.socket]
    ) -> Listener:
        turns = HandshakeTurns()
        try:
            admission = Admission(settings, self._limits, turns)
            address = UpstreamAddress(settings, turns)
        except TlsFilesError as error:
            raise _ListenerError(f"listener {settings.name}: {error}") from None
        make = partial(self._make_listener, receiver, admission)
        if settings.rewrite is None:
            return make(settings, sockets[settings.name], address)

        def make_node(node_id: int, at: HostPort, listening: socket.socket | None) -> Listener:
            of_node = _of_node(settings, receiver, node_id, at)
            to_node = UpstreamAddress(of_node, turns, tls=address.tls)
            return make(of_node, listening, to_node, node_id=node_id, replace_address=nodes.replace)

        nodes = Nodes(
            settings,
            {bind: sockets[port_name(settings.name, bind)] for bind in settings.node_binds},
            make_listener=make_node,
            on_new=partial(self._tell_node, settings.name),
            on_hidden=partial(self._metrics.node_hidden, settings.name),
        )
        for before in self._gateway.listeners:  # its clients know these nodes
            if before.settings.name == settings.name and before.nodes is not None:
                for node_id, at in before.nodes.addresses.items():
                    nodes.learn(node_id, at)
        return make(settings, sockets[settings.name], address, nodes=nodes, replace_address=nodes.replace)

    def _make_listener(
        self,
        receiver: ReceiverSettings,
        admission: Admission,
        settings: ListenerSettings,
        listening: socket.socket | None,
        address: UpstreamAddress,
        *,
        node_id: int | None = None,
        nodes: Nodes[Listener] | None = None,
        replace_address: ReplaceAddress | None = None,
    ) -> Listener:
        configured = settings.broker or receiver.broker
        broker = ListenerBroker(
            Broker(id=None if configured.id == "auto" else configured.id, cluster_id=configured.cluster_id),
            (address.endpoint.host, address.endpoint.port),
            settings.bind.port,
            machine=socket.gethostname(),
            is_one=nodes is None,
            named_by_cluster=node_id is not None,
        )

        def make_session(identity: ClientIdentity, upstream: Upstream) -> Session:
            return Session(
                identity=identity,
                broker=broker,
                upstream=upstream,
                random_number=self._random_number,
                max_frame_bytes=settings.max_frame_bytes,
                max_push_bytes=receiver.telemetry.max_bytes,
                principal_claim=settings.oauthbearer_principal_claim,
                delegation_tokens=self._delegation_tokens,
                pending_work=self._pending_works.of(identity.peers.block),
                replace_address=replace_address,
            )

        return Listener(
            settings,
            listening,
            node_id=node_id,
            admission=admission,
            address=address,
            nodes=nodes,
            broker=broker,
            upstream=Upstream(
                translates=receiver.kip1313.translate_all,
                offers_telemetry=bool(receiver.plugins),
                rewrites=replace_address is not None,
                answers_config_requests=receiver.subscriptions.kafka_tools,
                reads_resources=receiver.subscriptions.store == "kafka",
            ),
            core=self._core,
            metrics=self._metrics,
            services=self._services,
            make_session=make_session,
        )

    def _statistics(self, request: int) -> Statistics:
        return Statistics(
            request=request,
            cpu_s=time.process_time(),
            resident_bytes=resident_bytes(),
            loop_lag_s=running_loop().take_lag(),
            held_bytes=self._memory.total,
            log_lines_dropped=dropped_lines(),
            certificates=tuple(
                (listener.settings.name, side, not_after)
                for listener in self._gateway.listeners
                for side, not_after in listener.certificates
            ),
        )

    def _count_traffic(self) -> None:
        """Count what has been forwarded and deferred since the last call."""
        traffic = self._gateway.traffic()
        for name, totals in traffic.items():
            before = self._counted.get(name, (0, 0))
            for direction, total, counted in zip(("from_clients", "to_clients"), totals, before, strict=True):
                self._metrics.forwarded(name, direction, total - counted)
        self._counted = traffic
        deferred = running_loop().deferred
        self._metrics.deferred(deferred - self._deferred)
        self._deferred = deferred


def _socket_names(listener: ListenerSettings) -> list[str]:
    return [listener.name, *(port_name(listener.name, node_id) for node_id in listener.node_binds)]


def _of_node(
    listener: ListenerSettings, receiver: ReceiverSettings, node_id: int, at: HostPort
) -> ListenerSettings:
    """Return a rewriting listener's settings, with a node as its broker."""
    broker = listener.broker or receiver.broker
    return listener.model_copy(
        update={
            "bind": listener.node_binds.get(node_id, listener.bind),
            "upstream": HostPorts((at,)),
            "broker": broker.model_copy(update={"id": node_id}),
        }
    )
