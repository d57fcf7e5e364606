"""The sockets of the test kit: hands frames to the kit, in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final, Self

from receiver.settings.hostport import HostPort
from receiver.testkit.data_path import Node
from receiver.testkit.kit import MAX_CONNECTIONS, MAX_FRAME_BYTES, Credentials, Kit
from receiver.testkit.recording import CLIENT, KIT, Connection
from receiver.testkit.script import Script
from receiver.wire.uuid import random_uuid, uuid_to_text
from receiver.workers import start_task

#: Frames of a connection with their time of arrival; None at its end.
_Frames = asyncio.Queue[tuple[float, bytes] | None]

_LENGTH: Final = struct.Struct(">i")
#: Requests of a connection that are read ahead, so that their time of arrival is exact.
_READ_AHEAD: Final = 8
#: The bytes of all requests that are read ahead.
_MAX_HELD_BYTES: Final = 64 << 20
#: Seconds in which a client must take an answer.
_WRITE_WITHIN_S: Final = 30.0


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

    @property
    def now(self) -> float:
        """Seconds since the kit began."""
        return time.monotonic() - self._start

    async def __aenter__(self) -> Self:
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
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

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
                self._held -= len((frames.get_nowait() or (0.0, b""))[1])
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
            frame = await reader.readexactly(size)
            await frames.put((self.now, frame))
        except BaseException:
            self._held -= size
            raise

    async def _answer(
        self,
        writer: asyncio.StreamWriter,
        connection: Connection,
        frames: _Frames,
    ) -> None:
        while (arrived := await frames.get()) is not None:
            at, frame = arrived
            self._held -= len(frame)
            reply = self.kit.take(at, connection, frame, self._nodes(writer))
            if reply.delay_s:
                await asyncio.sleep(reply.delay_s)
            if reply.data is not None:
                writer.write(_LENGTH.pack(len(reply.data)) + reply.data)
                async with asyncio.timeout(_WRITE_WITHIN_S):
                    await writer.drain()
                if reply.request is not None:
                    reply.request.answered = self.now
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
