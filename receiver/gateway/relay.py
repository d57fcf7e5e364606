"""The relay: moves the bytes of one connection between a client's socket and the broker's.

Owns flow control, half-close and the end of a connection; what the bytes become is the session's.

It works on non-blocking sockets and the loop's direct callbacks rather than on asyncio transports. One
recv into a buffer that all connections share, one walk over it, one send out of the same buffer: nothing is
copied unless the other side can't take it all, and an idle connection owns no buffer. This is what holds
pass-through to a TCP proxy's cost (docs/benchmarks.md).

Back-pressure: what one side can't take is kept (at most one buffer), and the other side is not read from
until it is gone. So a slow reader slows its peer and nobody else.
"""

from __future__ import annotations

import socket
import struct
from asyncio import TimerHandle
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from receiver.gateway.event_loop import DirectEventLoop
from receiver.session.session import Session
from receiver.telemetry.connection import Connection
from receiver.wire.framing import END_OF_REQUESTS, BrokenStreamError, FrameRewriter

__all__ = ["BUFFER_BYTES", "CloseReason", "Relay"]

#: As much as is read at a time. Above 256 KiB no gain was measured.
BUFFER_BYTES: Final = 262_144

#: How long one direction may stay open after the other has ended, in seconds. A Kafka client or broker that
#: closes does so in both directions; only a peer that is gone for good leaves a connection half-open.
_HALF_CLOSED_S: Final = 60.0

#: How long a broker may take to answer what came before malformed bytes, in seconds.
_REFUSED_S: Final = 5.0

#: Makes close() send a reset, as the other side got one.
_RESET = struct.pack("ii", 1, 0)

_buffer = bytearray(BUFFER_BYTES)  # one event loop, one thread: whoever reads has it until its callback ends
_view = memoryview(_buffer)


class CloseReason(StrEnum):
    """Why a connection ended; a label of the metrics and a word of the log."""

    CLIENT_CLOSED = "client_closed"
    BROKER_CLOSED = "broker_closed"
    CLIENT_RESET = "client_reset"
    BROKER_RESET = "broker_reset"
    CLIENT_PROTOCOL_ERROR = "client_protocol_error"
    BROKER_PROTOCOL_ERROR = "broker_protocol_error"
    INVALID_REQUEST = "invalid_request"
    DRAINED = "drained"
    INTERNAL_ERROR = "internal_error"


