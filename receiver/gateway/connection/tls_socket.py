"""TLS connection with the interface of a plain non-blocking socket.

Owns the difference between the two: a wish of OpenSSL for bytes becomes :class:`BlockingIOError`,
the peer's end of stream an empty read, and our own end a close_notify. It must not know what the
bytes mean.

**Why OpenSSL does not read from the socket itself.** ``SSL_read`` returns only when it has
application data or when there is nothing left to read. A KeyUpdate (RFC 8446, section 4.6.3) costs
tens of microseconds and brings no data, so a peer that sends only KeyUpdates could keep
``SSL_read`` busy without end. Here OpenSSL gets one record at a time. One call handles a bounded
number of records, and each record without data is counted.

The compiled pump (:mod:`receiver.gateway.connection.direction`) reads and sends as
:meth:`TlsSocket.recv_into` and :meth:`TlsSocket.send` do, on the same :class:`TlsState`.

A peer that closes its socket without close_notify has ended its stream too. Kafka's frames have
lengths, so their reader notices a truncated stream.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import time
from enum import Enum
from typing import TYPE_CHECKING, Final, cast

from receiver.tls import ServerConnection
from receiver.wire.walk import compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer, WriteableBuffer

#: Records that one read, or one step of a handshake, gives to OpenSSL. Sixteen full records fill
#: the connection's buffer. Records of a few bytes cost two microseconds each.
MAX_RECORDS_IN_A_READ: Final = 64

#: Records without application data that a peer may send after the handshake before the connection
#: is closed, and the seconds after which one of them no longer counts. Java's TLS sends a KeyUpdate
#: every 128 GiB, and a server sends two session tickets. Go's TLS gives up after 16 such records in
#: a row.
MAX_RECORDS_WITHOUT_DATA: Final = 32
_FORGIVEN_AFTER_S: Final = 60.0

#: Plaintext bytes that are encrypted before the ciphertext is sent.
_CHUNK_BYTES: Final = 65_536

#: A record's type, version and length (RFC 8446, section 5.1).
_RECORD_HEADER_BYTES: Final = 5
#: The content types of records: change_cipher_spec to application_data.
_FIRST_TYPE, _LAST_TYPE = 20, 23
#: The longest record of any version (TLS 1.2: RFC 5246, section 6.2.3).
_MAX_RECORD_BYTES: Final = _RECORD_HEADER_BYTES + 16_384 + 2_048

#: The exceptions after a reset; OpenSSL does not keep the system's error.
_RESET = (ssl.SSLEOFError, ssl.SSLSyscallError)

#: All connections share one buffer. There is one thread, and a call is done with it before it
#: returns. It holds four full records, and the start of a record from an earlier call.
_buffer = bytearray(4 * _MAX_RECORD_BYTES + _MAX_RECORD_BYTES)
_view = memoryview(_buffer)
_NOTHING = memoryview(b"")

_receive = socket.socket.recv_into
_send = socket.socket.send


class Missing(Enum):
    """What a handshake waits for."""

    BYTES = "bytes"
    ROOM = "room"
    TURN = "turn"


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class PythonTlsState:
    """What a TLS connection holds between two calls.

    It does not refer to the socket, so that both are freed at once.

    Attributes:
        read: Reads plaintext (``SSLObject.read``).
        write: Encrypts plaintext (``SSLObject.write``).
        pending: Returns the plaintext bytes that OpenSSL holds (``SSLObject.pending``).
        feed: Gives ciphertext to OpenSSL (``MemoryBIO.write``).
        take: Takes ciphertext from OpenSSL (``MemoryBIO.read``).
        ciphertext: Received, but not given to OpenSSL yet.
        unsent: Ciphertext that the kernel has not taken yet.
        error: The error for the next read.
        encrypted: How many bytes of the next data to send are in ``unsent`` already.
        drained: Whether the kernel had no more bytes in this call.
        more: Whether there are bytes for which epoll gives no event.
        ended: Whether the peer has ended its stream.
        rest: Whether OpenSSL may hold plaintext, because the last read had no room for it.
    """

    __slots__ = (
        "ciphertext",
        "drained",
        "encrypted",
        "ended",
        "error",
        "feed",
        "more",
        "pending",
        "read",
        "rest",
        "take",
        "unsent",
        "write",
    )

    read: Callable[[int, memoryview], int]
    write: Callable[[memoryview], int]
    pending: Callable[[], int]
    feed: Callable[[memoryview], int]
    take: Callable[[], bytes]
    ciphertext: memoryview
    unsent: memoryview | bytes
    error: OSError | None
    encrypted: int
    drained: bool
    more: bool
    ended: bool
    rest: bool


if TYPE_CHECKING or compiled is None:  # noqa: SIM108 -- mypy wants the class and no expression
    TlsState = PythonTlsState
else:
    TlsState = compiled.TlsState


class TlsSocket(socket.socket):
    """A non-blocking TLS connection; made by :func:`wrap`.

    A read goes across record bounds, because the socket is polled edge-triggered: bytes that stay
    in memory give no further event. :attr:`has_unread` shows that some had to stay.

    Args:
        plain: The socket; this object takes over its descriptor.
        server_name: On the client side, the name that the peer's certificate must have.

    Attributes:
        state: What it holds between two calls.
    """

    def __init__(
        self, context: ssl.SSLContext, plain: socket.socket, *, server_side: bool, server_name: str | None
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_name
        )
        super().__init__(plain.family, plain.type, plain.proto, fileno=plain.detach())
        self.setblocking(False)  # noqa: FBT003 - the socket's own signature
        self._records_without_data = 0
        self._forgiven_at = 0.0
        self._close_notify_sent = False
        state = self.state = TlsState()
        # Without buffer it would return bytes.
        state.read = cast("Callable[[int, memoryview], int]", self._tls.read)
        state.write, state.pending = self._tls.write, self._tls.pending
        state.feed, state.take = self._incoming.write, self._outgoing.read
        state.ciphertext, state.unsent, state.error, state.encrypted = _NOTHING, b"", None, 0
        state.drained = state.more = state.ended = state.rest = False

    @property
    def held_bytes(self) -> int:
        """Ciphertext in memory, received or to be sent, in bytes."""
        return len(self.state.ciphertext) + len(self.state.unsent)

    @property
    def has_unread(self) -> bool:
        """Whether a read would return something for which epoll gives no event."""
        state = self.state
        return state.more or state.ended or state.error is not None

    @property
    def asked_name(self) -> str:
        """The host name that the client asked for (SNI), in lower case; empty: none."""
        return self._tls.asked_name if isinstance(self._tls, ServerConnection) else ""

    @property
    def negotiated(self) -> tuple[str | None, str | None]:
        """TLS version and cipher, in OpenSSL's words; None before the handshake."""
        cipher = self._tls.cipher()
        return self._tls.version(), None if cipher is None else cipher[0]

    def certificate(self) -> bytes | None:
        """Return the peer's certificate in DER; None if it has shown none."""
        return self._tls.getpeercert(binary_form=True)

    def do_handshake(self) -> Missing | None:
        """Continue the handshake by at most :data:`MAX_RECORDS_IN_A_READ` records.

        Returns:
            What the handshake waits for; None when it is complete.

        Raises:
            OSError: The peer closed the connection; ``ssl.SSLError`` if the handshake failed.
        """
        state = self.state
        state.drained = False
        try:
            for _ in range(MAX_RECORDS_IN_A_READ):
                try:
                    self._tls.do_handshake()
                except ssl.SSLWantReadError:
                    if not self._flush():
                        return Missing.ROOM
                    record = self._next_record()
                    if record is not None:
                        self._incoming.write(record)
                    elif state.ended:
                        self._incoming.write_eof()
                    else:
                        return Missing.BYTES
                except ssl.SSLError:
                    with contextlib.suppress(OSError):
                        self._flush()  # the alert
                    raise
                else:
                    state.more = bool(state.ciphertext)
                    return None if self._flush() else Missing.ROOM
            return Missing.TURN
        finally:
            self._keep_ciphertext()

    def recv_into(self, buffer: WriteableBuffer, nbytes: int | None = None, flags: int = 0) -> int:
        """Read at most :data:`MAX_RECORDS_IN_A_READ` records; return 0 at the end.

        Raises:
            BlockingIOError: There is nothing to read now, or in this turn; see :attr:`has_unread`.
            OSError: The connection is lost; ``ssl.SSLError`` after bytes that are no valid TLS.
        """
        state = self.state
        count = self._read(memoryview(buffer)[:nbytes])
        self._keep_ciphertext()
        if not count:
            if state.error is not None:
                raise self.take_error()
            if state.more or not state.ended:
                raise BlockingIOError
        return count

    def _read(self, view: memoryview) -> int:
        state = self.state
        room, count, records = len(view), 0, 0
        pending = state.rest and state.pending() > 0
        state.more = state.drained = state.rest = False
        while count < room and state.error is None:
            failure: Exception | None = None
            try:
                if pending:
                    pending = False
                else:
                    record = self._next_record() if records < MAX_RECORDS_IN_A_READ else None
                    if record is None:
                        break
                    records += 1
                    state.feed(record)
                if size := state.read(room - count, view[count:]):
                    count += size
                    continue
            except Exception as error:
                failure = error.with_traceback(None)  # it refers to this frame
            if not self.read_failed(failure):
                return count
        state.rest = count == room
        state.more = state.rest or records == MAX_RECORDS_IN_A_READ
        return count

    def read_failed(self, failure: Exception | None) -> bool:
        """Handle an exception in the place of plaintext; None is an end of stream.

        Returns:
            Whether to go on reading: the record had no data.
        """
        state = self.state
        if isinstance(failure, ssl.SSLWantReadError):
            try:
                self._flush()  # OpenSSL may have written a KeyUpdate in response to the peer's
                failure = self._count_record_without_data()
            except OSError as error:
                failure = error
            if failure is None:
                return True
        if failure is None or isinstance(failure, ssl.SSLZeroReturnError):
            state.ended = True
            state.ciphertext = _NOTHING
        elif isinstance(failure, _RESET):
            state.error = _os_error(errno.ECONNRESET)
        elif isinstance(failure, OSError):
            with contextlib.suppress(OSError):
                self._flush()  # the alert
            # It refers to its frames, and those to this socket.
            state.error = failure.with_traceback(None)
        elif isinstance(failure, ValueError):  # the socket is closed
            state.error = _os_error(errno.EBADF)
        else:
            raise failure
        return False

    def _next_record(self) -> memoryview | None:
        """Return the next encrypted record; None if it has not arrived."""
        state = self.state
        while True:
            ciphertext = state.ciphertext
            size = _record_size(ciphertext)
            if size:
                state.ciphertext = ciphertext[size:]
                return ciphertext[:size]
            if state.ended or state.drained:
                return None
            start = len(ciphertext)
            _view[:start] = ciphertext
            try:
                size = _receive(self, _view[start:])
            except BlockingIOError:
                return None
            state.ended = not size
            state.drained = size < len(_view) - start  # an end of stream gives another event
            state.ciphertext = _view[: start + size]

    def _keep_ciphertext(self) -> None:
        ciphertext = self.state.ciphertext
        if ciphertext.obj is _buffer:  # the next connection overwrites it
            self.state.ciphertext = memoryview(bytes(ciphertext))

    def _count_record_without_data(self) -> ssl.SSLError | None:
        """Count a record; return the error if there were too many."""
        now = time.monotonic()
        forgiven = int((now - self._forgiven_at) / _FORGIVEN_AFTER_S)
        if forgiven:
            self._records_without_data = max(0, self._records_without_data - forgiven)
            self._forgiven_at = now
        self._records_without_data += 1
        if self._records_without_data <= MAX_RECORDS_WITHOUT_DATA:
            return None
        return ssl.SSLError(
            errno.EPROTO, f"more than {MAX_RECORDS_WITHOUT_DATA} records without application data"
        )

    def take_error(self) -> OSError:
        """Take the error that ended the stream, to raise it once."""
        # A raised error refers to its frames, and those to this socket; so the socket must not
        # refer to it.
        state = self.state
        error, state.error, state.ended = state.error, None, True
        return cast("OSError", error)

    def send(self, data: ReadableBuffer, flags: int = 0) -> int:
        """Send as much as the kernel takes now.

        Raises:
            BlockingIOError: The kernel takes nothing more now. A part of this data may be encrypted
                already, so the next call must begin with the same data.
            OSError: The connection is lost; ``ssl.SSLError`` after a TLS error.
        """
        state, view, sent = self.state, memoryview(data), 0
        try:
            while self._flush():
                sent += state.encrypted
                state.encrypted = 0
                chunk = view[sent : sent + _CHUNK_BYTES]
                if not chunk:
                    return sent
                while state.encrypted < len(chunk):
                    state.encrypted += state.write(chunk[state.encrypted :])
        except Exception as error:
            failure = write_error(error)
            try:
                if failure is not None:
                    raise failure from None
            finally:
                del failure  # it refers to this frame
        if not sent:
            raise BlockingIOError
        return sent

    def _flush(self) -> bool:
        """Send what OpenSSL has written; return whether the kernel has taken all of it.

        Raises:
            OSError: The connection is lost.
        """
        state = self.state
        if not state.unsent and self._outgoing.pending:
            state.unsent = state.take()
        while state.unsent:
            try:
                sent = _send(self, state.unsent)
            except BlockingIOError:
                return False
            state.unsent = memoryview(state.unsent)[sent:]
        return True

    def shutdown(self, how: int) -> None:
        """Send close_notify; bytes that the peer sends after it may be lost."""
        if self._close_notify_sent:
            return
        self._close_notify_sent = True
        # unwrap() also looks for the peer's close_notify, and fails if that has not arrived yet.
        with contextlib.suppress(OSError, ValueError):
            try:
                self._tls.unwrap()
            finally:
                self._flush()

    def close(self) -> None:
        """Send close_notify, and close the socket."""
        if self.fileno() != -1:
            self.shutdown(0)
        super().close()


