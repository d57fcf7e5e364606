"""A receiver that does what a test says: takes pushes, keeps silent or goes away."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from receiver.bridge.conversation import Conversation, ConversationError, Joined, StatisticsReported
from receiver.bridge.frames import BridgedPush, Hello, Result
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import wait_until

TOKEN: Final = b"a-token-of-the-tests-0123456789"
_MAX_PUSH_BYTES: Final = 1 << 20
#: So small that a few pushes fill it.
WINDOW: Final = 16


class Peer:
    """A receiver of bridges at a port of 127.0.0.1, or at a Unix socket, within its context.

    Args:
        port: Where it listens; None: a free port.
        path: The file of its Unix socket; None: it has the port.
        answers: Whether it acknowledges what it takes.
        keeps: Whether it keeps what has arrived.
        window: The most pushes that it lets a bridge send without an acknowledgement.

    Attributes:
        port: As given, or the free one.
        answers: As given; it may be changed.
        delay_s: How long it takes for each push; it may be changed.
        pushes: What has arrived, with repeats.
        count: The number of pushes that have arrived.
        hellos: The bridges that have proven their token, in order.
        statistics: The last counters of the bridge.
    """

    def __init__(
        self,
        port: int | None = None,
        *,
        path: Path | None = None,
        answers: bool = True,
        keeps: bool = True,
        window: int = WINDOW,
    ) -> None:
        self.port = free_port() if port is None else port
        self.answers = answers
        self.delay_s = 0.0
        self.pushes: list[BridgedPush] = []
        self.count = 0
        self._keeps = keeps
        self._window = window
        self.hellos: list[Hello] = []
        self.statistics: dict[str, int] = {}
        self._path = path
        self._listening = socket.socket(socket.AF_INET if path is None else socket.AF_UNIX)
        self._open: list[socket.socket] = []
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        if self._path is None:
            self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listening.bind((LOOPBACK, self.port))
        else:
            self._path.unlink(missing_ok=True)
            self._listening.bind(str(self._path))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Go away."""
        self._closed.set()
        for end in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def wait_for(self, client_id: str, count: int = 1) -> list[BridgedPush]:
        """Wait until so many pushes of a client have arrived, and return them."""
        wait_until(
            lambda: len(self.of(client_id)) >= count, timeout_s=90, what=f"{count} pushes of {client_id}"
        )
        return self.of(client_id)

    def of(self, client_id: str) -> list[BridgedPush]:
        """The pushes of a client."""
        return [push for push in list(self.pushes) if push.client_id == client_id]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                end, _ = self._listening.accept()
                self._open.append(end)
                threading.Thread(target=self._serve, args=(end,), daemon=True).start()

    def _serve(self, end: socket.socket) -> None:
        talk = Conversation(
            accepted_tokens=(TOKEN,),
            nonce=os.urandom(32),
            max_push_bytes=_MAX_PUSH_BYTES,
            window=self._window,
        )
        welcomed = False
        with contextlib.suppress(OSError):
            for data in _received(end):
                talk.receive(data)
                try:
                    self._take(talk)
                except ConversationError:
                    end.sendall(talk.to_send())
                    end.close()
                    return
                if self.answers or not welcomed:
                    end.sendall(talk.to_send())
                welcomed = talk.hello is not None

    def _take(self, talk: Conversation) -> None:
        while (event := talk.next_event()) is not None:
            match event:
                case Joined(hello):
                    self.hellos.append(hello)
                case StatisticsReported(values):
                    self.statistics = values
                case BridgedPush():
                    self._closed.wait(self.delay_s)
                    self.count += 1
                    if self._keeps:
                        self.pushes.append(event)
                    if self.answers:
                        talk.acknowledge(event.sequence, Result.ACCEPTED)


def _received(end: socket.socket) -> Iterator[bytes]:
    while data := end.recv(65_536):
        yield data
