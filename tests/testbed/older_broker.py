"""Makes a real broker look older to its clients: some of its RPCs are not offered.

A relay removes API keys from the answers to ApiVersions and passes everything else on. The broker
must advertise the relay's port.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Final, Self

from tests.testbed.ports import LOOPBACK

_API_VERSIONS: Final = 18
#: From this version on, lists are compact and entries have tagged fields.
_FLEXIBLE: Final = 3


class OlderBroker:
    """A relay to a broker's listener, within its context.

    Args:
        port: Where it listens on 127.0.0.1.
        upstream: The port of the broker's listener.
        without: API keys that it removes.

    Attributes:
        without: The same; it may be changed for connections to come.
    """

    def __init__(self, port: int, upstream: int, without: frozenset[int]) -> None:
        self.without = without
        self._port = port
        self._upstream = upstream
        self._listening = socket.socket()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listening.bind((LOOPBACK, self._port))
        self._listening.listen()
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join()

    def disconnect(self) -> None:
        """End all connections."""
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _start(self, run: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            broker = socket.create_connection((LOOPBACK, self._upstream))
            self._open += [client, broker]
            versions: dict[int, int] = {}  # of ApiVersions requests by correlation id
            self._start(self._requests, client, broker, versions)
            self._start(self._responses, broker, client, versions)

    def _requests(self, client: socket.socket, broker: socket.socket, versions: dict[int, int]) -> None:
        def note(frame: bytes) -> bytes:
            key, version, correlation_id = struct.unpack_from(">hhi", frame)
            if key == _API_VERSIONS:
                versions[correlation_id] = version
            return frame

        _relay(client, broker, note)

    def _responses(self, broker: socket.socket, client: socket.socket, versions: dict[int, int]) -> None:
        def edit(frame: bytes) -> bytes:
            version = versions.pop(struct.unpack_from(">i", frame)[0], None)
            return frame if version is None else _edited(frame, version, self.without)

        _relay(broker, client, edit)


def _relay(source: socket.socket, target: socket.socket, change: Callable[[bytes], bytes]) -> None:
    with contextlib.suppress(OSError, EOFError):
        while True:
            (size,) = struct.unpack(">i", _exactly(source, 4))
            frame = change(_exactly(source, size))
            target.sendall(struct.pack(">i", len(frame)) + frame)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    source.close()


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _edited(frame: bytes, version: int, without: frozenset[int]) -> bytes:
    """Return an answer to ApiVersions without the API keys."""
    at = 6  # after correlation id and error code
    if struct.unpack_from(">h", frame, 4)[0] != 0:
        return frame
    if version >= _FLEXIBLE:
        size, count = 7, frame[at] - 1
        assert frame[at] < 0x80, "a list of fewer than 127 entries"
        at += 1
    else:
        size, count = 6, struct.unpack_from(">i", frame, at)[0]
        at += 4
    entries = [frame[at + size * index : at + size * (index + 1)] for index in range(count)]
    kept = [entry for entry in entries if struct.unpack_from(">h", entry)[0] not in without]
    head = bytes([len(kept) + 1]) if version >= _FLEXIBLE else struct.pack(">i", len(kept))
    return frame[:6] + head + b"".join(kept) + frame[at + size * count :]
