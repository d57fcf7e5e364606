"""Listens for bridges, and carries conversations with them.

Runs on the core's event loop. A connection's work is bounded in each turn of the loop, and nothing
is read from a bridge while its frames wait, so it waits in the broker, where it is bounded.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import time
from collections import Counter as Tally
from collections.abc import Callable
from typing import Any, Final, Protocol

import structlog

from receiver.bridge.conversation import Conversation, ConversationError, Joined, StatisticsReported
from receiver.bridge.frames import BridgedPush, Hello, Result
from receiver.bridge.taken import Done, TakenPushes
from receiver.bridge.token_file import TokenFile
from receiver.bridge.tokens import TokenError
from receiver.log import RateLimitedLog
from receiver.metrics.bridge_metrics import BridgeMetrics
from receiver.peers.sources import source_of
from receiver.settings.bridge import BridgeSettings
from receiver.tls import TlsFilesError, server_context
from receiver.workers import start_task
from spark_streaming.system_errors import reason_of

#: Most pushes of a bridge without an acknowledgement.
WINDOW: Final = 1024

#: Most connections whose bridge has not proven its token.
_MAX_UNPROVEN: Final = 64
_HANDSHAKE_S: Final = 10.0
#: Seconds after which a silent bridge counts as gone. It sends statistics every ten seconds.
_SILENT_S: Final = 60.0
#: Seconds for the rest of a frame, and for reading what the receiver has sent.
_STUCK_S: Final = 30.0
_CHECK_EVERY_S: Final = 5.0
#: Bytes of answers that wait for a bridge to read them.
_MAX_UNREAD_BYTES: Final = 1 << 20
#: Seconds of one connection's work in a turn of the loop.
_TURN_S: Final = 2e-3
_RETRY_ACCEPT_S: Final = 0.5
_TLS_SHUTDOWN_S: Final = 1.0
#: The source address of what comes by a Unix socket.
_UNIX: Final = "unix socket"

_log = structlog.get_logger("receiver.bridge")


class BridgeListenerError(Exception):
    """The listener can't be made; the message names the setting, and what to do."""


class TakePush(Protocol):
    """Takes a push from a bridge; calls ``done`` once with the result, now or later."""

    def __call__(self, hello: Hello, push: BridgedPush, done: Done) -> None:
        """Take a push, whose metrics are valid during the call."""


