"""Serves the REST application on the core's event loop.

uvicorn's protocol class parses HTTP and runs the application. uvicorn's ``Server`` is not used,
because its options cannot keep four promises of docs/rest.md (checked with uvicorn 0.54):

- The receiver sets no timer while it is idle. ``Server`` wakes up every 0.1 s, and a pending timer
  costs each wait of the event loop a system call.
- A connection counts from ``accept``. ``limit_concurrency`` counts a connection after its TLS
  handshake, keeps idle connections, and answers 503 to all others.
- A TLS handshake has 5 s (``Server``: 60 s), and new TLS files apply without a restart.
- A source address that opens too many connections waits, and the loop accepts one connection a
  turn.

Signals belong to the supervisor.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from typing import Final

import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from receiver.api.connection import IDLE_S, HttpConnection
from receiver.api.connection_rate import MAX_DELAY_S, ConnectionRate
from receiver.api.errors import ServerError
from receiver.api.limits import MAX_HEADER_BYTES
from receiver.api.security_headers import HSTS, SECURITY_HEADERS, DefaultHeaders
from receiver.log import RateLimitedLog
from receiver.settings.hostport import HostPort
from receiver.settings.rest import RestSettings
from receiver.tls import TlsFilesError, server_context
from receiver.workers import start_task
from spark_streaming.system_errors import reason_of

_MAX_CONNECTIONS: Final = 256
_HANDSHAKE_S: Final = 5.0
_TLS_SHUTDOWN_S: Final = 1.0
_RETRY_ACCEPT_S: Final = 0.5

_log = structlog.get_logger("receiver.api")


class RestServer:
    """Serves an ASGI application from :meth:`start` to :meth:`stop`.

    A TLS file that cannot be used raises ServerError.

    Args:
        listening: The listening socket; the server owns its descriptor.
    """

    def __init__(self, app: ASGIApp, settings: RestSettings, listening: socket.socket) -> None:
        listening.setblocking(False)  # noqa: FBT003 -- positional only
        self._listening = listening
        #: The address that it listens on; the system may have chosen the port.
        self.address = HostPort(host=settings.bind.host, port=listening.getsockname()[1])
        try:
            self._tls = None if settings.tls is None else server_context("rest", settings.tls, key="rest.tls")
        except TlsFilesError as error:
            listening.close()
            raise ServerError(error.setting, error.problem) from None
        # Without authentication nobody can guess a token, and only this machine can connect.
        self._rate = ConnectionRate() if settings.authenticates else None
        self._config = uvicorn.Config(
            DefaultHeaders(app),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            # Silent, because the application's error handler and HttpConnection log what matters.
            log_level=logging.CRITICAL + 1,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=IDLE_S,
            headers=SECURITY_HEADERS if self._tls is None else [*SECURITY_HEADERS, HSTS],
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        )
        self._state = ServerState()
        self._warnings = RateLimitedLog("receiver.api")
        self._settings = settings
        self._accepts = False
        self._retry: asyncio.TimerHandle | None = None
        self._open: dict[asyncio.Task[None], HttpConnection] = {}

    @property
    def certificate_ends(self) -> float | None:
        """End of the certificate's validity in seconds since the epoch; None without TLS."""
        return None if self._tls is None else self._tls.not_after()

    def start(self, before: RestServer | None = None) -> None:
        """Serve in tasks of the running event loop.

        Args:
            before: The server that this one replaces. Its open connections go on here.
        """
        if before is not None:
            self._open = before.hand_over(self._config, self._state, self._settings)
        if self._tls is None and not self.address.is_loopback:
            _log.warning("rest.tls is not set, tokens cross the network unencrypted", bind=str(self.address))
        self._accepts = True
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def hand_over(
        self, config: uvicorn.Config, state: ServerState, settings: RestSettings
    ) -> dict[asyncio.Task[None], HttpConnection]:
        """Give the open connections to the server that replaces this one.

        This one accepts no more. A client may send a request while its connection closes, and
        would see a reset. Only connections with TLS of another configuration stay and end with
        :meth:`stop`, and so do those whose client certificates were checked here.

        Args:
            config: The configuration of the other server, with its application.
        """
        self._stop_accepting()
        tls = self._settings.tls
        if settings.tls != tls or (tls is not None and tls.client_ca_file is not None):
            return {}
        given, self._open = self._open, {}
        for connection in given.values():
            connection.move(config, state, last=settings.bind != self._settings.bind)
        return given

    def close(self) -> None:
        """Close the listening socket of a server that was not started."""
        self._listening.close()

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Accept no more connections and close after the responses in progress.

        The connections that remain after the timeout are aborted.
        """
        self._stop_accepting()
        self._listening.close()
        # Requests that have arrived by now are read in the loop's next turn, and answered.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task, connection in self._open.items():
            if connection.connected:
                connection.shutdown()
            else:
                task.cancel()
        if self._open:
            await asyncio.wait(self._open, timeout=timeout_s)
        remaining = list(self._open)
        for task in remaining:
            task.cancel()
        await asyncio.gather(*remaining, return_exceptions=True)

    def _stop_accepting(self) -> None:
        if self._accepts:
            self._accepts = False
            asyncio.get_running_loop().remove_reader(self._listening)
            if self._retry is not None:
                self._retry.cancel()

    # A callback, and no task: a task that is cancelled drops the connection that it has accepted.
    def _accept(self) -> None:
        """Accept one connection a turn of the loop."""
        try:
            accepted, address = self._listening.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:
            self._warnings.warning("cannot accept a REST connection", problem=reason_of(error))
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listening)
            self._retry = loop.call_later(_RETRY_ACCEPT_S, loop.add_reader, self._listening, self._accept)
            return
        accepted.setblocking(False)  # noqa: FBT003 -- positional only
        delay = self._rate.delay(address[0], time.monotonic()) if self._rate is not None else 0.0
        if delay > MAX_DELAY_S or not self._has_room():
            self._warnings.warning("REST connection refused at a limit", source_address=address[0])
            accepted.close()
        else:
            self._serve(accepted, delay)

    def _has_room(self) -> bool:
        """Make room for a connection, if necessary by closing the longest idle one."""
        if len(self._open) < _MAX_CONNECTIONS:
            return True
        idle = [
            (connection.idle_since, number, task)
            for number, (task, connection) in enumerate(self._open.items())
            if connection.idle_since is not None
        ]
        if not idle:
            return False
        _, _, task = min(idle)
        del self._open[task]
        task.cancel()
        return True

    def _serve(self, accepted: socket.socket, delay: float) -> None:
        connection = HttpConnection(self._config, self._state, self._warnings)
        task = start_task("rest-connection", self._connect(accepted, connection, delay))
        opened = self._open  # which another server may adopt
        opened[task] = connection

        # A callback, because a task that is cancelled before its first step runs no `finally`.
        def close(task: asyncio.Task[None]) -> None:
            opened.pop(task, None)
            if connection.connected:
                connection.transport.abort()
            else:
                accepted.close()

        task.add_done_callback(close)

    async def _connect(self, accepted: socket.socket, connection: HttpConnection, delay: float) -> None:
        if delay:
            await asyncio.sleep(delay)
        tls = self._tls is not None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls.current() if self._tls is not None else None,
                ssl_handshake_timeout=_HANDSHAKE_S if tls else None,
                ssl_shutdown_timeout=_TLS_SHUTDOWN_S if tls else None,
            )
        except OSError as error:
            self._warnings.warning("TLS handshake on the REST API failed", problem=str(error)[:200])
        else:
            await connection.closed.wait()
