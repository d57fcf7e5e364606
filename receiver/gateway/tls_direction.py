"""A direction whose source is a TLS connection.

Owns the one thing that is different about it: OpenSSL may hold bytes, or an end, of which the system tells
nothing any more, as it has handed them over. So whoever begins to read, or could not take everything, has to
ask for them itself.
"""

from __future__ import annotations

import socket

from receiver.gateway.direction import Direction, Ends
from receiver.gateway.event_loop import DirectEventLoop
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
    ) -> None:
        super().__init__(relay, loop, source, sink, rewriter)
        self._tls = source

    def readable(self) -> bool:
        """Move what there is; say whether there may be more."""
        again = super().readable()
        while self._reading and self._tls.holds:
            again = super().readable()
        # With something to send to it, this side is called when that can go on, and reads then, too.
        if self._reading and self._tls.wants_write and self._relay.opposite(self).flushed:
            self._loop.set_direct_writer(self._tls.fileno(), self._read_when_writable)
        return again

    def update(self) -> None:
        """Read from the source exactly while somebody can take what it says."""
        before = self._reading
        super().update()
        if self._reading and not before and (self._tls.holds or self._tls.wants_write):
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._reading:
            self.readable()

    def _read_when_writable(self) -> bool:
        self._loop.set_direct_writer(self._tls.fileno(), None)
        self._read_on()
        return False
