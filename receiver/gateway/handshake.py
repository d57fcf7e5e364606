"""Runs TLS handshakes, one step in each turn of the event loop.

A step costs up to a few milliseconds, in which the event loop serves no other connection. So each
turn of the loop runs one step, however many handshakes there are, and peers take turns: a flood of
handshakes from one address delays only that address. A silent peer holds no turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from receiver.gateway.connection.tls_socket import Missing, TlsSocket
from receiver.gateway.waiting import readable, writable


class HandshakeTurns:
    """Grants one handshake step at a time, round-robin between peers."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        self._busy = False

    @asynccontextmanager
    async def take(self, peer: str) -> AsyncIterator[None]:
        """Hold the turn until the block and the event loop's turn are over."""
        if self._busy:
            granted = asyncio.get_running_loop().create_future()
            self._queues.setdefault(peer, deque()).append(granted)
            try:
                await granted
            except asyncio.CancelledError:
                if not granted.cancelled():  # the turn was granted already
                    self._pass_on()
                raise
        self._busy = True
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
            granted = queue.popleft()
            if queue:
                self._queues[peer] = queue  # behind all other peers
            if not granted.done():
                granted.set_result(None)
                return
        self._busy = False


async def handshake(tls: TlsSocket, turns: HandshakeTurns, peer: str) -> None:
    """Run a TLS handshake to its end.

    Raises:
        OSError: The peer closed the connection; ``ssl.SSLError`` if the handshake failed.
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
