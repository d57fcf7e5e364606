"""The TLS handshake, of either side, on a non-blocking socket.

Owns when it goes on. A step costs up to a few milliseconds in which nobody else is served. So there is one
step in a turn of the event loop, however many peers are at it, and peers take turns: a flood of handshakes
from one address waits for itself. A peer that says nothing has no turn to hold.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from receiver.gateway.tls_socket import Missing, TlsSocket
from receiver.gateway.waiting import readable, writable

__all__ = ["HandshakeTurns", "handshake"]


class HandshakeTurns:
    """Who goes on with a handshake: one at a time, each peer in its turn, and in its order within a peer."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        self._taken = False

    @asynccontextmanager
    async def take(self, peer: str) -> AsyncIterator[None]:
        """Hold the turn until the end of the block, and for the rest of the event loop's turn.

        Args:
            peer: The peer that the work is for.
        """
        if self._taken:
            mine = asyncio.get_running_loop().create_future()
            self._queues.setdefault(peer, deque()).append(mine)
            try:
                await mine
            except asyncio.CancelledError:
                if not mine.cancelled():  # it was this one's turn already
                    self._pass_on()
                raise
        self._taken = True
        try:
            yield
        finally:
            try:
                await asyncio.sleep(0)
            finally:
                self._pass_on()

    def _pass_on(self) -> None:
        while self._queues:
            peer, queue = next(iter(self._queues.items()))
            del self._queues[peer]
            next_one = queue.popleft()
            if queue:
                self._queues[peer] = queue  # behind all other peers
            if not next_one.done():
                next_one.set_result(None)
                return
        self._taken = False


async def handshake(tls: TlsSocket, turns: HandshakeTurns, peer: str) -> None:
    """Shake hands.

    Args:
        tls: The connection; the event loop must watch it for nobody else.
        turns: Who goes on.
        peer: The peer that the connection is for.

    Raises:
        OSError: The peer is gone; an ``ssl.SSLError`` where the two can't agree.
    """
    while True:
        async with turns.take(peer):
            missing = tls.do_handshake()
        if missing is None:
            return
        if missing is Missing.BYTES:
            await readable(tls)
        elif missing is Missing.ROOM:
            await writable(tls)
