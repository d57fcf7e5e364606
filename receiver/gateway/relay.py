"""The relay: moves the bytes of one connection between a client's socket and the broker's.

Owns what the two directions mean for each other: back-pressure, half-close, drain and the end of a
connection. What the bytes become is the session's.

Back-pressure: what one side can't take is kept (at most one buffer), and the other side is not read from
until it is gone. So a slow reader slows its peer and nobody else. What is kept counts in
:mod:`receiver.gateway.request_memory`.
"""

from __future__ import annotations

import socket
import ssl
import struct
from asyncio import TimerHandle
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from receiver.gateway.direction import Direction
from receiver.gateway.event_loop import DirectEventLoop, Share
from receiver.gateway.request_memory import RequestMemory
from receiver.gateway.tls_direction import TlsDirection
from receiver.gateway.tls_socket import TlsSocket
from receiver.session.session import Session
from receiver.telemetry.connection import Connection
from receiver.wire.framing import END_OF_REQUESTS, BrokenStreamError, FrameRewriter

__all__ = ["CloseReason", "Relay", "close_with_reset"]

#: How long one direction may stay open after the other has ended, in seconds. A Kafka client or broker that
#: closes does so in both directions; only a peer that is gone for good leaves a connection half-open.
_HALF_CLOSED_S: Final = 60.0

#: How long a broker may take to answer what came before malformed bytes, in seconds.
_REFUSED_S: Final = 5.0

#: How long a connection is quiet, while draining, before an answer that may be due is no longer waited for,
#: in seconds. Longer than a consumer's fetch.max.wait.ms, which is 500 ms unless somebody changed it.
_QUIET_S: Final = 3.0

#: How long the answer to a push waits until the push is on a disk of ours, in seconds, and with it what comes
#: behind. A disk that takes longer is no reason to hold up a client.
_STORED_S: Final = 1.0

#: Makes close() send a reset, as the other side got one.
_RESET = struct.pack("ii", 1, 0)


def close_with_reset(side: socket.socket) -> None:
    """Close a socket so that its peer sees a reset."""
    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    socket.socket.close(side)  # under TLS, its own close would say an orderly end first


class CloseReason(StrEnum):
    """Why a connection ended; a label of the metrics and a word of the log."""

    CLIENT_CLOSED = "client_closed"
    BROKER_CLOSED = "broker_closed"
    CLIENT_RESET = "client_reset"
    BROKER_RESET = "broker_reset"
    CLIENT_PROTOCOL_ERROR = "client_protocol_error"
    BROKER_PROTOCOL_ERROR = "broker_protocol_error"
    CLIENT_TLS_ERROR = "client_tls_error"
    BROKER_TLS_ERROR = "broker_tls_error"
    INVALID_REQUEST = "invalid_request"
    LIMIT = "limit"
    HELD_BYTES = "held_bytes"
    REQUEST_TIMEOUT = "request_timeout"
    DRAINED = "drained"
    INTERNAL_ERROR = "internal_error"


