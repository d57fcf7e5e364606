"""A bridge with the token, which pushes while others attack the port of bridges."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from receiver.bridge import frames, tokens
from receiver.bridge.frames import FrameType
from tests.unit.bridge import bridge_frames
from tests.unit.bridge.support import HELLO, PUSH

#: The token of the target and of this bridge.
TOKEN: Final = b"the-token-of-an-innocent-bridge"

_EVERY_SECONDS: Final = 0.1
_PATIENCE_SECONDS: Final = 30.0
_EMPTY_METRICS: Final = b"\x0a\x00"


@dataclass(slots=True)
class InnocentBridge:
    """What a bridge went through.

    Attributes:
        acknowledged: Its pushes that were acknowledged.
        longest_ms: The longest time from a push to its acknowledgement, with what it takes to
            connect before the first one.
        problem: Why it gave up; empty if it did not.
    """

    acknowledged: int = 0
    longest_ms: float = 0.0
    problem: str = ""


@contextlib.contextmanager
def pushing(address: str) -> Iterator[InnocentBridge]:
    """Push by a bridge to ``host:port`` during the block, from its beginning to its end.

    It connects again, as a bridge does, if the receiver ends the connection.
    """
    seen, over = InnocentBridge(), threading.Event()
    thread = threading.Thread(target=_push, args=(address, seen, over))
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _push(address: str, seen: InnocentBridge, over: threading.Event) -> None:
    numbers = itertools.count(1)
    due = time.monotonic()
    while not over.is_set():
        if time.monotonic() - due > _PATIENCE_SECONDS:
            seen.problem = f"no push was acknowledged for {_PATIENCE_SECONDS:.0f} s"
            return
        with contextlib.suppress(OSError), _joined(address) as stream:
            while not over.is_set():
                number = next(numbers)
                stream.sendall(frames.frame(bridge_frames.encode_push(_numbered(number))))
                acknowledged = bridge_frames.decode_acknowledge(_read(stream))
                assert [sequence for sequence, _ in acknowledged] == [number]
                seen.acknowledged += 1
                seen.longest_ms = max(seen.longest_ms, 1e3 * (time.monotonic() - due))
                over.wait(_EVERY_SECONDS)
                due = time.monotonic()


def _numbered(number: int) -> frames.BridgedPush:
    return replace(PUSH, sequence=number, metrics=_EMPTY_METRICS)


def _joined(address: str) -> socket.socket:
    """Connect, and prove the token."""
    host, _, port = address.rpartition(":")
    stream = socket.create_connection((host, int(port)), timeout=_PATIENCE_SECONDS)
    try:
        hello = frames.encode_hello(replace(HELLO, bridge_id=os.urandom(16), nonce=os.urandom(32)))
        stream.sendall(frames.frame(hello))
        proof = tokens.proof(TOKEN, tokens.BRIDGE, hello, _read(stream))
        stream.sendall(frames.frame(bridge_frames.encode_proof(proof)))
        if _read(stream)[0] != FrameType.WELCOME:
            raise ConnectionError("the receiver refused the bridge")
    except BaseException:
        stream.close()
        raise
    return stream


def _read(stream: socket.socket) -> bytes:
    (length,) = struct.unpack(">I", _exactly(stream, 4))
    return _exactly(stream, length)


def _exactly(stream: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = stream.recv(size - len(data))
        if not part:
            raise ConnectionError("the receiver closed the connection")
        data += part
    return data
