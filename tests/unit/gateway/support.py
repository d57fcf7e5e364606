"""Helpers that run real relays and listeners between sockets of the test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from receiver.brokers.delegation_tokens import DelegationTokens
from receiver.brokers.upstream import Upstream
from receiver.clock import SystemClock
from receiver.core.config_calls import ConfigCalls
from receiver.core.relays import Relays
from receiver.core.telemetry_calls import TelemetryCalls
from receiver.event_loop import run, running_loop
from receiver.gateway.connection.closing import CloseReason
from receiver.gateway.connection.connection import Connection, ConnectionServices
from receiver.gateway.connection.request_memory import RequestMemory
from receiver.gateway.core_link import CoreLink
from receiver.gateway.events import GatewayEvents
from receiver.gateway.handshake import HandshakeTurns
from receiver.gateway.listeners.admission import Admission
from receiver.gateway.listeners.listener import Listener
from receiver.gateway.random_numbers import random_numbers
from receiver.gateway.spread import Spread
from receiver.gateway.upstream.address import UpstreamAddress
from receiver.link.messages import Statistics
from receiver.metrics import ReceiverMetrics, RelayMetrics, replay
from receiver.peers.pending_work import PendingWork
from receiver.plugin import Push
from receiver.request_log import RequestLog
from receiver.session.session import Session
from receiver.settings.hostport import HostPort, HostPorts
from receiver.settings.limits import LimitsSettings
from receiver.settings.listeners import ListenerSettings
from receiver.settings.usage import UsageSettings
from receiver.store.files import FileSubscriptionStore
from receiver.store.subscriptions import Subscriptions
from receiver.supervisor.shared_counts import ProcessCounts, SharedCounts
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.current_subscriptions import CurrentSubscriptions
from receiver.telemetry.identity import ClientIdentity
from receiver.tls import TlsFilesError
from receiver.traffic.table import RelayTable, new_table
from receiver.traffic.traffic import Traffic
from receiver.traffic.usage_store import open_usage
from receiver.turns import Share
from receiver.wire.broker_addresses import ReplaceAddress
from tests.testbed.ports import LOOPBACK, free_port, listening_on
from tests.testbed.scripted_broker import RANGES
from tests.unit.session.support import Clock, connection, proven_broker, telemetry_core

_Result = TypeVar("_Result")
_WITHIN_S = 120.0
_gates: list[Gate] = []
MAX_FRAME_BYTES = 16 << 20

#: What the system is taken to buffer for a relay whose reader is slow.


def on_loop(main: Coroutine[None, None, _Result]) -> _Result:
    """Run a coroutine on the receiver's event loop, with a time-out and no lost error."""
    unseen: list[dict[str, object]] = []

    async def watched() -> _Result:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        try:
            return await asyncio.wait_for(main, _WITHIN_S)
        finally:
            while _gates:
                _gates[-1].close()

    result = run(watched())
    assert unseen == []
    return result