class Relay:
    """Both directions of a connection, from the moment that the broker's side is connected.

    Args:
        loop: The event loop.
        connection: The connection's entry in the registry.
        client: The client's socket, non-blocking; owned from here on.
        broker: The broker's socket, non-blocking; owned from here on.
        session: What rewrites the bytes.
        held: The bounds on what is kept.
        share: What the client's peer may use of a turn of the event loop.
        buffer_bytes: What the system buffers for a direction whose sink takes nothing, in both sockets.
        on_close: Called once, when both sockets are closed, with the reason and the error behind it.

    Attributes:
        connection: The connection's entry in the registry.
    """

    __slots__ = (
        "_broker",
        "_buffer_bytes",
        "_client",
        "_closed",
        "_down",
        "_draining",
        "_ended_first",
        "_half_closed",
        "_held",
        "_last_moved",
        "_loop",
        "_muted",
        "_on_close",
        "_refused",
        "_session",
        "_share",
        "_storing",
        "_up",
        "connection",
    )

    def __init__(
        self,
        loop: DirectEventLoop,
        connection: Connection,
        client: socket.socket,
        broker: socket.socket,
        session: Session,
        held: RequestMemory,
        share: Share,
        buffer_bytes: int,
        on_close: Callable[[Relay, CloseReason, Exception | None], None],
    ) -> None:
        self._loop = loop
        self._client = client
        self._broker = broker
        self._session = session
        self._held = held
        self._share = share
        self._buffer_bytes = buffer_bytes
        self._on_close = on_close
        self._half_closed: TimerHandle | None = None
        self._muted: TimerHandle | None = None
        self._storing: TimerHandle | None = None
        self._ended_first: CloseReason | None = None
        self._refused: BrokenStreamError | None = None
        self._closed = False
        self._draining = False
        self._last_moved = 0.0
        self.connection = connection
        self._up = self._direction(client, broker, session.requests)
        self._down = self._direction(broker, client, session.responses)
        self._up.limit = session.bytes_in_a_turn  # until the first request has been seen
        session.watch_storing(self._heed_storing)

    def start(self) -> None:
        """Begin to move bytes."""
        self._up.update()
        self._down.update()

    def close(self, reason: CloseReason, error: Exception | None = None, *, reset: bool = False) -> None:
        """Close both sockets; with a reset where the other side should see one."""
        if self._closed:
            return
        self._closed = True
        for timer in (self._half_closed, self._muted, self._storing):
            if timer is not None:
                timer.cancel()
        self._held.forget(self)
        self._up.detach()
        self._down.detach()
        for side in (self._client, self._broker):
            if reset:
                close_with_reset(side)
            else:
                side.close()
        self._on_close(self, reason, error)
        # They refer back to this relay. Without them no cycle is left that would have to be found first, and
        # the memory of what was kept is free at once.
        self._refused = None
        self._session.close()
        del self._session, self._up, self._down

    def drain(self) -> None:
        """Take no further request; go on carrying the answers to those that were taken."""
        self._draining = True
        self._last_moved = self._loop.time()
        requests = self._session.requests
        self._up.limit = lambda: requests.due or 1
        self._up.supervised = self._down.supervised = True
        self._pause_as_needed()

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes read so far from the client and from the broker."""
        return self._up.bytes_read, self._down.bytes_read

    def is_drained(self, now: float) -> bool:
        """Say whether no answer is due any more.

        Args:
            now: The loop's time. An answer may be due or, since a Produce with acks=0, may never come: a
                connection that has been quiet for a while counts as drained then.
        """
        session = self._session
        if session.awaiting or session.due or session.responses.due or not self._down.flushed:
            return False
        return not session.in_flight or now - self._last_moved >= _QUIET_S

    # -- called by the directions, also where what they just did has closed it ------------------------

    def opposite(self, direction: Direction) -> Direction:
        """Return the other direction."""
        return self._down if direction is self._up else self._up

    def moved(self) -> None:
        """Look at what the session wants after bytes were moved."""
        if not self._closed and (answers := self._session.take_answers()):
            self._down.give(answers)
        if not self._closed:
            self._heed_session()

    def _heed_session(self) -> None:
        session = self._session
        if session.closing is not None:
            self._up.paused = True
            self._up.update()
            if self._down.flushed:
                self.close(CloseReason(session.closing))
            return
        if seconds := session.take_mute():
            self._mute(seconds)
        if self._draining:
            self._last_moved = self._loop.time()
        else:
            self._up.limit = session.bytes_in_a_turn if session.looks_at_headers else None
            self._down.limit = session.answer_bytes_in_a_turn if session.decides_later else None
        self._pause_as_needed()
        self._note_held()

    def backed_up(self) -> None:
        """Take note of bytes that wait for a slow reader."""
        if not self._closed:
            self._note_held()

    def _note_held(self) -> None:
        requests, up, down = self._session.requests, self._up, self._down
        held_bytes = self._session.held_bytes + up.held_bytes + down.held_bytes
        if not (up.flushed and down.flushed):
            held_bytes += self._buffer_bytes
        self._held.note(self, held_bytes, requests.frames if requests.held else None)

    def _pause_as_needed(self) -> None:
        # While draining, reading stops where a request ends, so that none is cut; a client that was paused in
        # the middle of one, for the answers due to it, goes on once they are there. Else, a client that does
        # not read its answers is not read from either.
        waits = not self._session.due if self._draining else not self._down.flushed
        self._up.paused = waits or self._muted is not None or self._session.congested
        self._up.update()

    def _mute(self, seconds: float) -> None:
        if self._muted is not None:
            self._muted.cancel()
        self._muted = self._loop.call_later(seconds, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self.moved()

    def _heed_storing(self) -> None:
        if self._closed:
            return
        if self._storing is not None:
            self._storing.cancel()
            self._storing = None
        if self._session.storing:
            self._down.withheld = True
            self._storing = self._loop.call_later(_STORED_S, self._answer_before_stored)
        else:
            self._down.release()

    def _answer_before_stored(self) -> None:
        self._storing = None
        self._session.storing_takes_too_long()
        self._down.release()

    def ended(self, direction: Direction) -> None:
        """One side has closed its half: the other has a while to close its own."""
        if self._closed:
            return
        if self._ended_first is None:
            self._ended_first = self._reason_of(
                direction, CloseReason.CLIENT_CLOSED, CloseReason.BROKER_CLOSED
            )
        if self._down.finished and (self._up.finished or self._refused is not None):
            self._close_as_ended()
        elif self._half_closed is None:
            self._close_within(_HALF_CLOSED_S)

    def _close_within(self, seconds: float) -> None:
        if self._half_closed is not None:
            self._half_closed.cancel()
        self._half_closed = self._loop.call_later(seconds, self._close_as_ended)

    def _close_as_ended(self) -> None:
        if self._ended_first is not None:
            self.close(self._ended_first, self._refused)

    def reset_by(self, direction: Direction, error: OSError) -> None:
        """The source of this direction is gone: its peer sees a reset too.

        Where it can't be understood, both see an end: OpenSSL has told it why.
        """
        if self._closed:  # by the other direction, in the same turn
            return
        if self._refused is not None:
            self._close_as_ended()
            return
        if isinstance(error, ssl.SSLError):
            reason = self._reason_of(direction, CloseReason.CLIENT_TLS_ERROR, CloseReason.BROKER_TLS_ERROR)
            self.close(reason, error)
            return
        reason = self._reason_of(direction, CloseReason.CLIENT_RESET, CloseReason.BROKER_RESET)
        self.close(reason, reset=True)

    def lose(self, direction: Direction, error: OSError) -> None:
        """The sink of this direction is gone."""
        if not self._closed:
            self.reset_by(self.opposite(direction), error)

    def refuse(self, direction: Direction, error: BrokenStreamError) -> None:
        """The source of this direction sent what can't be read on from.

        A broker answers the requests in front of such bytes and then closes. So it gets some of its own: its
        answers still go out, in order, and its end is the connection's.
        """
        if direction is self._down:
            self._down.give(error.before)
            self.close(CloseReason.BROKER_PROTOCOL_ERROR, error)
            return
        self._down.give(self._session.take_answers())
        if self._closed:
            return
        self._refused = error
        self._ended_first = CloseReason.CLIENT_PROTOCOL_ERROR
        self._up.give(error.before + END_OF_REQUESTS)
        if not self._closed:
            self._up.paused = True
            self._up.update()
            self._close_within(_REFUSED_S)

    def fail(self, error: Exception) -> None:
        """We made a mistake."""
        self.close(CloseReason.INTERNAL_ERROR, error)

    def close_for_held_bytes(self) -> None:
        """Close: all connections together keep too much."""
        self.close(CloseReason.HELD_BYTES)

    def close_for_request_timeout(self) -> None:
        """Close: a request takes too long."""
        self.close(CloseReason.REQUEST_TIMEOUT)

    def _direction(self, source: socket.socket, sink: socket.socket, rewriter: FrameRewriter) -> Direction:
        if isinstance(source, TlsSocket):
            return TlsDirection(self, self._loop, source, sink, rewriter, self._share)
        return Direction(self, self._loop, source, sink, rewriter, self._share)

    def _reason_of(self, direction: Direction, client: CloseReason, broker: CloseReason) -> CloseReason:
        return client if direction is self._up else broker
