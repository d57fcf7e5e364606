"""Lets a task wait for a socket; for rare events that need no direct callback.

Nothing else may watch the socket meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable


async def readable(side: socket.socket) -> None:
    """Wait until a socket is readable, has ended or failed."""
    loop = asyncio.get_running_loop()
    await _wait(side.fileno(), loop.add_reader, loop.remove_reader)


async def writable(side: socket.socket) -> None:
    """Wait until a socket is writable or has failed."""
    loop = asyncio.get_running_loop()
    await _wait(side.fileno(), loop.add_writer, loop.remove_writer)


async def _wait(
    fd: int, add: Callable[[int, Callable[[], None]], None], remove: Callable[[int], bool]
) -> None:
    ready = asyncio.get_running_loop().create_future()
    add(fd, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        remove(fd)
