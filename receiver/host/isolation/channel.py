"""What the receiver and the process of a plugin say to each other: whole frames over a pair of sockets.

Owns the framing and the form of requests and answers. Only bytes and plain values cross, never objects: what
a plugin's process sends is read as any peer's bytes are, bounded and checked. Starts and calls nothing.

A frame is one byte (:class:`Request`; 0 in answers), the body's length in eight bytes, and the body:

=======  ====================================================================
LOAD     JSON of :class:`Load`
START    nothing
EXPORT   pushes: four bytes of length and :mod:`receiver.host.push_format` each
STOP     nothing
answer   JSON of :class:`Answer`
=======  ====================================================================
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable
from enum import IntEnum, StrEnum

from pydantic import BaseModel, ConfigDict, Field

from receiver.host.push_format import PushFormatError, decode_push, encode_push
from receiver.plugin import Push

__all__ = [
    "DUMPABLE",
    "MAX_ANSWER_BYTES",
    "OUT_OF_MEMORY_STATUS",
    "PRIVATE",
    "Answer",
    "ChannelError",
    "Load",
    "Outcome",
    "PluginChannel",
    "Request",
    "pushes_from_bytes",
    "pushes_to_bytes",
]

#: An answer is a line of text and some numbers.
MAX_ANSWER_BYTES = 65_536

#: The exit status of a process that ran out of the memory it may take; no shell or interpreter uses it.
OUT_OF_MEMORY_STATUS = 99

#: The argument that says whether other processes of its user may read the process's memory.
DUMPABLE = "dumpable"
PRIVATE = "private"

_HEAD = struct.Struct("!BQ")
_LENGTH = struct.Struct("!I")


class ChannelError(ValueError):
    """The other side sent what is no frame, or a longer one than it may."""


class Request(IntEnum):
    """What the receiver asks of a plugin's process; each gets one answer."""

    LOAD = 1
    START = 2
    EXPORT = 3
    STOP = 4


class Outcome(StrEnum):
    """How a call of the plugin went, as the contract's exceptions tell it apart."""

    DONE = "done"
    RETRYABLE = "retryable"
    BATCH_REFUSED = "batch_refused"
    PERMANENT = "permanent"
    CRASH = "crash"


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Load(_Message):
    """What the process needs to construct the plugin as the receiver did.

    Attributes:
        config: JSON of the plugin's own settings as the operator gave them; secrets in files are read by it.
        sys_path: Where the receiver finds modules.
        max_memory_bytes: Address space that the process may take beyond what it has once started.
    """

    config: str = Field(repr=False)
    sys_path: list[str]
    max_memory_bytes: int


class Answer(_Message):
    """How a request went.

    Attributes:
        outcome: The kind.
        text: A reason or the destination's message, on one line and without secrets.
        rejected_points: Data points that the destination refused.
        retry_after_s: The destination's wish for the delay in seconds.
        cpu_s: CPU seconds that the process took for it, in all of its threads.
    """

    outcome: Outcome
    text: str = ""
    rejected_points: int = Field(default=0, ge=0)
    retry_after_s: float | None = None
    cpu_s: float = Field(default=0.0, ge=0, le=86_400)


class PluginChannel:
    """One end of the pair of sockets.

    Args:
        end: A connected stream socket; the channel owns it.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def send(self, kind: int, body: bytes, *, timeout_s: float | None = None) -> None:
        """Send one frame.

        Args:
            kind: A :class:`Request`, or 0 for an answer.
            body: The body.
            timeout_s: How long it may take; None: without end.

        Raises:
            TimeoutError: It took longer.
            OSError: The other side is gone.
        """
        self._socket.settimeout(timeout_s)
        # One write for the small ones; a copy of a large body costs less than waking the other side twice.
        self._socket.sendall(_HEAD.pack(kind, len(body)) + body)

    def receive(self, *, max_bytes: int | None = None, timeout_s: float | None = None) -> tuple[int, bytes]:
        """Receive one frame.

        Args:
            max_bytes: The longest body to take; None: any.
            timeout_s: How long it may take; None: without end.

        Returns:
            The kind and the body.

        Raises:
            TimeoutError: It took longer.
            EOFError: The other side is gone.
            ChannelError: The body is longer than it may be.
            OSError: The other side is gone.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        kind, length = _HEAD.unpack(self._exactly(_HEAD.size, deadline))
        if max_bytes is not None and length > max_bytes:
            raise ChannelError(f"a frame of {length} bytes is longer than {max_bytes}")
        return kind, self._exactly(length, deadline)

    def close(self) -> None:
        """Close this end; the other side sees it."""
        self._socket.close()

    def _exactly(self, size: int, deadline: float | None) -> bytes:
        buffer = bytearray(size)
        rest = memoryview(buffer)
        while rest:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            read = self._socket.recv_into(rest)
            if not read:
                raise EOFError
            rest = rest[read:]
        return bytes(buffer)


def pushes_to_bytes(pushes: Iterable[Push]) -> bytes:
    """The body of an EXPORT request."""
    parts: list[bytes] = []
    for push in pushes:
        encoded = encode_push(push)
        parts += (_LENGTH.pack(len(encoded)), encoded)
    return b"".join(parts)


def pushes_from_bytes(body: bytes) -> list[Push]:
    """The pushes of an EXPORT request.

    Raises:
        PushFormatError: They are none.
    """
    pushes, view, at = [], memoryview(body), 0
    while at < len(body):
        start = at + _LENGTH.size
        at = start + int.from_bytes(view[at:start])
        if at > len(body):
            raise PushFormatError("the last push is cut off")
        pushes.append(decode_push(view[start:at]))
    return pushes
