"""Messages over a Unix socket between two processes of the receiver.

Each message has its length in front, in four bytes. Sending never waits: what the socket does not
take is kept, up to a bound, and sent when there is room. A stream over its bound is closed, because
its other end does not read.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from itertools import islice
from struct import Struct
from typing import Final

import structlog

from receiver.link.messages import LinkError

#: The longest message: the largest push that the settings allow, and what is around it.
MAX_MESSAGE_BYTES: Final = 106_000_000

#: Bytes of one read; a turn of the event loop handles the messages of one read.
_READ_BYTES: Final = 65_536

#: Bytes that may wait for the other end.
_MAX_BACKLOG_BYTES: Final = 134_217_728

#: Why a stream has ended whose other end was closed, as at a stop.
CLOSED: Final = "the other end closed the link"

#: Parts of one write: a length and a message each.
_MAX_PARTS: Final = 128

_LENGTH = Struct(">I")

_log = structlog.get_logger("receiver.link")


class LinkStream:
    """One end of a link.

    Args:
        end: The socket, of type SOCK_STREAM; the stream owns it.
        set_reader: Sets or removes the callback of a readable socket, which returns whether there
            may be more.
        set_writer: The same for a writable socket.
        on_message: Called with each message; the view is valid during the call.
        on_end: Called once, with the reason, when the link has ended by itself.
    """

    def __init__(
        self,
        end: socket.socket,
        set_reader: Callable[[int, Callable[[], bool] | None], None],
        set_writer: Callable[[int, Callable[[], bool] | None], None],
        *,
        on_message: Callable[[memoryview], None],
        on_end: Callable[[str], None],
    ) -> None:
        end.setblocking(False)  # noqa: FBT003 - the socket's own signature
        self._socket = end
        self._set_reader = set_reader
        self._set_writer = set_writer
        self._on_message = on_message
        self._on_end = on_end
        self._buffer = bytearray(_READ_BYTES)
        self._received = 0
        self._backlog: deque[memoryview] = deque()
        self._corked = False
        self._writing = False
        self.backlog_bytes = 0
        self.closed = False
        set_reader(end.fileno(), self._readable)

    def send(self, message: bytes) -> None:
        """Send a message now, or when there is room; on a closed stream it is lost."""
        self.hold(message)
        if not self._corked and self._backlog and not self._writing:
            self._flush()

    def hold(self, message: bytes) -> None:
        """Keep a message until the next one is sent, or :meth:`flush` is called."""
        if self.closed:
            return
        self._backlog.append(memoryview(_LENGTH.pack(len(message))))
        if message:
            self._backlog.append(memoryview(message))  # not joined, because a push is long
        self.backlog_bytes += _LENGTH.size + len(message)
        if self.backlog_bytes > _MAX_BACKLOG_BYTES:
            self._end(f"{self.backlog_bytes} bytes wait for the other end")

    def flush(self) -> None:
        """Send what is held, up to the socket's room; the rest when there is room."""
        if self._backlog and not self._writing:
            self._flush()

    def close(self) -> None:
        """Close the stream; what waits is lost."""
        if self.closed:
            return
        self.closed = True
        fd = self._socket.fileno()
        self._set_reader(fd, None)
        self._set_writer(fd, None)
        self._socket.close()
        self._backlog.clear()

    def _end(self, reason: str) -> None:
        if not self.closed:
            self.close()
            self._on_end(reason)

    def _watch_writable(self) -> None:
        if not self._writing and not self.closed:
            self._writing = True
            self._set_writer(self._socket.fileno(), self._writable)

    def _readable(self) -> bool:
        room = len(self._buffer) - self._received
        try:
            count = self._socket.recv_into(memoryview(self._buffer)[self._received :], room)
        except BlockingIOError:
            return False
        except ConnectionError:
            self._end(CLOSED)
            return False
        except OSError as error:
            self._end(error.strerror or str(error))
            return False
        if not count:
            self._end(CLOSED)
            return False
        self._received += count
        # The answers to the messages of one read leave together.
        self._corked = True
        try:
            self._take_messages()
        except LinkError as error:
            self._end(str(error))
            return False
        except Exception:  # a bug must not have the same message handled for ever
            _log.exception("internal error, link closed")
            self._end("internal error")
            return False
        finally:
            self._corked = False
        if self._backlog and not self._writing:
            self._flush()
        return not self.closed and count == room

    def _take_messages(self) -> None:
        start = 0
        view = memoryview(self._buffer)
        needed = _READ_BYTES
        while self._received - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(view, start)
            if length > MAX_MESSAGE_BYTES:
                raise LinkError(f"a message announces {length} bytes, more than {MAX_MESSAGE_BYTES}")
            end = start + _LENGTH.size + length
            if end > self._received:
                needed = max(needed, end - start)
                break
            self._on_message(view[start + _LENGTH.size : end])
            if self.closed:
                return
            start = end
        if start == self._received and needed == len(self._buffer):
            self._received = 0
            return
        rest = bytes(view[start : self._received])
        if needed != len(self._buffer):  # room for a long message, or no longer
            self._buffer = bytearray(needed)
        self._buffer[: len(rest)] = rest
        self._received = len(rest)

    def _writable(self) -> bool:
        self._flush()
        return False

    def _flush(self) -> None:
        while self._backlog:
            packets = list(islice(self._backlog, _MAX_PARTS))
            try:
                sent = self._socket.sendmsg(packets)
            except BlockingIOError:
                break
            except ConnectionError:
                # The other end is closed. What it sent before is still to be read.
                self._backlog.clear()
                self.backlog_bytes = 0
                break
            except OSError as error:
                self._end(error.strerror or str(error))
                return
            self.backlog_bytes -= sent
            while sent:
                first = self._backlog[0]
                if sent < len(first):
                    self._backlog[0] = first[sent:]
                    sent = 0
                    break
                sent -= len(first)
                self._backlog.popleft()
        if self._backlog:
            self._watch_writable()
        elif self._writing:
            self._writing = False
            self._set_writer(self._socket.fileno(), None)