class _Direction:
    """One direction: what is read from ``source`` goes, as the session rewrites it, to ``sink``.

    Attributes:
        bytes_read: Bytes that the source has said.
        ended: The source has nothing more to say.
        paused: Somebody wants the source not to be read from.
        supervised: The relay wants to know of every chunk, not just of those that the session rewrote.
    """

    __slots__ = (
        "_backlog",
        "_loop",
        "_passing",
        "_reading",
        "_recv_into",
        "_relay",
        "_rewriter",
        "_send",
        "_sink",
        "_source",
        "bytes_read",
        "ended",
        "paused",
        "supervised",
    )

    def __init__(
        self,
        relay: Relay,
        loop: DirectEventLoop,
        source: socket.socket,
        sink: socket.socket,
        rewriter: FrameRewriter,
    ) -> None:
        self._relay = relay
        self._loop = loop
        self._source = source
        self._sink = sink
        self._rewriter = rewriter
        self._passing = rewriter.passing
        self._recv_into: Callable[[bytearray], int] = source.recv_into
        self._send = sink.send
        self._backlog: bytes | memoryview = b""
        self._reading = False
        self.bytes_read = 0
        self.ended = False
        self.paused = False
        self.supervised = False

    @property
    def finished(self) -> bool:
        """Whether the source has ended and all of it was sent."""
        return self.ended and not self._backlog

    @property
    def flushed(self) -> bool:
        """Whether the sink has taken everything so far."""
        return not self._backlog

    def update(self) -> None:
        """Read from the source exactly while somebody can take what it says."""
        wanted = not (self.ended or self.paused or self._backlog)
        if wanted != self._reading:
            self._reading = wanted
            self._loop.set_direct_reader(self._source.fileno(), self.readable if wanted else None)

    def readable(self) -> bool:
        """Move what there is, at most one buffer; say whether there may be more."""
        try:
            count = self._recv_into(_buffer)
        except BlockingIOError:
            return False
        except OSError:
            self._relay.reset_by(self)
            return False
        if not count:
            self._end()
            return False
        self.bytes_read += count
        chunk = _view[:count]
        passed = self._passing(chunk)
        if passed == count:
            self.give(chunk)
        else:
            self._rewrite(chunk, passed)
        if self.supervised:
            self._relay.moved()
            return True
        return count == BUFFER_BYTES

    def _rewrite(self, chunk: memoryview, passed: int) -> None:
        try:
            out = self._rewriter.rewrite(chunk, passed)
        except BrokenStreamError as error:
            self._relay.refuse(self, error)
            return
        except Exception as error:  # our own mistake must end this connection, not the loop's callback
            self._relay.fail(error)
            return
        if out:
            self.give(out)
        self._relay.moved()

    def give(self, out: memoryview | bytes) -> None:
        """Send to the sink; what it can't take now is kept, and the source has to wait for it."""
        if self._backlog:
            self._backlog = bytes(self._backlog) + out
            return
        try:
            sent = self._send(out)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._relay.reset_by(self._relay.opposite(self))
            return
        if sent != len(out):
            self._backlog = bytes(out[sent:])
            self._loop.set_direct_writer(self._sink.fileno(), self._writable)
            self.update()

    def read_at_most(self, limit: Callable[[], int]) -> None:
        """From here on, read no more at a time than ``limit`` says, and tell the relay of every chunk."""

        def recv_into(_: bytearray) -> int:
            return self._source.recv_into(_view[: limit()])

        self._recv_into = recv_into
        self.supervised = True

    def _writable(self) -> bool:
        try:
            sent = self._send(self._backlog)
        except BlockingIOError:
            return False
        except OSError:
            self._relay.reset_by(self._relay.opposite(self))
            return False
        self._backlog = memoryview(self._backlog)[sent:]
        if self._backlog:
            return True
        self._backlog = b""
        self._loop.set_direct_writer(self._sink.fileno(), None)
        self.update()
        if self.ended:
            self._shut_down()
            self._relay.ended(self)
        else:
            self._relay.moved()
        return False

    def _end(self) -> None:
        self.ended = True
        self.update()
        if not self._backlog:
            self._shut_down()
        self._relay.ended(self)

    def _shut_down(self) -> None:
        try:
            self._sink.shutdown(socket.SHUT_WR)
        except OSError:  # the sink is gone already, which its own direction will notice
            return

    def detach(self) -> None:
        """Take no more notice of either socket."""
        self._loop.set_direct_reader(self._source.fileno(), None)
        self._loop.set_direct_writer(self._sink.fileno(), None)
        self._backlog = b""
        self.ended = True


