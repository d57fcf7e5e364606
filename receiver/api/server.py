"""Serving the REST application on the event loop that is already there.

Owns the socket, who may connect, and the server's life. It takes over no signal and no logging: both belong
to the composition root. It sets no timer while nobody is connected: while one is pending, each of the event
loop's waits arms a timer in the kernel too, which every client's request pays for.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from email.utils import formatdate
from typing import Final

import structlog
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.server import ServerState

from receiver.api.errors import ServerError
from receiver.api.http import HttpConnection, security_headers, server_log
from receiver.api.limits import MAX_HEADER_BYTES
from receiver.api.pace import MAX_DELAY_S, Pace
from receiver.log import RateLimitedLog
from receiver.settings.hostport import HostPort
from receiver.settings.rest import RestSettings
from receiver.tls import TlsFilesError, server_context

__all__ = ["RestServer", "ServerError"]

_BACKLOG: Final = 128
_MAX_CONNECTIONS: Final = 256
_KEEP_ALIVE_S: Final = 5
_HANDSHAKE_S: Final = 5.0
_GOODBYE_S: Final = 1.0
_OUT_OF_FILES_S: Final = 0.5

_log = structlog.get_logger("receiver.api")


class RestServer:
    """Serves an application until it is stopped.

    Args:
        app: The application.
        settings: Where to listen (port 0 lets the system choose), and TLS.

    Raises:
        ServerError: A TLS file can't be used.
    """

    def __init__(self, app: ASGIApp, settings: RestSettings) -> None:
        self._bind = settings.bind
        try:
            self._tls = None if settings.tls is None else server_context("rest", settings.tls, key="rest.tls")
        except TlsFilesError as error:
            raise ServerError(error.setting, error.problem) from None
        # Where nobody has to authenticate, nobody can guess, and only this machine can ask.
        self._pace = Pace() if settings.authenticates else None
        self._config = uvicorn.Config(
            _dated(app),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        )
        self._state = ServerState()
        self._state.default_headers = security_headers(tls=settings.tls is not None)
        self._server_log = server_log()
        self._peers = RateLimitedLog("receiver.api")
        self._address: HostPort | None = None
        self._listening: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._open: dict[asyncio.Task[None], HttpConnection] = {}

    @property
    def address(self) -> HostPort:
        """Where it listens, with the port that the system chose.

        Raises:
            RuntimeError: It was not started.
        """
        if self._address is None:
            raise RuntimeError("the REST server was not started")
        return self._address

    @property
    def certificate_ends(self) -> float | None:
        """When its certificate ends, in seconds since the epoch; None without TLS."""
        return None if self._tls is None else self._tls.not_after()

    async def start(self) -> None:
        """Listen, and serve in tasks of the running loop.

        Raises:
            ServerError: The address cannot be listened on.
        """
        self._listening = await self._listen()
        self._address = HostPort(host=self._bind.host, port=self._listening.getsockname()[1])
        if self._tls is None and not self._bind.is_loopback:
            _log.warning("rest.tls is not set: tokens cross the network as they are", bind=str(self._bind))
        self._accepting = asyncio.create_task(self._accept(self._listening), name="rest-server")

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Take no more requests, and let those in flight finish.

        Args:
            timeout_s: How long they may take, in seconds; what is not done then is cut off.
        """
        if self._accepting is None or self._listening is None:
            return
        self._accepting.cancel()
        await asyncio.gather(self._accepting, return_exceptions=True)
        self._accepting = None
        self._listening.close()
        for task, connection in self._open.items():
            if connection.connected:
                connection.shutdown()
            else:
                task.cancel()
        if self._open:
            await asyncio.wait(self._open, timeout=timeout_s)
        left = list(self._open)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except ConnectionError:
                continue
            except OSError as error:
                self._peers.warning("cannot accept a REST connection", problem=error.strerror)
                await asyncio.sleep(_OUT_OF_FILES_S)
                continue
            now = time.monotonic()
            delay = self._pace.delay(address[0], now) if self._pace is not None else 0.0
            if delay > MAX_DELAY_S or not self._has_room():
                self._peers.warning("REST connections come too fast", source_address=address[0])
                accepted.close()
            else:
                self._serve(accepted, delay)
            # One in each turn of the loop: clients' traffic has the others.
            await asyncio.sleep(0)

    def _has_room(self) -> bool:
        """Whether one more connection is possible, if need be for the one that was silent for longest."""
        if len(self._open) < _MAX_CONNECTIONS:
            return True
        waiting = [
            (connection.waiting_since, number, task)
            for number, (task, connection) in enumerate(self._open.items())
            if connection.waiting_since is not None
        ]
        if not waiting:
            return False
        _, _, task = min(waiting)
        del self._open[task]
        task.cancel()
        return True

    def _serve(self, accepted: socket.socket, delay: float) -> None:
        closed = asyncio.Event()
        connection = HttpConnection(self._config, self._state, self._server_log, closed.set)
        task = asyncio.create_task(self._connect(accepted, connection, delay, closed))
        self._open[task] = connection

        def ended(task: asyncio.Task[None]) -> None:
            self._open.pop(task, None)
            if connection.connected:
                connection.transport.abort()
            else:
                accepted.close()

        task.add_done_callback(ended)

    async def _connect(
        self, accepted: socket.socket, connection: HttpConnection, delay: float, closed: asyncio.Event
    ) -> None:
        loop = asyncio.get_running_loop()
        if delay:
            await asyncio.sleep(delay)
        try:
            if self._tls is None:
                await loop.connect_accepted_socket(lambda: connection, accepted)
            else:
                await loop.connect_accepted_socket(
                    lambda: connection,
                    accepted,
                    ssl=self._tls.current(),
                    ssl_handshake_timeout=_HANDSHAKE_S,
                    ssl_shutdown_timeout=_GOODBYE_S,
                )
        except OSError as error:
            self._peers.warning("a TLS handshake of the REST API failed", problem=str(error)[:200])
        else:
            await closed.wait()

    async def _listen(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(
                self._bind.host, self._bind.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except OSError as error:
            raise self._error(f"the host is not known: {error.strerror or error}") from None
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setblocking(False)  # noqa: FBT003 -- positional only
            listening.bind(address)
            listening.listen(_BACKLOG)
        except OSError as error:
            listening.close()
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise self._error(f"cannot listen there: {reason}") from None
        return listening

    def _error(self, problem: str) -> ServerError:
        return ServerError("rest.bind", f"{self._bind}: {problem}")


def _dated(app: ASGIApp) -> ASGIApp:
    """Say in every answer when it was made (RFC 9110, section 6.6.1)."""

    async def dated(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                date = formatdate(usegmt=True).encode("ascii")
                message = {**message, "headers": [*message.get("headers", ()), (b"date", date)]}
            await send(message)

        await app(scope, receive, send_dated if scope["type"] == "http" else send)

    return dated
