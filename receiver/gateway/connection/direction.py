"""Moves the bytes of one direction of a connection.

Owns the flow of bytes and the backlog for a slow reader. The connection decides what an end of
stream, an error or a local response means.

One call moves at most one buffer, and no more than the session can take in a turn of the event
loop; see :attr:`Direction.limit`.

A direction uses non-blocking sockets and direct callbacks of the event loop, not asyncio
transports. It does one recv into a buffer that all connections share, one walk over it, and one
send from the same buffer. Nothing is copied unless the sink can't take everything, and an idle
connection owns no buffer. Pass-through therefore costs about as much as a TCP proxy
(benchmarks/results.md).

The pump in ``receiver/native/_speedups.c`` does the same for what most chunks are: bytes whose
frames all pass. It calls up for everything else: a limit, metering, a watched frame, an end, an
error, a short send. Without it, :meth:`Direction._move` does it all.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from receiver.event_loop import DirectEventLoop
from receiver.gateway.connection.system_buffers import bound_received, bytes_to_send
from receiver.gateway.connection.tls_socket import TlsSocket, TlsState, write_error
from receiver.traffic.table import BYTES_IN, BYTES_OUT, LAST_KEY, REQUESTS, RESPONSES, arrived
from receiver.turns import Share
from receiver.wire.frame_rewriter import BrokenStreamError, FrameRewriter
from receiver.wire.walk import Walk, compiled

#: The most bytes of one read, and the most that wait for a slow reader.
BUFFER_BYTES: Final = 262_144

#: The read size for a sink that stays slow.
_MIN_READ_BYTES: Final = 16_384

#: Bytes to read at a time behind a frame, where frames may be costly to pass: as many as usual, and
#: the least. Two KiB are at most 170 requests or responses, which take half a millisecond.
_COSTLY_BYTES: Final = 2_048
_MIN_COSTLY_BYTES: Final = 512

#: CPU seconds that passing a chunk may take before the client is charged for it, and reads get
#: smaller.
_CHEAP_S: Final = 0.001

# All directions share one buffer. There is one thread, and a callback is done with it before it
# returns.
_buffer = bytearray(BUFFER_BYTES)
_view = memoryview(_buffer)


class Connection(Protocol):
    """What a direction tells its connection, which may close because of it."""

    def cpu(self) -> float:
        """Return the seconds of CPU time that the thread has used."""

    def charge(self, started: float) -> None:
        """Charge the client for CPU time since ``started``, if its session worked for it."""

    def spent(self, seconds: float) -> None:
        """Charge the client for seconds of CPU time."""

    def passed(self) -> None:
        """Act on what bytes that passed have changed, where frames may be costly to pass."""

    def moved(self) -> None:
        """Act on the session's effects and state after bytes were moved."""

    def most_buffered(self) -> int:
        """Return the bytes that a buffer of the system may take for a slow reader now."""

    def backed_up(self) -> None:
        """Count the bytes that wait for a slow reader."""

    def ended(self, direction: Direction) -> None:
        """Handle the end of a source whose bytes the sink has taken."""

    def refuse(self, direction: Direction, error: BrokenStreamError) -> None:
        """Handle malformed bytes from a source."""

    def source_failed(self, direction: Direction, error: OSError) -> None:
        """Handle a failed source; nothing more comes from it."""

    def sink_failed(self, direction: Direction, error: OSError) -> None:
        """Handle a failed sink, which may still be read from."""

    def fail(self, error: Exception) -> None:
        """Close after an unexpected exception in our code."""


class PythonPump:
    """What the compiled pump and this module share of a direction."""

    __slots__ = (
        "_backlog",
        "_costly_bytes",
        "_from_client",
        "_meters",
        "_reading",
        "_room",
        "_sink_fd",
        "_sink_tls",
        "_source_fd",
        "_source_tls",
        "_walk",
        "_words",
        "bytes_read",
        "ended",
        "limit",
        "paused",
        "shuts_down",
        "supervised",
    )

    _backlog: bytes | memoryview
    _costly_bytes: int
    _from_client: bool
    _meters: bool
    _reading: bool
    _room: int
    _sink_fd: int  # negative: Python moves the bytes
    _sink_tls: TlsState | None
    _source_fd: int
    _source_tls: TlsState | None
    _walk: Walk | None
    _words: memoryview[int]
    bytes_read: int
    ended: bool
    limit: Callable[[], int] | None
    paused: bool
    shuts_down: bool
    supervised: bool