def write_error(failure: Exception) -> OSError | None:
    """Return the connection's error after a failed write; None if OpenSSL only waits."""
    if isinstance(failure, ssl.SSLWantWriteError | ssl.SSLWantReadError):
        return None
    if isinstance(failure, _RESET):
        return _os_error(errno.ECONNRESET)
    if isinstance(failure, ValueError):  # the socket is closed
        return _os_error(errno.EBADF)
    if isinstance(failure, OSError):
        return failure
    raise failure


def _record_size(ciphertext: memoryview) -> int:
    """Return the size of the first record; 0 if it is incomplete.

    For bytes that are no record it returns all of them, so that OpenSSL reports the error.
    """
    available = len(ciphertext)
    if available < _RECORD_HEADER_BYTES:
        return 0
    size = _RECORD_HEADER_BYTES + (ciphertext[3] << 8 | ciphertext[4])
    if size > _MAX_RECORD_BYTES or not _FIRST_TYPE <= ciphertext[0] <= _LAST_TYPE:
        return available
    return size if size <= available else 0


def wrap(
    context: ssl.SSLContext, plain: socket.socket, *, server_side: bool, server_name: str | None = None
) -> TlsSocket:
    """Put TLS on a non-blocking socket; the handshake is still to be done.

    Raises:
        OSError: The socket is closed.
    """
    return TlsSocket(context, plain, server_side=server_side, server_name=server_name)