async def eventually(condition: Callable[[], bool], what: str, within_s: float = 120.0) -> None:
    """Wait for it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not condition():
        assert loop.time() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.005)


def pair(*, small_buffers: bool = False) -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection on loopback, non-blocking."""
    with socket.create_server((LOOPBACK, 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
    for end in (one, other):
        end.setblocking(False)
        if small_buffers:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
    return one, other


def listener_settings(upstream_port: int, **settings: Any) -> ListenerSettings:
    """The settings of a listener; ``settings`` are further ones of its section."""
    return ListenerSettings(
        **{
            "name": "CLIENT",
            "bind": HostPort(host=LOOPBACK, port=free_port()),
            "upstream": HostPorts((HostPort(host=LOOPBACK, port=upstream_port),)),
            "max_connections": 100,
            **settings,
        }
    )


class Gate:
    """A relay process's parts around relays and listeners, and a core, with a link between them.

    Both run on the event loop of the test.

    Attributes:
        core: The relay process's end of the link.
        relays: The core's end.
    """

    def __init__(
        self,
        *,
        max_push_bytes: int = 4096,
        limits: LimitsSettings | None = None,
        clock: Clock | None = None,
        replace_address: ReplaceAddress | None = None,
        held: ProcessCounts | None = None,
        relays: int = 1,
        deliver: Callable[[Push, Callable[[bool], None]], bool] | None = None,
    ) -> None:
        self.clock = clock or Clock()
        self._replace_address = replace_address
        self.broker = proven_broker()
        self.limits = Limits(limits or LimitsSettings(), relays=1)
        self.memory = RequestMemory(limits or LimitsSettings(), held or SharedCounts().claim(), relays)
        self.metrics = ReceiverMetrics(version="0")
        self.pushed: list[Push] = []
        self.storing: list[Callable[[bool], None]] | None = (
            None  # where set, answers wait for these to be called
        )
        # Not the link's, so that an event is never on its way while a test looks for it.
        self.events_of_relay = RelayMetrics()
        self.log = RequestLog(self.events_of_relay.limit_exceeded, log_requests=False)
        self.events = GatewayEvents(self.events_of_relay, self.log, SystemClock())
        core_limits = Limits(limits or LimitsSettings())
        self.core_log = RequestLog(self.metrics.limit_exceeded, log_requests=False)
        self.telemetry = telemetry_core(core_limits, max_push_bytes=max_push_bytes)
        self.disconnected: list[str] = []
        self.calls = TelemetryCalls(
            telemetry=self.telemetry,
            limits=core_limits,
            metrics=self.metrics,
            log=self.core_log,
            clock=self.clock,
            deliver=deliver or self._deliver,
            instance_learned=lambda identity: self.registry.instance_learned(identity),
        )
        # This folder has no subscriptions.
        self.subscriptions = Subscriptions(
            FileSubscriptionStore(Path(__file__).parent),
            CurrentSubscriptions(),
            now=lambda: datetime.now(UTC),
        )
        table = new_table(64)
        self.table = RelayTable(table)
        self.traffic = Traffic(open_usage(UsageSettings(), None), time.time_ns)
        self.traffic.attach("test", table)
        self.relays = Relays(
            expected=1,
            calls=(
                self.calls,
                ConfigCalls(
                    subscriptions=self.subscriptions,
                    limits=core_limits,
                    log=self.core_log,
                    clock=self.clock,
                ),
            ),
            limits=core_limits,
            metrics=self.metrics,
            log=self.core_log,
            monotonic=self.clock.monotonic,
            traffic=self.traffic,
            on_identity=self.telemetry.instances.identity_changed,
            on_close=self.disconnected.append,
            on_broker=lambda: None,
        )
        self.registry = self.relays.registry
        self.core = CoreLink(
            "test",
            process="relay-1",
            brokers=lambda: {"CLIENT": self.broker},
            limits=self.limits,
            metrics=RelayMetrics(),
            tokens=DelegationTokens(),
            clock=SystemClock(),
            problems=list,
            traffic=self.table,
            statistics=lambda request: Statistics(request, 0.0, 0, 0.0, 0, (), 0),
            count_traffic=lambda: None,
            ask_for_link=lambda: None,
        )
        self.services = ConnectionServices(
            core=self.core,
            limits=self.limits,
            memory=self.memory,
            events=self.events,
            log=self.log,
            clock=self.clock,
            spread=Spread(SharedCounts().claim()),
            traffic=self.table,
        )
        self._max_push_bytes = max_push_bytes
        with contextlib.suppress(RuntimeError):  # some tests have no event loop, and need no link
            self.link()
            _gates.append(self)

    def link(self) -> None:
        """Connect the relay process and the core, on the running event loop."""
        running_loop()
        relay_end, core_end = socket.socketpair()
        self.relays.attach("test", core_end)
        self.core.attach(relay_end)

    def close(self) -> None:
        """Close the link."""
        self.core.close()
        self.relays.close()
        if self in _gates:
            _gates.remove(self)

    async def forget_closed(self) -> None:
        """Settle what closed connections have moved, and forget them, of which 10,000 are kept."""
        await self.traffic.settle()
        self.traffic.closed.clear()
        self.core._forget_settled()

    def _deliver(self, push: Push, stored: Callable[[bool], None]) -> bool:
        self.pushed.append(push)
        if self.storing is not None:
            self.storing.append(stored)
        return self.storing is not None

    def make_session(self, identity: ClientIdentity, upstream: Upstream) -> Session:
        return Session(
            identity=identity,
            broker=self.broker,
            upstream=upstream,
            random_number=random_numbers(),
            max_frame_bytes=MAX_FRAME_BYTES,
            max_push_bytes=self._max_push_bytes,
            principal_claim="sub",
            delegation_tokens=DelegationTokens(),
            pending_work=PendingWork(),
            replace_address=self._replace_address,
        )

    def listener(self, upstream_port: int, **settings: Any) -> Listener:
        """A listener on a socket of its own; ``settings`` are further ones of its section."""
        return self.listener_of(listener_settings(upstream_port, **settings))

    def listener_of(self, settings: ListenerSettings) -> Listener:
        """A listener with these settings, on a socket of its own."""
        listening = listening_on(settings.bind.host, settings.bind.port)
        try:
            turns = HandshakeTurns()
            return Listener(
                settings,
                listening,
                admission=Admission(settings, self.limits, turns),
                address=UpstreamAddress(settings, turns),
                broker=self.broker,
                upstream=Upstream(),
                core=self.core,
                metrics=self.events_of_relay,
                services=self.services,
                make_session=self.make_session,
            )
        except TlsFilesError:
            listening.close()
            raise

    def value(self, name: str, **labels: str) -> float:
        """The value of one of the receiver's own metrics; 0 where there is no such series yet."""
        replay(self.metrics, self.events_of_relay.take())
        return self.metrics.registry.get_sample_value(f"kafka_telemetry_{name}", labels) or 0.0


class Relayed:
    """A relay between a client's and a broker's socket that the test holds.

    Attributes:
        client: The client's end.
        broker: The broker's end.
        closed: Why the relay ended, and the error behind it; None while it goes on.
    """

    def __init__(
        self,
        gate: Gate | None = None,
        *,
        client: tuple[socket.socket, socket.socket] | None = None,
        broker: tuple[socket.socket, socket.socket] | None = None,
        security_protocol: str = "PLAINTEXT",
        source_address: str = "192.0.2.7",
    ) -> None:
        self.gate = gate or Gate()
        self.closed: tuple[CloseReason, Exception | None] | None = None
        self.client, inner_client = client or pair()
        self.broker, inner_broker = broker or pair()
        upstream = Upstream()
        upstream.learn(RANGES)
        number, connection_id = self.gate.core.new_connection()
        identity = replace(connection(security_protocol), id=connection_id, source_address=source_address)
        self.session = self.gate.make_session(identity, upstream)
        self.inner = (inner_client, inner_broker)
        self.relay = Connection(
            running_loop(),
            number,
            identity,
            inner_client,
            inner_broker,
            self.session,
            self.gate.services,
            Share(),
            self._on_close,
        )
        self.gate.core.opened(number, identity, self.relay)
        self.relay.start()

    def _on_close(self, relay: Connection, reason: CloseReason, error: Exception | None) -> None:
        assert self.closed is None, "closed twice"
        self.closed = (reason, error)
        self.gate.core.closed(relay.number, reason)

    async def reason(self) -> CloseReason:
        """Wait for the relay's end."""
        await eventually(lambda: self.closed is not None, "the relay's end")
        assert self.closed is not None
        for side in self.inner:
            assert side.fileno() == -1
        return self.closed[0]

    def quiet(self) -> bool:
        """Whether the drain may close it, once it was so for a while."""
        return self.relay.is_drained(float("inf"))

    def close(self) -> None:
        """Close everything."""
        self.client.close()
        self.broker.close()
        self.relay.close(CloseReason.DRAINED)


async def system_buffers(listener: Listener) -> set[int]:
    """The sizes of the system's buffers of a listener's only connection, once it is there."""
    await eventually(lambda: bool(listener._open), "the relay")
    (relay,) = listener._open
    return {
        side.getsockopt(socket.SOL_SOCKET, option)
        for side in (relay._client, relay._broker)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)
    }


@contextlib.asynccontextmanager
async def relayed(
    gate: Gate | None = None,
    *,
    small_buffers: bool = False,
    security_protocol: str = "PLAINTEXT",
    source_address: str = "192.0.2.7",
) -> AsyncIterator[Relayed]:
    """A relay that is closed at the end."""
    made = Relayed(
        gate,
        client=pair(small_buffers=small_buffers),
        broker=pair(small_buffers=small_buffers),
        security_protocol=security_protocol,
        source_address=source_address,
    )
    try:
        yield made
    finally:
        made.close()


@contextlib.asynccontextmanager
async def opened(listener: Listener) -> AsyncIterator[Listener]:
    """A listener that is open."""
    listener.open()
    try:
        yield listener
    finally:
        listener.stop_accepting()
        await listener.drain(0.0)


@contextlib.asynccontextmanager
async def connected(listener: Listener, source: str = LOOPBACK) -> AsyncIterator[socket.socket]:
    """A client's socket."""
    bind = listener.settings.bind
    with socket.socket(socket.AF_INET6 if ":" in bind.host else socket.AF_INET) as client:
        client.setblocking(False)
        if source != LOOPBACK:
            client.bind((source, 0))
        await asyncio.get_running_loop().sock_connect(client, (bind.host, bind.port))
        yield client


async def is_reset(listener: Listener, say: bytes = b"") -> bool:
    """Whether a connection is reset; that may come before connecting has ended."""
    try:
        async with connected(listener) as client:
            await send(client, say)
            return not await at_end(client)
    except ConnectionResetError:
        return True


def is_refused(listener: Listener) -> bool:
    """Whether the kernel refuses a client because the port is closed."""
    try:
        with socket.create_connection((LOOPBACK, listener.settings.bind.port)):
            return False
    except ConnectionRefusedError:
        return True


async def send(end: socket.socket, data: bytes) -> None:
    """Send it all."""
    await asyncio.get_running_loop().sock_sendall(end, data)


async def receive(end: socket.socket, count: int) -> bytes:
    """Wait for so many bytes; fewer only at the stream's end."""
    loop = asyncio.get_running_loop()
    data = bytearray()
    while len(data) < count and (chunk := await loop.sock_recv(end, min(1 << 20, count - len(data)))):
        data += chunk
    return bytes(data)


async def receive_frame(end: socket.socket) -> bytes:
    """Wait for a frame; return it without its length."""
    length = await receive(end, 4)
    assert len(length) == 4, "the stream ended"
    return await receive(end, int.from_bytes(length, "big"))


async def at_end(end: socket.socket) -> bool:
    """Wait for the stream's end; False for a reset."""
    try:
        return await asyncio.get_running_loop().sock_recv(end, 1) == b""
    except ConnectionResetError:
        return False


def reset(end: socket.socket) -> None:
    """Close with a reset."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()


async def is_silent(awaited: Awaitable[object], for_s: float = 0.1) -> bool:
    """Whether nothing comes of it for a while."""
    try:
        await asyncio.wait_for(awaited, for_s)
    except TimeoutError:
        return True
    return False


def knowing(ranges: Mapping[int, tuple[int, int]]) -> Upstream:
    """An upstream that has said what it speaks."""
    upstream = Upstream()
    upstream.learn(ranges)
    return upstream