class Relay:
    """Both directions of a connection, from the moment that the broker's side is connected.

    Args:
        loop: The event loop.
        connection: The connection's entry in the registry.
        client: The client's socket, non-blocking; owned from here on.
        broker: The broker's socket, non-blocking; owned from here on.
        session: What rewrites the bytes.
        on_close: Called once, when both sockets are closed, with the reason and the error behind it.

    Attributes:
        connection: The connection's entry in the registry.
    """

    __slots__ = (
        "_broker",
        "_client",
        "_closed",
        "_down",
        "_draining",
        "_ended_first",
        "_half_closed",
        "_last_moved",
        "_loop",
        "_on_close",
        "_refused",
        "_session",
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
        on_close: Callable[[Relay, CloseReason, Exception | None], None],
    ) -> None:
        self._loop = loop
        self._client = client
        self._broker = broker
        self._session = session
        self._on_close = on_close
        self._half_closed: TimerHandle | None = None
        self._ended_first: CloseReason | None = None
        self._refused: BrokenStreamError | None = None
        self._closed = False
        self._draining = False
        self._last_moved = 0.0
        self.connection = connection
        self._up = _Direction(self, loop, client, broker, session.requests)
        self._down = _Direction(self, loop, broker, client, session.responses)

    def start(self) -> None:
        """Begin to move bytes."""
        self._up.update()
        self._down.update()

    def close(self, reason: CloseReason, error: Exception | None = None, *, reset: bool = False) -> None:
        """Close both sockets; with a reset where the other side should see one."""
        if self._closed:
            return
        self._closed = True
        if self._half_closed is not None:
            self._half_closed.cancel()
        self._up.detach()
        self._down.detach()
        for side in (self._client, self._broker):
            if reset:
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            side.close()
        self._on_close(self, reason, error)

    def drain(self) -> None:
        """Take no further request; go on carrying the answers to those that were taken."""
        self._draining = True
        self._last_moved = self._loop.time()
        self._up.read_at_most(lambda: self._session.due or 1)
        self._down.supervised = True
        self._pause_between_requests()

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes read so far from the client and from the broker."""
        return self._up.bytes_read, self._down.bytes_read

    @property
    def quiet_since(self) -> float | None:
        """While draining: since when nothing moved, in loop time; None while an answer is known to be due."""
        if self._session.awaiting or self._session.due or not self._down.flushed:
            return None
        return self._last_moved

    # -- called by the directions ---------------------------------------------------------------------

    def opposite(self, direction: _Direction) -> _Direction:
        """Return the other direction."""
        return self._down if direction is self._up else self._up

    def moved(self) -> None:
        """Look at what the session wants after bytes were moved."""
        session = self._session
        if answers := session.take_answers():
            self._down.give(answers)
        if session.closing:
            self._up.paused = True
            self._up.update()
            if self._down.flushed:
                self.close(CloseReason.INVALID_REQUEST)
        elif self._draining:
            self._last_moved = self._loop.time()
            self._pause_between_requests()
        else:
            # A client that doesn't read its answers is not read from either.
            self._up.paused = session.congested or not self._down.flushed
            self._up.update()

    def ended(self, direction: _Direction) -> None:
        """One side has closed its half: the other has a while to close its own."""
        if self._ended_first is None:
            self._ended_first = self._reason_of(
                direction, CloseReason.CLIENT_CLOSED, CloseReason.BROKER_CLOSED
            )
        if self._down.finished and (self._up.finished or self._refused is not None):
            self._close_as_ended()
        elif self._half_closed is None:
            self._half_closed = self._loop.call_later(_HALF_CLOSED_S, self._close_as_ended)

    def _close_as_ended(self) -> None:
        if self._ended_first is not None:
            self.close(self._ended_first, self._refused)

    def reset_by(self, direction: _Direction) -> None:
        """The source of this direction is gone: its peer sees a reset too."""
        if self._refused is not None:
            self._close_as_ended()
            return
        reason = self._reason_of(direction, CloseReason.CLIENT_RESET, CloseReason.BROKER_RESET)
        self.close(reason, reset=True)

    def refuse(self, direction: _Direction, error: BrokenStreamError) -> None:
        """The source of this direction sent what can't be read on from.

        A broker answers the requests in front of such bytes and then closes. So it gets some of its own: its
        answers still go out, in order, and its end is the connection's.
        """
        if direction is self._down:
            self._down.give(error.before)
            self.close(CloseReason.BROKER_PROTOCOL_ERROR, error)
            return
        self._down.give(self._session.take_answers())
        self._refused = error
        self._ended_first = CloseReason.CLIENT_PROTOCOL_ERROR
        self._up.give(error.before + END_OF_REQUESTS)
        if not self._closed:
            self._up.paused = True
            self._up.update()
            self._half_closed = self._loop.call_later(_REFUSED_S, self._close_as_ended)

    def fail(self, error: Exception) -> None:
        """We made a mistake."""
        self.close(CloseReason.INTERNAL_ERROR, error)

    def _reason_of(self, direction: _Direction, client: CloseReason, broker: CloseReason) -> CloseReason:
        return client if direction is self._up else broker

    def _pause_between_requests(self) -> None:
        """Stop reading from the client where a request ends, so that none is cut.

        A client that was paused in the middle of one, for the answers due to it, goes on once they are there.
        """
        session = self._session
        self._up.paused = not session.due or session.congested
        self._up.update()