if TYPE_CHECKING or compiled is None:  # noqa: SIM108 -- mypy wants the class and no expression
    Pump = PythonPump
else:
    Pump = compiled.Pump


class Direction(Pump):
    """Reads from ``source``, has the session rewrite it, and sends it to ``sink``.

    Args:
        words: The connection's counters (:mod:`receiver.traffic.table`).
        from_client: Whether the source is the client.
        meters: Whether frames that pass may be costly too, as where addresses are rewritten.

    Attributes:
        bytes_read: Bytes read from the source.
        ended: Whether the source has reached its end of stream.
        limit: Returns how many bytes one turn may read; None for a whole buffer.
        paused: Whether the connection wants no reads from the source.
        shuts_down: Whether the sink sees the end of the source.
        supervised: Whether the connection wants to hear of every chunk, not only of rewritten ones.
    """

    __slots__ = (
        "_connection",
        "_full_bytes",
        "_loop",
        "_passing",
        "_recv_into",
        "_rewriter",
        "_send",
        "_share",
        "_sink",
        "_source",
    )

    def __init__(
        self,
        connection: Connection,
        loop: DirectEventLoop,
        source: socket.socket,
        sink: socket.socket,
        rewriter: FrameRewriter,
        share: Share,
        words: memoryview[int],
        *,
        from_client: bool,
        meters: bool = False,
    ) -> None:
        self._connection = connection
        self._words = words
        self._from_client = from_client
        self._loop = loop
        self._share = share
        self._source = source
        self._sink = sink
        self._rewriter = rewriter
        self._meters = meters
        self._passing = rewriter.passing
        # The compiled walk, where the rewriter has none of its own, or one that C knows.
        self._walk = rewriter if meters or type(rewriter).passing is Walk.passing else None
        self._source_fd, self._source_tls = _descriptor(source)
        self._sink_fd, self._sink_tls = _descriptor(sink)
        self._recv_into: Callable[[bytearray, int], int] = source.recv_into
        self._send = sink.send
        self._backlog = b""
        self._full_bytes = 0
        self._reading = False
        self._room = BUFFER_BYTES
        self._costly_bytes = _COSTLY_BYTES
        self.bytes_read = 0
        self.ended = False
        self.limit = None
        self.paused = False
        self.shuts_down = True
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

    def _move(self) -> bool:
        """Move at most one buffer; return whether there may be more."""
        room, meters = self._room, self._meters
        if meters:
            room = min(room, self._rewriter.idle_bytes + self._costly_bytes)
        if self.limit is not None:
            room = min(room, self.limit())
        try:
            count = self._recv_into(_buffer, room)
        except BlockingIOError:
            return False
        except OSError as error:
            self._connection.source_failed(self, error)
            return False
        if not count:
            self._end()
            return False
        self.bytes_read += count
        arrived(self._words)
        if self._from_client:
            self._words[BYTES_IN] += count
        chunk = _view[:count]
        started = self._connection.cpu() if meters else 0.0
        passed = self._passing(chunk)
        self._count_frames()
        if passed != count:
            self._rewrite(chunk, passed, started)
        else:
            if meters:
                self._meter(started)
            self.give(chunk)
        if self.supervised:
            self._connection.moved()
            return True
        if meters:
            self._connection.passed()
        return count == room

    if TYPE_CHECKING or compiled is None:
        readable = _move

    def _count_frames(self) -> None:
        if self._from_client:
            self._words[REQUESTS] = self._rewriter.frames
            self._words[LAST_KEY] = self._rewriter.last_key
        else:
            self._words[RESPONSES] = self._rewriter.frames

    def _moved(self) -> None:
        self._connection.moved()

    def _passed(self) -> None:
        self._connection.passed()

    def _source_failed(self, error: OSError) -> None:
        self._connection.source_failed(self, error)

    def _sink_failed(self, error: OSError) -> None:
        self._connection.sink_failed(self, error)

    def _write_failed(self, failure: Exception) -> bool:
        """Report a failed sink; return whether it failed, and does not only wait."""
        error = write_error(failure)
        if error is not None:
            self._connection.sink_failed(self, error)
        return error is not None

    def _meter(self, started: float) -> bool:
        """Charge the client if its bytes were costly, and read less at a time then.

        Returns:
            Whether it was charged.
        """
        connection = self._connection
        used_s = connection.cpu() - started
        if used_s > _CHEAP_S:
            connection.spent(used_s)
            self._costly_bytes = max(int(self._costly_bytes * _CHEAP_S / used_s), _MIN_COSTLY_BYTES)
            return True
        self._costly_bytes = min(2 * self._costly_bytes, _COSTLY_BYTES)
        return False

    def _charge(self, started: float) -> None:
        if not (self._meters and self._meter(started)):
            self._connection.charge(started)

    def _rewrite(self, chunk: memoryview, passed: int, started: float = 0.0) -> None:
        connection = self._connection
        started = started or connection.cpu()
        try:
            out = self._rewriter.rewrite(chunk, passed)
        except BrokenStreamError as error:
            self._count_frames()
            self._charge(started)
            connection.refuse(self, error)
            return
        except Exception as error:  # a bug must end this connection only
            connection.fail(error)
            return
        self._count_frames()
        self._charge(started)
        if out:
            self.give(out)
        connection.moved()

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
            self._connection.sink_failed(self, error)
            return
        if not self._from_client:
            self._words[BYTES_OUT] += sent
        if sent == len(out):
            if self._room != BUFFER_BYTES:
                self._room *= 2
            return
        self._keep(out, sent)

    def _keep(self, out: memoryview | bytes, sent: int) -> None:
        """Keep what the sink has not taken."""
        # Read less ahead for a slow sink. Each read that the sink takes whole doubles the size
        # again.
        self._room = max(self._room // 2, _MIN_READ_BYTES)
        self._backlog = bytes(out[sent:])
        # The source sends on while it is not read.
        self._full_bytes = bytes_to_send(self._sink) + bound_received(
            self._source, self._connection.most_buffered()
        )
        self._loop.set_direct_writer(self._sink.fileno(), self._writable, self._share)
        self.update()
        self._connection.backed_up()

    def _writable(self) -> bool:
        try:
            sent = self._send(self._backlog)
        except BlockingIOError:
            return False
        except OSError as error:
            self._connection.sink_failed(self, error)
            return False
        if not self._from_client:
            arrived(self._words)
            self._words[BYTES_OUT] += sent
        self._backlog = memoryview(self._backlog)[sent:]
        if self._backlog:
            return False  # a short write: epoll gives an event when there is room (epoll(7), question 9)
        self._backlog = b""
        self._loop.set_direct_writer(self._sink.fileno(), None)
        self.update()
        if self.ended:
            self._shut_down()
            self._connection.ended(self)
        else:
            self._connection.moved()
        return False

    def end_source(self) -> None:
        """Take the source for ended; what it has sent still goes to the sink."""
        if not self.ended:
            self._end()

    def drop(self) -> None:
        """Forget the bytes that wait for a sink which is gone."""
        self._loop.set_direct_writer(self._sink.fileno(), None)
        self._backlog = b""

    def _end(self) -> None:
        self.ended = True
        self.update()
        if not self._backlog:
            self._shut_down()
        self._connection.ended(self)

    def _shut_down(self) -> None:
        if not self.shuts_down:
            return
        try:
            self._sink.shutdown(socket.SHUT_WR)
        except OSError:  # the sink is gone already; the other direction notices that
            return

    def detach(self) -> None:
        """Stop watching both sockets."""
        self._loop.set_direct_reader(self._source.fileno(), None)
        self._loop.set_direct_writer(self._sink.fileno(), None)
        self._backlog = b""
        self._source_fd = self._sink_fd = -1  # other sockets will have these numbers
        self._reading = False
        self.limit = None  # it refers to the session, which the connection closes
        self.ended = True


def _descriptor(side: socket.socket) -> tuple[int, TlsState | None]:
    """Return the descriptor of a socket that C can move bytes of, and its TLS."""
    if isinstance(side, TlsSocket):
        return side.fileno(), side.state
    return side.fileno() if type(side) is socket.socket else -1, None
