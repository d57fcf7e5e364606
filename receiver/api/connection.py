"""A REST connection: uvicorn's h11 protocol with a deadline for each step.

uvicorn limits neither the time to the first request, nor the time to read a response. It also
does not pass the client certificate to the application and answers bytes that are not HTTP in
plain text. This subclass adds these four things and leaves HTTP and ASGI to uvicorn.
"""

from __future__ import annotations

import asyncio
import http
import sys
import time
from email.utils import formatdate
from typing import Final, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from receiver.api.limits import HEADERS_TOO_LONG
from receiver.api.problems import problem_response
from receiver.log import RateLimitedLog

__all__ = ["HttpConnection"]

#: From the start of the connection, or the end of the previous response, to the end of a request's
#: headers.
_REQUEST_S: Final = 5.0
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
        self._abort_after(_REQUEST_S)

    def handle_events(self) -> None:
        """Process received bytes and start the deadline of a response."""
        date = (b"date", formatdate(usegmt=True).encode())
        self.server_state.default_headers = [date, *self.config.encoded_headers]
        super().handle_events()
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if self.idle_since is not None and cycle is not None and not cycle.response_complete:
            self.idle_since = None
            self._abort_after(_ANSWER_S)

    def on_response_complete(self) -> None:
        """Start the deadline of the next request, which may have been received already."""
        self.idle_since = time.monotonic()
        # It also bounds the time in which the peer must read the response.
        self._abort_after(_REQUEST_S)
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
        headers = [*self.server_state.default_headers, *problem.raw_headers, (b"connection", b"close")]
        reason = http.HTTPStatus(problem.status_code).phrase.encode()
        for event in (
            h11.Response(status_code=problem.status_code, headers=headers, reason=reason),
            h11.Data(data=bytes(problem.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _abort_after(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)
