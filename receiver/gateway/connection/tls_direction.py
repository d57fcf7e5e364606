"""Moves the bytes of one direction whose source is a TLS connection.

Owns the one difference from plaintext. The TLS socket may hold bytes, or an end of stream, for
which epoll gives no further event because they have left the kernel. So this direction asks for
another turn while there are any.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from receiver.event_loop import DirectEventLoop
from receiver.gateway.connection.direction import Connection, Direction
from receiver.gateway.connection.tls_socket import TlsSocket
from receiver.turns import Share
from receiver.wire.frame_rewriter import FrameRewriter
from receiver.wire.walk import compiled


class TlsDirection(Direction):
    """A :class:`Direction` that also reads what its TLS source holds in memory."""

    __slots__ = ("_tls",)

    def __init__(
        self,
        connection: Connection,
        loop: DirectEventLoop,
        source: TlsSocket,
        sink: socket.socket,
        rewriter: FrameRewriter,
        share: Share,
        words: memoryview[int],
        *,
        from_client: bool,
        meters: bool = False,
    ) -> None:
        super().__init__(
            connection, loop, source, sink, rewriter, share, words, from_client=from_client, meters=meters
        )
        self._tls = source

    @property
    def held_bytes(self) -> int:
        """Bytes that wait for the sink, or for OpenSSL."""
        return super().held_bytes + self._tls.held_bytes

    def _move(self) -> bool:
        """See the base class."""
        super()._move()
        return self._reading and self._tls.has_unread

    if TYPE_CHECKING or compiled is None:
        readable = _move

    def _read_failed(self, failure: Exception | None) -> bool:
        return self._tls.read_failed(failure)

    def _raise(self) -> None:
        """Report the error that ended the stream."""
        self._connection.source_failed(self, self._tls.take_error())

    def update(self) -> None:
        """Start or stop reading, as the flags and the backlog demand."""
        before = self._reading
        super().update()
        if self._reading and not before and self._tls.has_unread:
            self._loop.call_direct_again(self._tls.fileno())
