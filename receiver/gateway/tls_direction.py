"""A direction whose source is a TLS connection.

Owns the one thing that is different about it: the connection may hold bytes, or an end, of which the system
tells nothing any more because it has handed them over. So this direction asks for another turn while there
are such.
"""

from __future__ import annotations

import socket

from receiver.gateway.direction import Direction, Ends
from receiver.gateway.event_loop import DirectEventLoop, Share
from receiver.gateway.tls_socket import TlsSocket
from receiver.wire.framing import FrameRewriter

__all__ = ["TlsDirection"]


class TlsDirection(Direction):
    """One direction: what is read from ``source`` goes, as the session rewrites it, to ``sink``."""

    __slots__ = ("_tls",)

    def __init__(
        self,
        relay: Ends,
        loop: DirectEventLoop,
        source: TlsSocket,
        sink: socket.socket,
        rewriter: FrameRewriter,
        share: Share,
    ) -> None:
        super().__init__(relay, loop, source, sink, rewriter, share)
        self._tls = source

    @property
    def held_bytes(self) -> int:
        """Memory that is kept until the sink, or OpenSSL, takes it."""
        return len(self._backlog) + self._tls.held_bytes

    def readable(self) -> bool:
        """Move what there is, at most one buffer; say whether there may be more."""
        super().readable()
        return self._reading and self._tls.holds

    def update(self) -> None:
        """Read from the source exactly while somebody can take what it says."""
        before = self._reading
        super().update()
        if self._reading and not before and self._tls.holds:
            self._loop.call_direct_again(self._tls.fileno())
