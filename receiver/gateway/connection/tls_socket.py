"""TLS connection with the interface of a plain non-blocking socket.

Owns the difference between the two: a wish of OpenSSL for bytes becomes :class:`BlockingIOError`,
the peer's end of stream an empty read, and our own end a close_notify. It must not know what the
bytes mean.

**Why OpenSSL does not read from the socket itself.** ``SSL_read`` returns only when it has
application data or when there is nothing left to read. A KeyUpdate (RFC 8446, section 4.6.3) costs
tens of microseconds and brings no data, so a peer that sends only KeyUpdates could keep
``SSL_read`` busy without end. Here OpenSSL gets one record at a time. One call handles a bounded
number of records, and each record without data is counted.

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

if TYPE_CHECKING:
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


class TlsSocket(socket.socket):
    """A non-blocking TLS connection; made by :func:`wrap`.

    A read goes across record bounds, because the socket is polled edge-triggered: bytes that stay
    in memory give no further event. :attr:`has_unread` shows that some had to stay.

    Args:
        plain: The socket; this object takes over its descriptor.
        server_name: On the client side, the name that the peer's certificate must have.
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
        self._ciphertext = _NOTHING  # received, but not given to OpenSSL yet
        self._drained = False  # whether the kernel had no more bytes in this call
        self._more = False  # whether there are bytes for which epoll gives no event
        self._unsent: memoryview | bytes = b""  # ciphertext that the kernel has not taken yet
        self._encrypted = 0  # how many bytes of the next data to send are in `_unsent` already
        self._records_without_data = 0
        self._forgiven_at = 0.0
        self._ended = False
        self._error: OSError | None = None
        self._close_notify_sent = False

    @property
    def held_bytes(self) -> int:
        """Ciphertext in memory, received or to be sent, in bytes."""
        return len(self._ciphertext) + len(self._unsent)

    @property
    def has_unread(self) -> bool:
        """Whether a read would return something for which epoll gives no event."""
        return self._more or self._ended or self._error is not None or self._tls.pending() > 0

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
            return Missing.TURN
        finally:
            self._keep_ciphertext()

    def recv_into(self, buffer: WriteableBuffer, nbytes: int | None = None, flags: int = 0) -> int:
        """Read at most :data:`MAX_RECORDS_IN_A_READ` records; return 0 at the end.

        Raises:
            BlockingIOError: There is nothing to read now, or in this turn; see :attr:`has_unread`.
            OSError: The connection is lost; ``ssl.SSLError`` after bytes that are no valid TLS.
        """
        view = memoryview(buffer)[:nbytes]
        room, count, records = len(view), 0, 0
        read, feed = self._tls.read, self._incoming.write
        # OpenSSL keeps a rest only if the last read of a call had no room for the whole record.
        pending = self._tls.pending() > 0
        self._more = self._drained = False
        try:
            while count < room and self._error is None:
                if pending:
                    pending = False
                else:
                    record = self._next_record() if records < MAX_RECORDS_IN_A_READ else None
                    if record is None:
                        break
                    feed(record)
                    records += 1
                try:
                    size = cast("int", read(room - count, view[count:]))  # bytes only without a buffer
                except ssl.SSLWantReadError:
                    self._count_record_without_data()
                    continue
                if not size:
                    raise ssl.SSLZeroReturnError
                count += size
            self._more = count == room or records == MAX_RECORDS_IN_A_READ
        except ssl.SSLZeroReturnError:
            self._ended = True
            self._ciphertext = _NOTHING
        except _RESET:
            self._error = _os_error(errno.ECONNRESET)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._flush()  # the alert
            self._error = error.with_traceback(None)
        except ValueError:  # the socket is closed
            self._error = _os_error(errno.EBADF)
        self._keep_ciphertext()
        if not count:
            if self._error is not None:
                raise self._take_error()
            if self._more or not self._ended:
                raise BlockingIOError
        return count

    def _next_record(self) -> memoryview | None:
        """Return the next encrypted record; None if it has not arrived."""
        while True:
            ciphertext = self._ciphertext
            size = _record_size(ciphertext)
            if size:
                self._ciphertext = ciphertext[size:]
                return ciphertext[:size]
            if self._ended or self._drained:
                return None
            start = len(ciphertext)
            _view[:start] = ciphertext
            try:
                size = _receive(self, _view[start:])
            except BlockingIOError:
                return None
            self._ended = not size
            self._drained = size < len(_view) - start  # an end of stream gives another event
            self._ciphertext = _view[: start + size]

    def _keep_ciphertext(self) -> None:
        if self._ciphertext.obj is _buffer:  # the next connection overwrites it
            self._ciphertext = memoryview(bytes(self._ciphertext))

    def _count_record_without_data(self) -> None:
        self._flush()  # OpenSSL may have written a KeyUpdate in response to the peer's
        now = time.monotonic()
        forgiven = int((now - self._forgiven_at) / _FORGIVEN_AFTER_S)
        if forgiven:
            self._records_without_data = max(0, self._records_without_data - forgiven)
            self._forgiven_at = now
        self._records_without_data += 1
        if self._records_without_data > MAX_RECORDS_WITHOUT_DATA:
            raise ssl.SSLError(
                errno.EPROTO, f"more than {MAX_RECORDS_WITHOUT_DATA} records without application data"
            )

    def _take_error(self) -> OSError:
        # A raised error refers to its frames, and those to this socket; so the socket must not
        # refer to it.
        error, self._error, self._ended = self._error, None, True
        return cast("OSError", error)

    def send(self, data: ReadableBuffer, flags: int = 0) -> int:
        """Send as much as the kernel takes now.

        Raises:
            BlockingIOError: The kernel takes nothing more now. A part of this data may be encrypted
                already, so the next call must begin with the same data.
            OSError: The connection is lost; ``ssl.SSLError`` after a TLS error.
        """
        view = memoryview(data)
        write = self._tls.write
        sent = 0
        try:
            while True:
                if not self._flush():
                    break
                sent += self._encrypted
                self._encrypted = 0
                chunk = view[sent : sent + _CHUNK_BYTES]
                if not chunk:
                    return sent
                while self._encrypted < len(chunk):
                    self._encrypted += write(chunk[self._encrypted :])
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except _RESET:
            raise _os_error(errno.ECONNRESET) from None
        except ValueError:  # the socket is closed
            raise _os_error(errno.EBADF) from None
        if not sent:
            raise BlockingIOError
        return sent

    def _flush(self) -> bool:
        """Send what OpenSSL has written; return whether the kernel has taken all of it.

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
