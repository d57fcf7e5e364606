"""Helpers that run real relays and listeners between sockets of the test."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from receiver.core.telemetry_calls import Reply, TelemetryCalls
from receiver.gateway.event_loop import Share, run, running_loop
from receiver.gateway.events import GatewayEvents
from receiver.gateway.listener import Listener
from receiver.gateway.registry import ConnectionRegistry
from receiver.gateway.relay import CloseReason, Relay, RelayServices
from receiver.gateway.request_memory import RequestMemory
from receiver.metrics import ReceiverMetrics
from receiver.plugin import Push
from receiver.request_log import RequestLog
from receiver.session.delegation_tokens import DelegationTokens
from receiver.session.effects import TelemetryCall
from receiver.session.session import Session
from receiver.session.upstream import Upstream
from receiver.settings.hostport import HostPort
from receiver.settings.limits import LimitsSettings
from receiver.settings.listeners import ListenerSettings
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.identity import Broker, ClientIdentity
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.scripted_broker import NODE_ID, RANGES
from tests.unit.session.support import Clock, connection, telemetry_core

_Result = TypeVar("_Result")
_WITHIN_S = 120.0
_numbers = itertools.count(1)
MAX_FRAME_BYTES = 16 << 20

#: What the system is taken to buffer for a relay whose reader is slow.
BUFFER_BYTES = 100_000


def on_loop(main: Coroutine[None, None, _Result]) -> _Result:
    """Run a coroutine on the receiver's event loop, with a time-out and no lost error."""
    unseen: list[dict[str, object]] = []

    async def watched() -> _Result:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        return await asyncio.wait_for(main, _WITHIN_S)

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


class Gate:
    """The parts around relays and listeners, as the composition root would join them."""

    def __init__(
        self,
        *,
        max_push_bytes: int = 4096,
        limits: LimitsSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or Clock()
        self.broker = Broker(id=NODE_ID)
        self.limits = Limits(limits or LimitsSettings())
        self.memory = RequestMemory(limits or LimitsSettings())
        self.registry = ConnectionRegistry()
        self.metrics = ReceiverMetrics(version="0")
        self.pushed: list[Push] = []
        self.storing: list[Callable[[], None]] | None = None  # where set, answers wait for these to be called
        self.log = RequestLog(self.metrics, log_requests=False)
        self.events = GatewayEvents(self.metrics, self.log)
        self.telemetry = telemetry_core(self.broker, self.limits, max_push_bytes=max_push_bytes)
        self.calls = TelemetryCalls(
            telemetry=self.telemetry,
            limits=self.limits,
            metrics=self.metrics,
            log=self.log,
            clock=self.clock,
            deliver=self._deliver,
            instance_learned=self.registry.instance_learned,
        )
        self.services = RelayServices(
            call=self._call,
            identity_changed=self.registry.changed,
            limits=self.limits,
            memory=self.memory,
            events=self.events,
            log=self.log,
            clock=self.clock,
        )
        self.disconnected: list[str] = []
        self._max_push_bytes = max_push_bytes

    def _deliver(self, push: Push, stored: Callable[[], None]) -> bool:
        self.pushed.append(push)
        if self.storing is not None:
            self.storing.append(stored)
        return self.storing is not None

    def _call(self, identity: ClientIdentity, call: TelemetryCall, reply: Reply) -> None:
        self.calls.call(self.registry.find(identity.id) or identity, call, reply)

    def make_session(self, identity: ClientIdentity, upstream: Upstream) -> Session:
        return Session(
            identity=identity,
            broker=self.broker,
            upstream=upstream,
            random_bits=lambda bits: int.from_bytes(os.urandom(4), "big") % (1 << bits),
            max_frame_bytes=MAX_FRAME_BYTES,
            max_push_bytes=self._max_push_bytes,
            principal_claim="sub",
            delegation_tokens=DelegationTokens(),
        )

    def disconnect(self, connection_id: str) -> None:
        self.disconnected.append(connection_id)

    def listener(self, upstream_port: int, **settings: Any) -> Listener:
        """A listener; ``settings`` are further ones of its section."""
        return self.listener_of(
            ListenerSettings(
                **{
                    "name": "CLIENT",
                    "bind": HostPort(host=LOOPBACK, port=free_port()),
                    "upstream": HostPort(host=LOOPBACK, port=upstream_port),
                    "max_connections": 100,
                    **settings,
                }
            )
        )

    def listener_of(self, settings: ListenerSettings) -> Listener:
        """A listener with these settings."""
        return Listener(
            settings,
            broker=self.broker,
            upstream=Upstream(),
            registry=self.registry,
            metrics=self.metrics,
            services=self.services,
            make_session=self.make_session,
            on_disconnect=self.disconnect,
        )

    def value(self, name: str, **labels: str) -> float:
        """The value of one of the receiver's own metrics; 0 where there is no such series yet."""
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
        identity = replace(
            connection(security_protocol), id=str(next(_numbers)), source_address=source_address
        )
        self.gate.registry.add(identity)
        self.session = self.gate.make_session(identity, upstream)
        self.inner = (inner_client, inner_broker)
        self.relay = Relay(
            running_loop(),
            identity,
            inner_client,
            inner_broker,
            self.session,
            self.gate.services,
            Share(),
            BUFFER_BYTES,
            self._on_close,
        )
        self.relay.start()

    def _on_close(self, relay: Relay, reason: CloseReason, error: Exception | None) -> None:
        assert self.closed is None, "closed twice"
        self.closed = (reason, error)
        self.gate.registry.remove(relay.identity.id)

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
    await listener.open()
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
