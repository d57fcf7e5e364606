"""A TLS connection that a relay can read from and write to as if it were a plain socket.

Owns the difference between the two: what OpenSSL asks for becomes :class:`BlockingIOError`, a peer's end an
empty read, and an end of ours a close_notify. When the peer may speak, and what it says, is none of its
business.

A peer that closes its socket without close_notify has ended too: Kafka's frames have lengths, so that whoever
reads them sees what is missing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = ["TlsSocket", "wrap"]

#: How a reset shows; what the system said of it is lost by then. An end without close_notify is none of these
#: under OP_IGNORE_UNEXPECTED_EOF.
_RESET = (ssl.SSLEOFError, ssl.SSLSyscallError)


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class TlsSocket(ssl.SSLSocket):
    """A non-blocking TLS connection; made by :func:`wrap`.

    Reading takes everything that is there, over the bounds of records, as the socket is polled by edges: what
    were left behind within OpenSSL would give no further event. What had to be left, as the buffer was full
    or as an end or an error came behind data, shows in :attr:`holds`.

    Attributes:
        wants_write: The latest read could not go on for want of room to write to the peer.
    """

    wants_write = False
    # What comes behind the last data.
    _ended = False
    _lost: OSError | None = None
    _said_end = False

    @property
    def holds(self) -> bool:
        """Whether a read would give something for which the system tells of no event."""
        return self._ended or self._lost is not None or self.pending() > 0

    def recv_into(self, buffer: WriteableBuffer, nbytes: int | None = None, flags: int = 0) -> int:
        """Read as much as there is, at most a buffer; 0 at the end.

        Raises:
            BlockingIOError: There is nothing now.
            OSError: The connection is lost; an ``ssl.SSLError`` where it can't be read on from.
        """
        view = memoryview(buffer)[:nbytes]
        room, count = len(view), 0
        self.wants_write = False
        try:
            while count < room and not self._ended and self._lost is None:
                read = cast("int", self.read(room - count, view[count:]))  # without a buffer it gives bytes
                self._ended = not read
                count += read
        except ssl.SSLWantReadError:
            if not count:
                raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            self.wants_write = True
            if not count:
                raise BlockingIOError from None
        except ssl.SSLZeroReturnError:
            self._ended = True
        except _RESET:
            self._lost = _os_error(errno.ECONNRESET)
        except OSError as error:
            self._lost = error.with_traceback(None)
        except ValueError:  # it is closed
            self._lost = _os_error(errno.EBADF)
        if not count and self._lost is not None:
            raise self._take_lost()
        return count

    def _take_lost(self) -> OSError:
        # An error that was raised refers to who raised it, who must not refer to the error.
        lost, self._lost, self._ended = self._lost, None, True
        return cast("OSError", lost)

    def send(self, data: ReadableBuffer, flags: int = 0) -> int:
        """Send as much as can be taken now.

        Raises:
            BlockingIOError: Nothing more can be taken now. OpenSSL has begun with this data, so the next call
                has to begin with it too.
            OSError: The connection is lost; an ``ssl.SSLError`` where it can't be written on to.
        """
        try:
            return self.write(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None
        except _RESET:
            raise _os_error(errno.ECONNRESET) from None
        except ValueError:  # it is closed
            raise _os_error(errno.EBADF) from None

    def shutdown(self, how: int) -> None:
        """Say that nothing more will be sent; a peer that has more to say may not be heard any more."""
        if self._said_end:
            return
        self._said_end = True
        # It looks at once for the peer's own end, which need not be there yet.
        with contextlib.suppress(OSError, ValueError):
            self.unwrap()
            self._ended = True

    def close(self) -> None:
        """Say the end, and close."""
        if self.fileno() != -1:
            self.shutdown(0)
        super().close()


def wrap(
    context: ssl.SSLContext, plain: socket.socket, *, server_side: bool, server_name: str | None = None
) -> TlsSocket:
    """Begin TLS on a non-blocking socket, which belongs to the result from here on; no handshake is done yet.

    Args:
        context: One whose ``sslsocket_class`` is :class:`TlsSocket`, with ``OP_IGNORE_UNEXPECTED_EOF``.
        plain: The socket.
        server_side: Whether the peer is the client.
        server_name: For a client, the name that the peer's certificate must have.

    Raises:
        OSError: The peer is gone already; the socket is closed.
    """
    wrapped = context.wrap_socket(
        plain,
        server_side=server_side,
        do_handshake_on_connect=False,
        suppress_ragged_eofs=False,
        server_hostname=server_name,
    )
    return cast("TlsSocket", wrapped)
