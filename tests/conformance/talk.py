"""One raw connection to a peer: frames out, frames in, and how it ends.

Owns the socket and the times that a case waits. It reads no frame's meaning.
"""

from __future__ import annotations

import socket
import struct
from enum import StrEnum
from typing import Self

from tests.testbed.ports import LOOPBACK

#: An answer takes milliseconds; a peer that is silent this long has hung, even on a loaded machine.
ANSWER_WITHIN_S = 120.0


class Fate(StrEnum):
    """What came instead of a response; a reset counts as a close, as it depends on unread bytes."""

    CLOSED = "closed"
    SILENT = "no answer"


class Talk:
    """A connection of one client."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((LOOPBACK, port), ANSWER_WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes; a connection that is closed already shows at the next answer."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def receive(self, within_s: float = ANSWER_WITHIN_S) -> bytes | Fate:
        """The next frame, without its length, or what came in place of it."""
        length = self._exactly(4, within_s)
        if isinstance(length, Fate):
            return length
        return self._exactly(struct.unpack(">i", length)[0], within_s)

    def _exactly(self, size: int, within_s: float) -> bytes | Fate:
        self._socket.settimeout(within_s)
        while len(self._received) < size:
            try:
                chunk = self._socket.recv(65536)
            except TimeoutError:
                return Fate.SILENT
            except ConnectionResetError:
                return Fate.CLOSED
            if not chunk:
                return Fate.CLOSED
            self._received += chunk
        data, self._received = self._received[:size], self._received[size:]
        return data
