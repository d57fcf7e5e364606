"""Lets a task wait for a socket; for rare events that need no direct callback."""

from __future__ import annotations

import asyncio
import socket
from asyncio import Future

__all__ = ["readable", "writable"]


async def readable(side: socket.socket) -> None:
    """Wait until a socket is readable, has ended or failed.

    Nothing else may watch the socket meanwhile.
    """
    loop = asyncio.get_running_loop()
    ready, fd = loop.create_future(), side.fileno()
    loop.add_reader(fd, _set, ready)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


async def writable(side: socket.socket) -> None:
    """Wait until a socket is writable or has failed.

    Nothing else may watch the socket meanwhile.
    """
    loop = asyncio.get_running_loop()
    ready, fd = loop.create_future(), side.fileno()
    loop.add_writer(fd, _set, ready)
    try:
        await ready
    finally:
        loop.remove_writer(fd)


def _set(ready: Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
