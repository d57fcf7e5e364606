"""The sockets of the test kit: hands frames to the kit, in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import struct
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeAlias

from receiver.settings.hostport import HostPort
from receiver.testkit.data_path import Node
from receiver.testkit.kit import MAX_CONNECTIONS, MAX_FRAME_BYTES, Credentials, Kit
from receiver.testkit.recording import CLIENT, KIT, Connection
from receiver.testkit.script import Script
from receiver.wire.uuid import random_uuid, uuid_to_text
from receiver.workers import start_task

#: Frames of a connection; None at its end.
_Frames: TypeAlias = "asyncio.Queue[_Frame | None]"

_LENGTH: Final = struct.Struct(">i")
#: Requests of a connection that are read ahead, so that their time of arrival is exact.
_READ_AHEAD: Final = 8
#: The bytes of all requests that are read ahead.
_MAX_HELD_BYTES: Final = 64 << 20
#: Seconds in which a client must take an answer.
_WRITE_WITHIN_S: Final = 30.0
#: Seconds between two looks at how late the event loop is, and for which a look counts.
_LOOK_EVERY_S: Final = 0.02
_LOOK_COUNTS_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    """How the kit listens."""

    bind: tuple[HostPort, ...]
    """An address for each broker; port 0 lets the system choose."""
    advertise: tuple[HostPort, ...] = ()
    """The addresses that clients are told, if these differ; one for each broker."""
    credentials: Credentials | None = None
    """The login of SASL PLAIN that clients need; None for none."""
    tls: ssl.SSLContext | None = None
    """The server's TLS context; None for plaintext."""


class _Frame(NamedTuple):
    """A request of a client."""

    at: float
    """When it was read, in seconds since the kit began."""
    late: float
    """Seconds by which it may have arrived before."""
    data: bytes


class Lateness:
    """How late the event loop reads what clients send.

    It is late because the machine or the kit is busy.

    Args:
        now: The time in seconds.
    """

    def __init__(self, now: float) -> None:
        self._due = now + _LOOK_EVERY_S
        self._looks: deque[tuple[float, float]] = deque()

    def look(self, now: float) -> None:
        """Record a look, which was due some time after the last one."""
        self._looks.append((now, max(0.0, now - self._due)))
        while self._looks[0][0] < now - _LOOK_COUNTS_S:
            self._looks.popleft()
        self._due = now + _LOOK_EVERY_S

    def at(self, now: float) -> float:
        """Return the seconds by which what is read now may be late."""
        return max([now - self._due, 0.0, *(late for _, late in self._looks)])


class Endpoint:
    """Listens within its context, on the running event loop."""

    def __init__(self, script: Script, options: EndpointOptions) -> None:
        self._start = time.monotonic()
        self.kit = Kit(
            script,
            cluster_id=uuid_to_text(random_uuid(os.urandom)),
            random_bytes=os.urandom,
            credentials=options.credentials,
            wall_ns=time.time_ns(),
        )
        self.addresses: tuple[HostPort, ...] = ()
        self._options = options
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._held = 0
        self._lateness = Lateness(0.0)
        self._looking: asyncio.Task[None] | None = None

    @property
    def now(self) -> float:
        """Seconds since the kit began."""
        return time.monotonic() - self._start

    async def __aenter__(self) -> Self:
        self._looking = start_task("testkit-lateness", self._look())
        try:
            for index, address in enumerate(self._options.bind):
                server = await asyncio.start_server(
                    partial(self._accepted, node_id=index + 1),
                    address.host,
                    address.port,
                    ssl=self._options.tls,
                )
                self._servers.append(server)
                port = server.sockets[0].getsockname()[1]
                self.addresses += (HostPort(host=address.host, port=port),)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        tasks = [*self._tasks, *([] if self._looking is None else [self._looking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            self._lateness.look(self.now)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node_id: int) -> None:
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = start_task("testkit-connection", self._serve(reader, writer, node_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node_id: int) -> None:
        connection = self.kit.open(self.now, node_id)
        frames: _Frames = asyncio.Queue(_READ_AHEAD)
        reading = start_task("testkit-reader", self._read(reader, connection, frames))
        try:
            await self._answer(writer, connection, frames)
        except (OSError, TimeoutError):
            self.kit.close(self.now, connection, CLIENT)
        finally:
            self.kit.close(self.now, connection, KIT)
            reading.cancel()
            while not frames.empty():
                left = frames.get_nowait()
                self._held -= 0 if left is None else len(left.data)
            writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader, connection: Connection, frames: _Frames) -> None:
        """Read frames until the client ends, or sends one that is too long."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while not connection.problem:
                (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                if 0 <= size <= min(MAX_FRAME_BYTES, _MAX_HELD_BYTES - self._held):
                    await self._read_frame(reader, size, frames)
                else:
                    connection.problem = f"a request of {size} bytes"
        if not connection.problem:
            self.kit.close(self.now, connection, CLIENT)
        await frames.put(None)

    async def _read_frame(self, reader: asyncio.StreamReader, size: int, frames: _Frames) -> None:
        self._held += size
        try:
            data = await reader.readexactly(size)
            await frames.put(_Frame(self.now, self._lateness.at(self.now), data))
        except BaseException:
            self._held -= size
            raise

    async def _answer(
        self,
        writer: asyncio.StreamWriter,
        connection: Connection,
        frames: _Frames,
    ) -> None:
        while (frame := await frames.get()) is not None:
            self._held -= len(frame.data)
            reply = self.kit.take(frame.at, connection, frame.data, self._nodes(writer))
            if reply.request is not None:
                reply.request.late = frame.late
            if reply.delay_s:
                await asyncio.sleep(reply.delay_s)
            if reply.data is not None:
                if reply.request is not None:
                    reply.request.answered = self.now  # before the client can have it
                writer.write(_LENGTH.pack(len(reply.data)) + reply.data)
                async with asyncio.timeout(_WRITE_WITHIN_S):
                    await writer.drain()
            if reply.close:
                return

    def _nodes(self, writer: asyncio.StreamWriter) -> Sequence[Node]:
        """Return the brokers with the addresses that a client can reach."""
        advertised = self._options.advertise or self.addresses
        own: str = writer.get_extra_info("sockname")[0]
        return [
            Node(index, own if address.is_wildcard else address.host, address.port)
            for index, address in enumerate(advertised, 1)
        ]
