"""One HTTP connection: uvicorn's protocol, with a deadline for every step and the client's certificate.

Owns what uvicorn leaves open there. What is answered belongs to the application.
"""

from __future__ import annotations

import asyncio
import http
import logging
import sys
import time
from collections.abc import Callable
from typing import Final, cast

import h11
import structlog
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from receiver.api.limits import HEADERS_TOO_LONG
from receiver.api.problems import problem_response
from receiver.log import RateLimitedLog

__all__ = ["HttpConnection", "security_headers", "server_log"]

#: From the connection, or the answer before, to the end of a request's headers.
_REQUEST_S: Final = 5.0
#: From there to the end of the answer.
_ANSWER_S: Final = 30.0

_SECURITY_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    # There is no page here: nothing that a browser might take for one may load or do anything.
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)
_HEADERS_TOO_LONG: Final = http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
_HSTS: Final = (b"strict-transport-security", b"max-age=31536000")


def security_headers(*, tls: bool) -> list[tuple[bytes, bytes]]:
    """What every answer says to browsers.

    Args:
        tls: Whether TLS is spoken, and so may be insisted on (RFC 6797).
    """
    return [*_SECURITY_HEADERS, _HSTS] if tls else list(_SECURITY_HEADERS)


class _ServerLog(logging.Handler):
    """Writes what uvicorn says into the receiver's log; what a peer can cause, not more often than that."""

    def __init__(self) -> None:
        super().__init__()
        self._failures = structlog.get_logger("receiver.api")
        self._peers = RateLimitedLog("receiver.api")

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Exception):
            self._failures.error("a REST request failed", exc_info=error)
        elif error is None:  # else its task was cancelled, as the server stops
            self._peers.warning(record.getMessage().strip())


def server_log() -> logging.Logger:
    """A logger for uvicorn, in no hierarchy: the process's own are the composition root's."""
    log = logging.Logger("receiver.api.http", logging.INFO)
    log.addHandler(_ServerLog())
    return log


class HttpConnection(H11Protocol):
    """A connection.

    Args:
        config: uvicorn's settings.
        state: What uvicorn's connections share.
        log: What uvicorn logs to.
        ended: Called when it is closed.

    Attributes:
        connected: Whether it has begun; with TLS, after the handshake.
        waiting_since: When it began to wait for a request, monotonic seconds; None while one is answered.
    """

    def __init__(
        self, config: uvicorn.Config, state: ServerState, log: logging.Logger, ended: Callable[[], None]
    ) -> None:
        super().__init__(config, state, {})
        self.logger = log
        self.connected = False
        self.waiting_since: float | None = time.monotonic()
        self._ended = ended
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Begin to wait for a request, and keep the certificate that TLS has verified."""
        super().connection_made(transport)
        self.connected = True
        if self.client is None:
            # It was reset already, and nobody can say any more from where: what it asks for is not done, as
            # the audit log could not tell.
            transport.abort()
            return
        if (tls := transport.get_extra_info("ssl_object")) is not None:
            # Each request's `state` is a copy of this.
            self.app_state = {"client_certificate": tls.getpeercert(binary_form=True)}
        self._allow(_REQUEST_S)

    def data_received(self, data: bytes) -> None:
        """Take bytes in."""
        super().data_received(data)
        self._look_for_a_request()

    def on_response_complete(self) -> None:
        """Wait for the next request, which may be there already."""
        self.waiting_since = time.monotonic()
        # Until its end, for a caller that does not read the answer is not waited for either.
        self._allow(_REQUEST_S)
        super().on_response_complete()
        self._look_for_a_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._deadline is not None:
            self._deadline.cancel()
        self._ended()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP; in the middle of a request there is nothing left to say."""
        if self.conn.our_state is not h11.IDLE:
            self.transport.abort()
            return
        # uvicorn calls this as it handles h11's error.
        error = sys.exception()
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == _HEADERS_TOO_LONG:
            problem = problem_response(_HEADERS_TOO_LONG, HEADERS_TOO_LONG)
        else:
            problem = problem_response(400, "this is not a request of HTTP/1.1")
        reason = http.HTTPStatus(problem.status_code).phrase
        headers = [*self.server_state.default_headers, *problem.raw_headers, (b"connection", b"close")]
        answer = (
            h11.Response(status_code=problem.status_code, headers=headers, reason=reason.encode()),
            h11.Data(data=bytes(problem.body)),
            h11.EndOfMessage(),
        )
        for event in answer:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _look_for_a_request(self) -> None:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.response_complete and self.waiting_since is not None:
            self.waiting_since = None
            self._allow(_ANSWER_S)

    def _allow(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)
