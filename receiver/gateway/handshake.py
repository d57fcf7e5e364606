"""The TLS handshake, of either side, on a non-blocking socket.

Owns when it goes on. A step costs up to a millisecond in which nobody else is served, so there is one step in
a turn of the event loop, however many peers are at it: whoever has connections open is served in between,
and whoever waits for a step gets it in the order of asking. A peer that says nothing has no turn to hold.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio import Lock
from collections.abc import Awaitable, Callable

from receiver.gateway.tls_socket import TlsSocket
from receiver.gateway.waiting import readable, writable

__all__ = ["handshake"]


async def handshake(tls: TlsSocket, turn: Lock) -> None:
    """Shake hands.

    Args:
        tls: The connection; the event loop must watch it for nobody else.
        turn: Held for each step and for the rest of the event loop's turn.

    Raises:
        OSError: The peer is gone; an ``ssl.SSLError`` where the two can't agree.
    """
    wait: Callable[[socket.socket], Awaitable[None]] | None
    while True:
        async with turn:
            try:
                wait = _step(tls)
            finally:
                await asyncio.sleep(0)
        if wait is None:
            return
        await wait(tls)


def _step(tls: TlsSocket) -> Callable[[socket.socket], Awaitable[None]] | None:
    """Go on as far as possible; return how to wait for what is missing, None where it is over."""
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return readable
    except ssl.SSLWantWriteError:
        return writable
    return None
