"""Channel between the receiver and a plugin's process: frames over a socket pair.

Owns the framing, and the form of requests and answers. Only bytes and plain values cross the
channel. The receiver bounds and checks the bytes of a plugin's process like those of any peer.

A frame is one byte (:class:`Request`; 0 in answers), the body's length in eight bytes, and the
body:

=======  ====================================================================
LOAD     JSON of :class:`Load`
START    nothing
EXPORT   pushes: four bytes of length and :mod:`receiver.host.push_format` each
STOP     nothing
RENEW    nothing
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

#: The most bytes of an answer, which is a line of text and some numbers.
MAX_ANSWER_BYTES = 65_536

#: The most ends of threads that an answer tells.
MAX_ENDED = 4

#: The exit status of a process that reached its memory limit; no shell or interpreter uses it.
OUT_OF_MEMORY_STATUS = 99

#: The values of the argument that tells whether the user's other processes may read the child's
#: memory.
DUMPABLE = "dumpable"
PRIVATE = "private"

_HEAD = struct.Struct("!BQ")
_LENGTH = struct.Struct("!I")


class ChannelError(ValueError):
    """The other side sent a frame that is too long."""


class Request(IntEnum):
    """A request of the receiver to a plugin's process; each gets one answer."""

    LOAD = 1
    START = 2
    EXPORT = 3
    STOP = 4
    RENEW = 5


class Outcome(StrEnum):
    """The outcome of a call, one for each exception of the plugin contract."""

    DONE = "done"
    RETRYABLE = "retryable"
    UNCLEAR = "unclear"
    BATCH_REFUSED = "batch_refused"
    PERMANENT = "permanent"
    CRASH = "crash"


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Load(_Message):
    """What the child needs to construct the plugin."""

    config: str = Field(repr=False)
    """The operator's settings for the plugin, as JSON. The child reads secrets in files itself."""
    sys_path: list[str]
    """The receiver's module path."""
    max_memory_bytes: int
    """Address space that the child may allocate once it has started."""


class Ended(_Message):
    """A thread or a finalizer of the plugin that has ended by an exception."""

    worker: str = Field(max_length=100)
    error: str = Field(max_length=100)
    """The name of the exception's type. Its text may hold a secret."""
    traceback: str = Field(max_length=4_000)
    """Where it happened."""


class Answer(_Message):
    """The answer to a request."""

    outcome: Outcome
    text: str = ""
    """The error, or the destination's message, on one line and without secrets."""
    rejected_points: int = Field(default=0, ge=0)
    sent: bool = True
    """Whether the destination was asked."""
    retry_after_s: float | None = None
    """The delay that the destination asked for, in seconds."""
    cpu_s: float = Field(default=0.0, ge=0, le=86_400)
    """CPU seconds that the child spent on the request, in all its threads."""
    ended: list[Ended] = Field(default=[], max_length=MAX_ENDED)
    """What has ended since the answer before."""


class Channel:
    """One end of the channel, which owns its connected stream socket."""

    def __init__(self, stream: socket.socket) -> None:
        self._socket = stream

    def send(self, kind: int, body: bytes, *, timeout_s: float | None = None) -> None:
        """Send one frame.

        Args:
            kind: A :class:`Request`, or 0 for an answer.
            timeout_s: The time limit in seconds; None for no limit.

        Raises:
            TimeoutError: The time limit passed.
            OSError: The other side has closed its end.
        """
        self._socket.settimeout(timeout_s)
        # One write, because copying a large body costs less than waking the other side twice.
        self._socket.sendall(_HEAD.pack(kind, len(body)) + body)

    def receive(self, *, max_bytes: int | None = None, timeout_s: float | None = None) -> tuple[int, bytes]:
        """Receive one frame: its kind and its body.

        Args:
            max_bytes: The longest accepted body; None for no limit.
            timeout_s: The time limit in seconds; None for no limit.

        Raises:
            TimeoutError: The time limit passed.
            EOFError: The other side has closed its end.
            ChannelError: The body is longer than ``max_bytes``.
            OSError: The connection failed.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        kind, length = _HEAD.unpack(self._exactly(_HEAD.size, deadline))
        if max_bytes is not None and length > max_bytes:
            raise ChannelError(f"frame of {length} bytes: expected at most {max_bytes}")
        return kind, self._exactly(length, deadline)

    def close(self) -> None:
        """Close this end."""
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
    """Return the body of an EXPORT request."""
    parts: list[bytes] = []
    for push in pushes:
        encoded = encode_push(push)
        parts += (_LENGTH.pack(len(encoded)), encoded)
    return b"".join(parts)


def pushes_from_bytes(body: bytes) -> list[Push]:
    """Return the pushes in the body of an EXPORT request.

    Raises:
        PushFormatError: The body is malformed.
    """
    pushes, view, at = [], memoryview(body), 0
    while at < len(body):
        start = at + _LENGTH.size
        at = start + int.from_bytes(view[at:start])
        if at > len(body):
            raise PushFormatError("the last push is truncated")
        pushes.append(decode_push(view[start:at]))
    return pushes
