"""A REST connection: uvicorn's h11 protocol with a deadline for each step.

uvicorn limits neither the time to send a request, nor the time to read a response. It also does
not pass the client certificate to the application and answers bytes that are not HTTP in plain
text. This subclass adds these four things and leaves HTTP and ASGI to uvicorn.

A connection between requests stays open for :data:`IDLE_S`. Clients must give up an idle connection
earlier than the server does. Otherwise a client may send a request while the server closes, and
sees a reset instead of a response.
"""

from __future__ import annotations

import asyncio
import http
import sys
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Final, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from receiver.api.limits import HEADERS_TOO_LONG
from receiver.api.problems import problem_response
from receiver.api.security_headers import DEFAULT_HEADERS
from receiver.log import RateLimitedLog

#: From the end of a response to the first byte of the next request. Longer than clients keep an
#: idle connection: 90 s by default in Go, whose clients (Prometheus, kubelet) are the most patient.
IDLE_S: Final = 120
#: From the start of the connection, or the first byte of a further request, to the end of the
#: request's headers.
_REQUEST_S: Final = 5.0
#: From the end of a response until the client has read it.
_READ_S: Final = 5.0
#: From the end of a request's headers to the end of its response.
_ANSWER_S: Final = 30.0


class HttpConnection(H11Protocol):
    """A connection with deadlines."""

    def __init__(self, config: uvicorn.Config, state: ServerState, log: RateLimitedLog) -> None:
        super().__init__(config, state, {})
        self._log = log
        #: Whether the connection is established; with TLS, after the handshake.
        self.connected = False
        self.closed = asyncio.Event()
        #: Monotonic seconds since when no request is processed; None while one is.
        self.idle_since: float | None = time.monotonic()
        self._deadline: asyncio.TimerHandle | None = None
        self._request_begun = True
        self._is_last = False  # whether the connection ends with the next response

    def move(self, config: uvicorn.Config, state: ServerState, *, last: bool) -> None:
        """Let another server's application answer from now on; ``last``: only once more."""
        if not config.loaded:
            config.load()
        self.config, self.app = config, config.loaded_app
        self.connections.discard(self)
        self.server_state, self.connections, self.tasks = state, state.connections, state.tasks
        if self.connected:
            self.connections.add(self)
        self._is_last = last

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Start the deadline of the first request and keep the client certificate."""
        super().connection_made(transport)
        self.connected = True
        if self.client is None:
            # The peer has reset the connection, so its address is unknown to the audit log.
            transport.abort()
            return
        if (tls := transport.get_extra_info("ssl_object")) is not None:
            # uvicorn copies this into the `state` of each request's scope.
            self.app_state = {"client_certificate": tls.getpeercert(binary_form=True)}
        self._begin_request()

    def data_received(self, data: bytes) -> None:
        """Start the deadline of a request with its first byte."""
        if not self._request_begun:
            self._begin_request()
        super().data_received(data)

    def handle_events(self) -> None:
        """Process received bytes and start the deadline of a response."""
        date = (b"date", formatdate(usegmt=True).encode())
        self.server_state.default_headers = [date, *self.config.encoded_headers]
        if self._is_last:
            self.server_state.default_headers.append((b"connection", b"close"))
        super().handle_events()
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if self.idle_since is not None and cycle is not None and not cycle.response_complete:
            self.idle_since = None
            self._start_deadline(_ANSWER_S, self.transport.abort)

    def on_response_complete(self) -> None:
        """Start the deadline for reading a response.

        Or that of a request received already.
        """
        self.idle_since = time.monotonic()
        received, _ = self.conn.trailing_data
        if received:
            self._begin_request()
        else:
            self._request_begun = False
            self._start_deadline(_READ_S, self._abort_unread)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline."""
        super().connection_lost(exc)
        if self._deadline is not None:
            self._deadline.cancel()
        self.closed.set()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP/1.1 with a problem document and close."""
        self._log.warning("invalid HTTP request on the REST API")
        if self.conn.our_state is not h11.IDLE:
            # The response to the request before these bytes is not finished.
            self.transport.abort()
            return
        # uvicorn calls this method while it handles h11's error.
        error = sys.exception()
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
            problem = problem_response(431, HEADERS_TOO_LONG)
        else:
            problem = problem_response(400, "this is not a request of HTTP/1.1")
        headers = [
            *self.server_state.default_headers,
            *DEFAULT_HEADERS,
            *problem.raw_headers,
            (b"connection", b"close"),
        ]
        reason = http.HTTPStatus(problem.status_code).phrase.encode()
        for event in (
            h11.Response(status_code=problem.status_code, headers=headers, reason=reason),
            h11.Data(data=bytes(problem.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _begin_request(self) -> None:
        self._request_begun = True
        self._start_deadline(_REQUEST_S, self.transport.abort)

    def _abort_unread(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _start_deadline(self, seconds: float, callback: Callable[[], None]) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, callback)
