"""A TLS connection that a relay can read from and write to as if it were a plain socket.

Owns the difference between the two: what OpenSSL asks for becomes :class:`BlockingIOError`, the end of the
peer's stream an empty read, and our end a close_notify. It must not know what the bytes mean.

**Why OpenSSL does not read from the socket itself.** ``SSL_read`` returns only when it has application data
or when there is nothing left to read. A KeyUpdate (RFC 8446, section 4.6.3) costs it tens of microseconds and
gives no data, so a peer that sends nothing else keeps it busy for as long as it likes. Here OpenSSL gets one
record at a time. One call handles a bounded number of records, and each record that brought no data is
counted.

A peer that closes its socket without close_notify has ended too: Kafka's frames have lengths, so whoever
reads them sees what is missing.
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

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = ["MAX_RECORDS_IN_A_READ", "MAX_RECORDS_WITHOUT_DATA", "Missing", "TlsSocket", "wrap"]

#: Records that one read, or one step of a handshake, gives to OpenSSL. Sixteen full ones fill the relay's
#: buffer. Records of a few bytes cost two microseconds each.
MAX_RECORDS_IN_A_READ: Final = 64

#: Records without application data that a peer may send after the handshake before the connection is closed,
#: and the seconds after which one of them no longer counts. Java's TLS sends a KeyUpdate every 128 GiB, a
#: server two session tickets; Go's TLS gives up after 16 such records in a row.
MAX_RECORDS_WITHOUT_DATA: Final = 32
_FORGIVEN_AFTER_S: Final = 60.0

#: What is encrypted before it is given to the system.
_PIECE_BYTES: Final = 65_536

#: A record's type, version and length (RFC 8446, section 5.1).
_RECORD_HEADER_BYTES: Final = 5
#: The content types of records: change_cipher_spec to application_data.
_FIRST_TYPE, _LAST_TYPE = 20, 23
#: The longest record of any version (TLS 1.2: RFC 5246, section 6.2.3).
_MAX_RECORD_BYTES: Final = _RECORD_HEADER_BYTES + 16_384 + 2_048

#: How a reset shows; OpenSSL does not keep the system's error.
_RESET = (ssl.SSLEOFError, ssl.SSLSyscallError)

#: One event loop, one thread: a connection has the buffer until its call ends. It holds four full records,
#: and the beginning of one that was there before.
_buffer = bytearray(4 * _MAX_RECORD_BYTES + _MAX_RECORD_BYTES)
_view = memoryview(_buffer)
_NOTHING = memoryview(b"")

_receive = socket.socket.recv_into
_send = socket.socket.send


class Missing(Enum):
    """What a handshake waits for."""

    BYTES = "bytes"
    ROOM = "room"
    A_TURN = "a turn"


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class TlsSocket(socket.socket):
    """A non-blocking TLS connection; made by :func:`wrap`.

    Reading takes what is there across the bounds of records, because the socket is polled by edges: what is
    left behind in here would give no further event. What had to be left shows in :attr:`holds`.

    Args:
        context: What is spoken.
        plain: The socket, which belongs to this one from here on.
        server_side: Whether the peer is the client.
        server_name: For a client, the name that the peer's certificate must have.
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
        self._ciphertext = _NOTHING  # what OpenSSL has not got yet
        self._drained = False  # whether the system had no more in this call
        self._more = False  # whether there is more for which the system tells of no event
        self._unsent: memoryview | bytes = b""  # ciphertext that the system has not taken yet
        self._begun = 0  # how many bytes of the data to be sent are in it
        self._without_data = 0
        self._forgiven_at = 0.0
        self._ended = False
        self._lost: OSError | None = None
        self._said_end = False

    @property
    def held_bytes(self) -> int:
        """Memory that is kept of what was read or encrypted and has not gone on yet."""
        return len(self._ciphertext) + len(self._unsent)

    @property
    def holds(self) -> bool:
        """Whether a read would give something for which the system tells of no event."""
        return self._more or self._ended or self._lost is not None or self._tls.pending() > 0

    def certificate(self) -> bytes | None:
        """Return the peer's certificate in DER, None where it has shown none."""
        return self._tls.getpeercert(binary_form=True)

    def do_handshake(self) -> Missing | None:
        """Go on with the handshake for at most :data:`MAX_RECORDS_IN_A_READ` records.

        Returns:
            What it waits for, None when it is over.

        Raises:
            OSError: The peer is gone; an ``ssl.SSLError`` where the two can't agree.
        """
        self._drained = False
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
                    elif self._ended:
                        self._incoming.write_eof()
                    else:
                        return Missing.BYTES
                except ssl.SSLError:
                    with contextlib.suppress(OSError):
                        self._flush()  # the alert
                    raise
                else:
                    self._more = bool(self._ciphertext)
                    return None if self._flush() else Missing.ROOM
            return Missing.A_TURN
        finally:
            self._keep_ciphertext()

    def recv_into(self, buffer: WriteableBuffer, nbytes: int | None = None, flags: int = 0) -> int:
        """Read what is there, at most a buffer or :data:`MAX_RECORDS_IN_A_READ` records; 0 at the end.

        Raises:
            BlockingIOError: There is nothing now, or nothing in this turn; see :attr:`holds`.
            OSError: The connection is lost; an ``ssl.SSLError`` where it can't be read on from.
        """
        view = memoryview(buffer)[:nbytes]
        room, count, records = len(view), 0, 0
        read, feed = self._tls.read, self._incoming.write
        # Only a read without room for a whole record leaves something, and it is the last of its call.
        left = self._tls.pending() > 0
        self._more = self._drained = False
        try:
            while count < room and self._lost is None:
                if left:
                    left = False
                else:
                    record = self._next_record() if records < MAX_RECORDS_IN_A_READ else None
                    if record is None:
                        break
                    feed(record)
                    records += 1
                try:
                    got = cast("int", read(room - count, view[count:]))  # without a buffer it gives bytes
                except ssl.SSLWantReadError:
                    self._count_without_data()
                    continue
                if not got:
                    raise ssl.SSLZeroReturnError
                count += got
            self._more = count == room or records == MAX_RECORDS_IN_A_READ
        except ssl.SSLZeroReturnError:
            self._ended = True
            self._ciphertext = _NOTHING
        except _RESET:
            self._lost = _os_error(errno.ECONNRESET)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._flush()  # the alert
            self._lost = error.with_traceback(None)
        except ValueError:  # it is closed
            self._lost = _os_error(errno.EBADF)
        self._keep_ciphertext()
        if not count:
            if self._lost is not None:
                raise self._take_lost()
            if self._more or not self._ended:
                raise BlockingIOError
        return count

    def _next_record(self) -> memoryview | None:
        """Return the next record as it came; None where it is not whole, and nothing more can be had now."""
        while True:
            ciphertext = self._ciphertext
            size = _size_of_record(ciphertext)
            if size:
                self._ciphertext = ciphertext[size:]
                return ciphertext[:size]
            if self._ended or self._drained:
                return None
            held = len(ciphertext)
            _view[:held] = ciphertext
            try:
                got = _receive(self, _view[held:])
            except BlockingIOError:
                return None
            self._ended = not got
            self._drained = got < len(_view) - held  # an end that comes with the bytes gives another event
            self._ciphertext = _view[: held + got]

    def _keep_ciphertext(self) -> None:
        if self._ciphertext.obj is _buffer:  # which is the next connection's
            self._ciphertext = memoryview(bytes(self._ciphertext))

    def _count_without_data(self) -> None:
        self._flush()  # a KeyUpdate may have asked for one of ours
        now = time.monotonic()
        forgiven = int((now - self._forgiven_at) / _FORGIVEN_AFTER_S)
        if forgiven:
            self._without_data = max(0, self._without_data - forgiven)
            self._forgiven_at = now
        self._without_data += 1
        if self._without_data > MAX_RECORDS_WITHOUT_DATA:
            raise ssl.SSLError(
                errno.EPROTO, f"more than {MAX_RECORDS_WITHOUT_DATA} records without application data"
            )

    def _take_lost(self) -> OSError:
        # An error that was raised refers to the frames that raised it, which must not refer to the error.
        lost, self._lost, self._ended = self._lost, None, True
        return cast("OSError", lost)

    def send(self, data: ReadableBuffer, flags: int = 0) -> int:
        """Send as much as can be taken now.

        Raises:
            BlockingIOError: Nothing more can be taken now. A piece of this data may be encrypted already, so
                the next call has to begin with the same data.
            OSError: The connection is lost; an ``ssl.SSLError`` where it can't be written on to.
        """
        view = memoryview(data)
        write = self._tls.write
        sent = 0
        try:
            while True:
                if not self._flush():
                    break
                sent += self._begun
                self._begun = 0
                piece = view[sent : sent + _PIECE_BYTES]
                if not piece:
                    return sent
                while self._begun < len(piece):
                    self._begun += write(piece[self._begun :])
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except _RESET:
            raise _os_error(errno.ECONNRESET) from None
        except ValueError:  # it is closed
            raise _os_error(errno.EBADF) from None
        if not sent:
            raise BlockingIOError
        return sent

    def _flush(self) -> bool:
        """Give the system what OpenSSL has written; say whether it has taken all of it.

        Raises:
            OSError: The connection is lost.
        """
        if not self._unsent and self._outgoing.pending:
            self._unsent = self._outgoing.read()
        while self._unsent:
            try:
                sent = _send(self, self._unsent)
            except BlockingIOError:
                return False
            self._unsent = memoryview(self._unsent)[sent:]
            if not self._unsent:
                self._unsent = self._outgoing.read()
        return True

    def shutdown(self, how: int) -> None:
        """Say that nothing more will be sent; a peer that has more to say may not be heard any more."""
        if self._said_end:
            return
        self._said_end = True
        # It looks at once for the peer's own end, which need not be there yet.
        with contextlib.suppress(OSError, ValueError):
            try:
                self._tls.unwrap()
            finally:
                self._flush()

    def close(self) -> None:
        """Say the end, and close."""
        if self.fileno() != -1:
            self.shutdown(0)
        super().close()


def _size_of_record(ciphertext: memoryview) -> int:
    """Return the size of the first record, 0 where it is not whole.

    Bytes that can't be a record are taken whole: OpenSSL has to say what is wrong with them.
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
    """Begin TLS on a non-blocking socket, which belongs to the result from here on; no handshake is done yet.

    Args:
        context: What is spoken.
        plain: The socket.
        server_side: Whether the peer is the client.
        server_name: For a client, the name that the peer's certificate must have.

    Raises:
        OSError: The socket is closed.
    """
    return TlsSocket(context, plain, server_side=server_side, server_name=server_name)
