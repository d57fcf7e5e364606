"""Why and how a connection is closed."""

from __future__ import annotations

import fcntl
import socket
import struct
from enum import StrEnum
from typing import Final

#: Asks for the bytes that are not sent yet (linux/sockios.h).
_SIOCOUTQNSD: Final = 0x894B

#: The state of a TCP connection that was reset, in the first byte of TCP_INFO (linux/tcp_states.h).
_TCP_CLOSE: Final = 7

#: The SO_LINGER value with which close() sends a reset.
_RESET = struct.pack("ii", 1, 0)


def close_with_reset(side: socket.socket) -> None:
    """Close a socket so that its peer sees a reset."""
    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    socket.socket.close(side)  # TlsSocket.close() would send a close_notify first


class CloseReason(StrEnum):
    """Why a connection ended; a metric label and a log field."""

    CLIENT_CLOSED = "client_closed"
    BROKER_CLOSED = "broker_closed"
    CLIENT_RESET = "client_reset"
    BROKER_RESET = "broker_reset"
    CLIENT_PROTOCOL_ERROR = "client_protocol_error"
    BROKER_PROTOCOL_ERROR = "broker_protocol_error"
    CLIENT_TLS_ERROR = "client_tls_error"
    BROKER_TLS_ERROR = "broker_tls_error"
    INVALID_REQUEST = "invalid_request"
    LIMIT = "limit"
    HELD_BYTES = "held_bytes"
    REQUEST_TIMEOUT = "request_timeout"
    DRAINED = "drained"
    INTERNAL_ERROR = "internal_error"


def is_reset(side: socket.socket) -> bool:
    """Return whether the peer has reset a connection.

    Bytes that it had sent before may still be there to read.
    """
    try:
        return side.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE
    except OSError:  # the socket is gone already
        return True


def has_unsent(side: socket.socket) -> bool:
    """Return whether the kernel holds bytes that it has not sent.

    A reset would discard them.
    """
    size = bytearray(4)
    try:
        fcntl.ioctl(side.fileno(), _SIOCOUTQNSD, size)
    except OSError:  # the socket is gone already
        return False
    return any(size)
