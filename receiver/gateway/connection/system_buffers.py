"""The system's buffers of a socket, also while its peer does not read.

Linux tunes the buffers of a TCP socket while bytes flow, up to the last values of ``tcp_wmem`` and
``tcp_rmem``, some megabytes. A size that the program sets turns that off. So the program bounds
what waits to be sent in another way, and sets sizes only for what clients send, and where memory is
scarce.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

#: Bytes that a socket takes before the peer's window has room for them. Linux sends EAGAIN beyond,
#: however large its buffer is (tcp(7)).
MOST_UNSENT: Final = 393_216

#: The buffer of what a client sends, which waits uncounted until a relay reads it. Linux doubles
#: it.
_FROM_CLIENT: Final = 393_216

#: Asks for the memory of a socket (linux/sock_diag.h): received bytes come first, bytes to send
#: sixth.
_SO_MEMINFO: Final = 55
_MEMORY = struct.Struct("=9I")
_RECEIVED: Final = 0
_TO_SEND: Final = 5


def tune(client: socket.socket, broker: socket.socket) -> None:
    """Let Linux tune a connection's buffers, with a bound on what is not sent yet.

    Raises:
        OSError: One of the sockets is gone.
    """
    for side in (client, broker):
        side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MOST_UNSENT)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _FROM_CLIENT)


def fix(client: socket.socket, broker: socket.socket, size: int) -> None:
    """Set the size of all buffers of a connection; Linux doubles it.

    Raises:
        OSError: One of the sockets is gone.
    """
    for side in (client, broker):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        side.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def bytes_to_send(side: socket.socket) -> int:
    """Return the bytes of memory that what waits to be sent, or acknowledged, takes."""
    try:
        return _memory(side)[_TO_SEND]
    except OSError:  # the socket is gone already; the next write notices that
        return 0


def bound_received(side: socket.socket, most: int) -> int:
    """Bound the buffer of received bytes; return what it takes or may take.

    What the buffer holds already stays.

    Args:
        side: The socket.
        most: Bytes that the buffer may take. Linux has a least size of some KiB.
    """
    try:
        size = side.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        if size <= most:
            return size
        side.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, most // 2)  # Linux doubles it
        return max(side.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF), _memory(side)[_RECEIVED])
    except OSError:  # the socket is gone already; the next read notices that
        return 0


def _memory(side: socket.socket) -> tuple[int, ...]:
    return _MEMORY.unpack(side.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMORY.size))