class BridgeListener:
    """The listener for bridges, from :meth:`start` to :meth:`stop`.

    Args:
        listening: The listening socket; the listener owns its descriptor.
        taken: Which pushes were taken; a listener that takes this one's place has the same.
        metrics: Counts connections and what bridges report.

    Raises:
        BridgeListenerError: The token's file or a file of TLS can't be used.
    """

    def __init__(
        self,
        settings: BridgeSettings,
        listening: socket.socket,
        *,
        max_push_bytes: int,
        take: TakePush,
        taken: TakenPushes,
        metrics: BridgeMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        listening.setblocking(False)  # noqa: FBT003 -- positional only
        self.settings = settings
        self.max_push_bytes = max_push_bytes
        self.metrics = metrics
        self.clock = clock
        self.warnings = RateLimitedLog("receiver.bridge", clock=clock)
        self.connections: dict[_BridgeConnection, asyncio.Task[None]] = {}
        self._listening = listening
        self._take = take
        self._numbers = itertools.count(1)
        self._taken = taken
        self._accepting: asyncio.Task[None] | None = None
        self._restart: asyncio.TimerHandle | None = None  # after a defect
        self._check: asyncio.TimerHandle | None = None
        try:
            self._tokens = TokenFile(settings.token.file, clock)
            self._tls = (
                None if settings.tls is None else server_context("bridge", settings.tls, key="bridge.tls")
            )
        except TokenError as error:
            listening.close()
            raise BridgeListenerError(str(error)) from None
        except TlsFilesError as error:
            listening.close()
            raise BridgeListenerError(f"{error.setting}: {error.problem}") from None

    @property
    def certificate_ends(self) -> float | None:
        """End of the certificate's validity in seconds since the epoch; None without TLS."""
        return None if self._tls is None else self._tls.not_after()

    def start(self) -> None:
        """Accept bridges in tasks of the running event loop."""
        self._accepting = start_task("bridge-listener", self._accept(), on_defect=self._start_again)

    def _start_again(self) -> None:
        if self._accepting is not None:
            self._restart = asyncio.get_running_loop().call_later(_RETRY_ACCEPT_S, self.start)

    def close(self) -> None:
        """Close the listening socket of a listener that was not started."""
        self._listening.close()

    def pause(self) -> None:
        """Accept no more bridges and take no more pushes.

        What was taken is still acknowledged.
        """
        if self._accepting is not None:
            self._accepting.cancel()
            self._accepting = None
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None
        if self._check is not None:
            self._check.cancel()
            self._check = None
        self._listening.close()
        for connection in self.connections:
            connection.pause()

    async def stop(self) -> None:
        """Close all connections, after what waits to be sent."""
        self.pause()
        tasks = list(self.connections.values())
        for connection in list(self.connections):
            connection.finish()
        if tasks:
            await asyncio.wait(tasks, timeout=_TLS_SHUTDOWN_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def take(self, hello: Hello, push: BridgedPush, done: Done) -> None:
        """Take a push, unless it was taken before."""
        decided = self._taken.begin(hello.bridge_id, push.sequence, done)
        if decided is None:
            self.metrics.push(hello.node_id, "duplicate")
        else:
            self._take(hello, push, decided)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(self._listening)
            except ConnectionError:
                continue
            except OSError as error:
                self.warnings.warning("cannot accept a bridge", problem=reason_of(error))
                await asyncio.sleep(_RETRY_ACCEPT_S)
                continue
            try:
                self._admit(accepted, address)
            except BaseException:
                accepted.close()
                raise
            await asyncio.sleep(0)

    def _admit(self, accepted: socket.socket, address: Any) -> None:
        source_address = address[0] if self._listening.family != socket.AF_UNIX else _UNIX
        self._make_room()
        if len(self.connections) < self.settings.max_connections:
            self._serve(accepted, source_address)
            return
        self.metrics.refused("limit")
        self.warnings.warning(
            "bridge refused",
            kind="limit",
            source_address=source_address,
            problem=f"bridge.max_connections ({self.settings.max_connections}) are open",
        )
        accepted.close()

    def _make_room(self) -> None:
        """Close a connection without proof if there are many.

        It is the oldest one of the source that has most.
        """
        unproven = [connection for connection in self.connections if connection.hello is None]
        if len(unproven) < min(_MAX_UNPROVEN, self.settings.max_connections):
            return
        sources = Tally(connection.source for connection in unproven)
        most = max(sources.values())
        oldest = next(connection for connection in unproven if sources[connection.source] == most)
        oldest.end("limit", "too many bridges have not proven their token")

    def _serve(self, accepted: socket.socket, source_address: str) -> None:
        conversation = Conversation(
            accepted_tokens=self._tokens.current(),
            nonce=os.urandom(32),
            max_push_bytes=self.max_push_bytes,
            window=WINDOW,
        )
        connection = _BridgeConnection(self, conversation, source_address, next(self._numbers))
        task = start_task("bridge-connection", self._connect(accepted, connection))
        self.connections[connection] = task
        if self._check is None:
            self._check = asyncio.get_running_loop().call_later(_CHECK_EVERY_S, self._check_times)

        # A callback, because a task that is cancelled before its first step runs no `finally`.
        def closed(_: asyncio.Task[None]) -> None:
            self.connections.pop(connection, None)
            self.metrics.left(connection.number)
            if connection.transport is None:
                accepted.close()
            else:
                connection.transport.abort()

        task.add_done_callback(closed)

    async def _connect(self, accepted: socket.socket, connection: _BridgeConnection) -> None:
        tls = self._tls is not None
        if accepted.family != socket.AF_UNIX:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls.current() if self._tls is not None else None,
                ssl_handshake_timeout=_HANDSHAKE_S if tls else None,
                ssl_shutdown_timeout=_TLS_SHUTDOWN_S if tls else None,
            )
        except OSError as error:
            self.metrics.refused("tls")
            self.warnings.warning(
                "TLS handshake of a bridge failed",
                source_address=connection.source_address,
                problem=str(error)[:200],
            )
        else:
            await connection.closed.wait()

    def _check_times(self) -> None:
        """Close connections that are silent or stuck.

        The one timer while there are connections.
        """
        self._check = None
        now = self.clock()
        try:
            for connection in list(self.connections):
                connection.check(now)
        finally:
            if self.connections:
                self._check = asyncio.get_running_loop().call_later(_CHECK_EVERY_S, self._check_times)


class _BridgeConnection(asyncio.Protocol):
    """One connection of a bridge."""

    def __init__(
        self, listener: BridgeListener, conversation: Conversation, source_address: str, number: int
    ) -> None:
        self.number = number
        self.source_address = source_address
        self.source = source_of(source_address)
        self.hello: Hello | None = None
        self.transport: asyncio.Transport | None = None
        self.closed = asyncio.Event()
        self._listener = listener
        self._conversation = conversation
        self._opened = self._heard = listener.clock()
        self._incomplete_since: float | None = None
        self._unread_since: float | None = None
        self._again: asyncio.Handle | None = None
        self._flush_soon: asyncio.Handle | None = None
        self._paused = False

    # -- asyncio's callbacks -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 -- of a stream
        self.transport = transport
        transport.set_write_buffer_limits(high=_MAX_UNREAD_BYTES // 2)

    def data_received(self, data: bytes) -> None:
        self._heard = self._listener.clock()
        if self._paused:
            return
        self._conversation.receive(data)
        self._work()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._unread_since = self._listener.clock()

    def resume_writing(self) -> None:
        self._unread_since = None

    def connection_lost(self, exc: Exception | None) -> None:
        for handle in (self._again, self._flush_soon):
            if handle is not None:
                handle.cancel()
        self._paused = True
        if self.hello is not None:
            _log.info(
                "bridge left", broker=self.hello.node_id, problem=None if exc is None else str(exc)[:200]
            )
        self.closed.set()

    # -- the listener's ----------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Close the connection if a time limit is over."""
        if self.hello is None:
            if now - self._opened > _HANDSHAKE_S:
                self.end("timeout", f"no proof of the token within {_HANDSHAKE_S:.0f} s")
        elif now - self._heard > _SILENT_S:
            self.end("timeout", f"nothing was received for {_SILENT_S:.0f} s")
        elif self._incomplete_since is not None and now - self._incomplete_since > _STUCK_S:
            self.end("timeout", f"a frame took more than {_STUCK_S:.0f} s")
        elif self._unread_since is not None and now - self._unread_since > _STUCK_S:
            self.end("timeout", f"acknowledgements are not read for {_STUCK_S:.0f} s")

    def end(self, kind: str, reason: str) -> None:
        self._conversation.refuse(reason)
        self._listener.metrics.refused(kind)
        self._listener.warnings.warning(
            "bridge refused",
            kind=kind,
            source_address=self.source_address,
            broker=None if self.hello is None else self.hello.node_id,
            problem=reason,
        )
        self.finish()

    def pause(self) -> None:
        """Take no more pushes."""
        self._paused = True
        if self.transport is not None and self.transport.is_reading():
            self.transport.pause_reading()

    def finish(self) -> None:
        """Send what waits, and close."""
        self.pause()
        if self.transport is None:
            self._listener.connections[self].cancel()
        else:
            self._flush()
            self.transport.close()

    # -- work --------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Handle what has arrived, for a bounded time.

        The rest in the next turn of the loop.
        """
        self._again = None
        if self._paused:
            return
        clock, until = time.perf_counter, time.perf_counter() + _TURN_S
        try:
            while (event := self._conversation.next_event()) is not None:
                self._incomplete_since = None
                match event:
                    case BridgedPush():
                        self._take(event)
                    case StatisticsReported(values):
                        assert self.hello is not None  # noqa: S101 -- by the conversation's states
                        self._listener.metrics.reported(self.number, self.hello.bridge_id, values)
                    case Joined(hello):
                        self._joined(hello)
                if clock() >= until:
                    self._continue_later()
                    break
            else:
                self._wait_for_more()
        except ConversationError as error:
            self.end(error.kind, str(error))
            return
        self._flush()

    def _continue_later(self) -> None:
        if self.transport is not None and self.transport.is_reading():
            self.transport.pause_reading()
        self._again = asyncio.get_running_loop().call_soon(self._work)

    def _wait_for_more(self) -> None:
        if self._conversation.waiting_bytes == 0:
            self._incomplete_since = None
        elif self._incomplete_since is None:
            self._incomplete_since = self._listener.clock()
        if self.transport is not None and not self.transport.is_reading():
            self.transport.resume_reading()

    def _joined(self, hello: Hello) -> None:
        self.hello = hello
        self._listener.metrics.joined(self.number, hello.node_id)
        _log.info(
            "bridge joined",
            broker=hello.node_id,
            cluster_id=hello.cluster_id,
            version=hello.software_version,
            source_address=self.source_address,
        )

    def _take(self, push: BridgedPush) -> None:
        assert self.hello is not None  # noqa: S101 -- by the conversation's states
        sequence = push.sequence

        def done(result: Result) -> None:
            self._conversation.acknowledge(sequence, result)
            if self._flush_soon is None and not self.closed.is_set():
                # The acknowledgements of one turn leave together.
                self._flush_soon = asyncio.get_running_loop().call_soon(self._flush)

        self._listener.take(self.hello, push, done)

    def _flush(self) -> None:
        if self._flush_soon is not None:
            self._flush_soon.cancel()
            self._flush_soon = None
        transport, out = self.transport, self._conversation.to_send()
        if not out or transport is None or transport.is_closing():
            return
        transport.write(out)
        if transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
            transport.abort()
