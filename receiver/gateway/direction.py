"""One direction of a connection: what is read from one socket goes, as the session rewrites it, to the other.

Owns the flow of bytes and what waits for a slow reader. What an end, an error or an answer of ours means for
the connection is the relay's.

One call moves at most one buffer, and no more than the session can take in a turn of the event loop; see
:attr:`Direction.limit`.

It works on non-blocking sockets and the loop's direct callbacks rather than on asyncio transports. One
recv into a buffer that all connections share, one walk over it, one send out of the same buffer: nothing is
copied unless the other side can't take it all, and an idle connection owns no buffer. This is what holds
pass-through to a TCP proxy's cost (docs/benchmarks.md).
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final, Protocol

from receiver.gateway.event_loop import DirectEventLoop, Share
from receiver.wire.framing import BrokenStreamError, FrameRewriter

__all__ = ["BUFFER_BYTES", "Direction", "Ends"]

#: As much as is read at a time, and the most that waits for a slow reader.
BUFFER_BYTES: Final = 262_144

#: As little as is read at a time, for a reader that is slow for long.
_LEAST_BUFFER_BYTES: Final = 16_384

_buffer = bytearray(BUFFER_BYTES)  # one event loop, one thread: whoever reads has it until its callback ends
_view = memoryview(_buffer)


class Ends(Protocol):
    """Who is told by a direction of what it can't decide alone."""

    def opposite(self, direction: Direction) -> Direction:
        """Return the other direction."""

    def moved(self) -> None:
        """Bytes were moved that the session has rewritten, or that somebody waited for."""

    def backed_up(self) -> None:
        """Bytes have to wait because a sink does not take them."""

    def ended(self, direction: Direction) -> None:
        """The source of the direction has nothing more to say, or all that it said has been sent."""

    def reset_by(self, direction: Direction, error: OSError) -> None:
        """The source of the direction is gone, or can't be understood (TLS)."""

    def lose(self, direction: Direction, error: OSError) -> None:
        """The sink of the direction is gone, or can't be understood (TLS)."""

    def refuse(self, direction: Direction, error: BrokenStreamError) -> None:
        """The source of the direction sent what can't be read on from."""

    def fail(self, error: Exception) -> None:
        """We made a mistake."""


class Direction:
    """One direction: what is read from ``source`` goes, as the session rewrites it, to ``sink``.

    Attributes:
        bytes_read: Bytes that the source has said.
        ended: The source has nothing more to say.
        limit: Tells how many bytes may be read in one turn; None while it is a whole buffer.
        paused: Somebody wants the source not to be read from.
        supervised: The relay wants to know of every chunk, not just of those that the session rewrote.
        withheld: Nothing goes to the sink for now; see :meth:`release`.
    """

    __slots__ = (
        "_backlog",
        "_loop",
        "_passing",
        "_reading",
        "_recv_into",
        "_relay",
        "_rewriter",
        "_room",
        "_send",
        "_share",
        "_sink",
        "_source",
        "bytes_read",
        "ended",
        "limit",
        "paused",
        "supervised",
        "withheld",
    )

    def __init__(
        self,
        relay: Ends,
        loop: DirectEventLoop,
        source: socket.socket,
        sink: socket.socket,
        rewriter: FrameRewriter,
        share: Share,
    ) -> None:
        self._relay = relay
        self._loop = loop
        self._share = share
        self._source = source
        self._sink = sink
        self._rewriter = rewriter
        self._passing = rewriter.passing
        self._recv_into: Callable[[bytearray, int], int] = source.recv_into
        self._send = sink.send
        self._backlog: bytes | memoryview = b""
        self._reading = False
        self._room = BUFFER_BYTES
        self.bytes_read = 0
        self.ended = False
        self.limit: Callable[[], int] | None = None
        self.paused = False
        self.supervised = False
        self.withheld = False

    @property
    def finished(self) -> bool:
        """Whether the source has ended and all of it was sent."""
        return self.ended and not self._backlog

    @property
    def flushed(self) -> bool:
        """Whether the sink has taken everything so far."""
        return not self._backlog

    @property
    def held_bytes(self) -> int:
        """Memory that is kept until the sink takes it."""
        return len(self._backlog)

    def update(self) -> None:
        """Read from the source exactly while somebody can take what it says."""
        wanted = not (self.ended or self.paused or self._backlog)
        if wanted != self._reading:
            self._reading = wanted
            self._loop.set_direct_reader(
                self._source.fileno(), self.readable if wanted else None, self._share
            )

    def readable(self) -> bool:
        """Move what there is, at most one buffer; say whether there may be more."""
        room = self._room
        if self.limit is not None:
            room = min(room, self.limit())
        try:
            count = self._recv_into(_buffer, room)
        except BlockingIOError:
            return False
        except OSError as error:
            self._relay.reset_by(self, error)
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
        return count == room

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
        if self._backlog or self.withheld:
            self._backlog = bytes(self._backlog) + out
            self.update()
            return
        try:
            sent = self._send(out)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._relay.lose(self, error)
            return
        if sent == len(out):
            if self._room != BUFFER_BYTES:
                self._room *= 2
            return
        # Less is read ahead for a slow reader. Doubled with each read that goes out whole.
        self._room = max(self._room // 2, _LEAST_BUFFER_BYTES)
        self._backlog = bytes(out[sent:])
        self._loop.set_direct_writer(self._sink.fileno(), self._writable, self._share)
        self.update()
        self._relay.backed_up()

    def release(self) -> None:
        """Send on after nothing was to go to the sink, beginning with what has come meanwhile."""
        self.withheld = False
        if self._backlog:
            self._loop.set_direct_writer(self._sink.fileno(), self._writable, self._share)

    def _writable(self) -> bool:
        if self.withheld:
            self._loop.set_direct_writer(self._sink.fileno(), None)
            return False
        try:
            sent = self._send(self._backlog)
        except BlockingIOError:
            return False
        except OSError as error:
            self._relay.lose(self, error)
            return False
        self._backlog = memoryview(self._backlog)[sent:]
        if self._backlog:
            return False  # the system takes no more: it tells when it does (epoll(7), question 9)
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
        self._reading = False
        self.limit = None  # it is the session's, which is closed with the relay
        self.ended = True
