"""Serving the REST application on the event loop that is already there.

Owns the socket and the server's life. It takes over no signal and no logging: both belong to the composition
root.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from receiver.settings.hostport import HostPort

__all__ = ["RestServer", "ServerError"]

_BACKLOG = 128
_MAX_CONCURRENT = 256
_KEEP_ALIVE_S = 5


@dataclass(eq=False)
class ServerError(Exception):
    """The REST API cannot be served: the operator must act.

    Attributes:
        bind: Where it should listen.
        problem: Why it cannot.
    """

    bind: HostPort
    problem: str

    def __str__(self) -> str:
        return f"rest.bind: {self.bind}: {self.problem}"


class RestServer:
    """Serves an application until it is stopped.

    Args:
        app: The application.
        bind: Where to listen; port 0 lets the system choose.
    """

    def __init__(self, app: ASGIApp, bind: HostPort) -> None:
        self._app = app
        self._bind = bind
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._address: HostPort | None = None

    @property
    def address(self) -> HostPort:
        """Where it listens, with the port that the system chose.

        Raises:
            RuntimeError: It was not started.
        """
        if self._address is None:
            raise RuntimeError("the REST server was not started")
        return self._address

    async def start(self) -> None:
        """Listen, and serve in a task of the running loop.

        Raises:
            ServerError: The address cannot be listened on.
        """
        listening = await self._listen()
        self._address = HostPort(host=self._bind.host, port=listening.getsockname()[1])
        config = uvicorn.Config(
            _dated(self._app),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            limit_concurrency=_MAX_CONCURRENT,
            timeout_keep_alive=_KEEP_ALIVE_S,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listening]), name="rest-server")
        up = asyncio.create_task(self._server.up.wait())
        await asyncio.wait({up, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        if not up.done():
            up.cancel()
            listening.close()
            await self._serving

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Take no more requests, and let those in flight finish.

        Args:
            timeout_s: How long they may take, in seconds; what is not done then is cut off.
        """
        if self._server is None or self._serving is None:
            return
        self._server.end()
        done, _ = await asyncio.wait({self._serving}, timeout=timeout_s)
        if not done:
            self._server.force_exit = True
            self._serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._serving
        self._serving = None

    async def _listen(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(
                self._bind.host, self._bind.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except OSError as error:
            raise ServerError(self._bind, f"the host is not known: {error.strerror or error}") from None
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
            raise ServerError(self._bind, f"cannot listen there: {reason}") from None
        return listening


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


class _Server(uvicorn.Server):
    """uvicorn's server, without its signal handlers and its clock, that tells when it is up.

    uvicorn looks ten times a second whether it should end, and what the date is. While a timer is pending,
    each of the event loop's waits arms a timer in the kernel too, which every client's request pays for.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()
        self._end = asyncio.Event()

    def end(self) -> None:
        """Take no more requests."""
        self.should_exit = True
        self._end.set()

    async def main_loop(self) -> None:
        """Serve until told to end."""
        await self._end.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the composition root."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell so."""
        await super().startup(sockets)
        self.up.set()
