"""Moves the bytes of one direction of a connection.

Owns the flow of bytes and the backlog for a slow reader. The relay decides what an end of stream,
an error or a local response means for the connection.

One call moves at most one buffer, and no more than the session can take in a turn of the event
loop; see :attr:`Direction.limit`.

A direction uses non-blocking sockets and direct callbacks of the event loop, not asyncio
transports. It does one recv into a buffer that all connections share, one walk over it, and one
send from the same buffer. Nothing is copied unless the sink can't take everything, and an idle
connection owns no buffer. Pass-through therefore costs about as much as a TCP proxy
(docs/results/benchmarks.md).
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from receiver.event_loop import DirectEventLoop, Share
from receiver.wire.framing import BrokenStreamError, FrameRewriter

if TYPE_CHECKING:
    from receiver.gateway.relay import Relay

__all__ = ["BUFFER_BYTES", "Direction"]

#: The most bytes of one read, and the most that wait for a slow reader.
BUFFER_BYTES: Final = 262_144

#: The read size for a sink that stays slow, or for bytes that are costly to pass.
_MIN_READ_BYTES: Final = 16_384

#: CPU seconds that passing a chunk may take before the client is charged for it.
_CHEAP_S: Final = 0.001

# All directions share one buffer. There is one thread, and a callback is done with it before it
# returns.
_buffer = bytearray(BUFFER_BYTES)
_view = memoryview(_buffer)


class Direction:
    """Reads from ``source``, has the session rewrite it, and sends it to ``sink``.

    Args:
        meters: Whether bytes that pass may be costly too, as where addresses are rewritten.

    Attributes:
        bytes_read: Bytes read from the source.
        ended: Whether the source has reached its end of stream.
        limit: Returns how many bytes one turn may read; None for a whole buffer.
        paused: Whether the relay wants no reads from the source.
        supervised: Whether the relay wants to hear of every chunk, not only of rewritten ones.
    """

    __slots__ = (
        "_backlog",
        "_full_bytes",
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
    )

    def __init__(
        self,
        relay: Relay,
        loop: DirectEventLoop,
        source: socket.socket,
        sink: socket.socket,
        rewriter: FrameRewriter,
        share: Share,
        *,
        meters: bool = False,
    ) -> None:
        self._relay = relay
        self._loop = loop
        self._share = share
        self._source = source
        self._sink = sink
        self._rewriter = rewriter
        self._passing = self._metered_passing if meters else rewriter.passing
        self._recv_into: Callable[[bytearray, int], int] = source.recv_into
        self._send = sink.send
        self._backlog: bytes | memoryview = b""
        self._full_bytes = 0
        self._reading = False
        self._room = BUFFER_BYTES
        self.bytes_read = 0
        self.ended = False
        self.limit: Callable[[], int] | None = None
        self.paused = False
        self.supervised = False

    @property
    def finished(self) -> bool:
        """Whether the source has ended and the sink has taken all its bytes."""
        return self.ended and not self._backlog

    @property
    def flushed(self) -> bool:
        """Whether the sink has taken everything so far."""
        return not self._backlog

    @property
    def held_bytes(self) -> int:
        """Bytes that wait for the sink, with the kernel's buffers that are full meanwhile."""
        return len(self._backlog) + self._full_bytes if self._backlog else 0

    def update(self) -> None:
        """Start or stop reading, as the flags and the backlog demand."""
        wanted = not (self.ended or self.paused or self._backlog)
        if wanted != self._reading:
            self._reading = wanted
            self._loop.set_direct_reader(
                self._source.fileno(), self.readable if wanted else None, self._share
            )

    def readable(self) -> bool:
        """Move at most one buffer; return whether there may be more."""
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

    def _metered_passing(self, chunk: memoryview) -> int:
        """Pass a chunk; charge the client if that is costly, and read less at a time then."""
        relay = self._relay
        started = relay.cpu()
        passed = self._rewriter.passing(chunk)
        used_s = relay.cpu() - started
        if used_s > _CHEAP_S:
            relay.spent(used_s)
            self._room = max(self._room // 2, _MIN_READ_BYTES)
        return passed

    def _rewrite(self, chunk: memoryview, passed: int) -> None:
        relay = self._relay
        started = relay.cpu()
        try:
            out = self._rewriter.rewrite(chunk, passed)
        except BrokenStreamError as error:
            relay.charge(started)
            relay.refuse(self, error)
            return
        except Exception as error:  # a bug must end this connection only
            relay.fail(error)
            return
        relay.charge(started)
        if out:
            self.give(out)
        relay.moved()

    def give(self, out: memoryview | bytes) -> None:
        """Send to the sink; pause the source while bytes are left over."""
        if self._backlog:
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
        # Read less ahead for a slow sink. Each read that the sink takes whole doubles the size
        # again.
        self._room = max(self._room // 2, _MIN_READ_BYTES)
        self._backlog = bytes(out[sent:])
        # The source sends on while it is not read.
        self._full_bytes = _buffer_size(self._sink, socket.SO_SNDBUF) + _buffer_size(
            self._source, socket.SO_RCVBUF
        )
        self._loop.set_direct_writer(self._sink.fileno(), self._writable, self._share)
        self.update()
        self._relay.backed_up()

    def _writable(self) -> bool:
        try:
            sent = self._send(self._backlog)
        except BlockingIOError:
            return False
        except OSError as error:
            self._relay.lose(self, error)
            return False
        self._backlog = memoryview(self._backlog)[sent:]
        if self._backlog:
            return False  # a short write: epoll gives an event when there is room (epoll(7), question 9)
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
        except OSError:  # the sink is gone already; the other direction notices that
            return

    def detach(self) -> None:
        """Stop watching both sockets."""
        self._loop.set_direct_reader(self._source.fileno(), None)
        self._loop.set_direct_writer(self._sink.fileno(), None)
        self._backlog = b""
        self._reading = False
        self.limit = None  # it refers to the session, which the relay closes
        self.ended = True


def _buffer_size(side: socket.socket, option: int) -> int:
    """Return the bytes that a buffer of the kernel may take. Linux doubles what it is asked for."""
    try:
        return side.getsockopt(socket.SOL_SOCKET, option)
    except OSError:  # the socket is gone already; the next read or write notices that
        return 0
