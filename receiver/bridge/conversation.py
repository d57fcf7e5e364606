"""The receiver's side of a conversation (docs/bridge-protocol.md).

Pure: bytes in, events and bytes to send out. Its states:

=============  ==============  ==============================================================
state          takes           then
=============  ==============  ==============================================================
greeting       Hello           sends a Challenge
challenged     Proof           sends a Welcome; the bridge is known from here on
open           Push            counts it in flight, until :meth:`acknowledge`
open           Statistics      sends an Acknowledge with the next ones, or an empty one
any            anything else   sends Refused with the reason, and raises ConversationError
=============  ==============  ==============================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, TypeAlias

from receiver.bridge import frames, tokens
from receiver.bridge.frames import (
    BOUNDS,
    LENGTH_BYTES,
    BridgedPush,
    Challenge,
    FrameError,
    FrameType,
    Hello,
    Result,
    Welcome,
)

_LENGTH: Final = Struct(">I")
#: The longest frame of a bridge that is not known yet.
_MAX_UNKNOWN_BYTES: Final = 8192
#: Pushes in an Acknowledge, at most.
_MAX_ACKNOWLEDGED: Final = 65_535


class ConversationError(Exception):
    """The conversation ends; the text is the reason, which the bridge was sent.

    ``kind`` is ``token``, ``version`` or ``protocol``.
    """

    def __init__(self, reason: str, kind: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Joined:
    """The bridge has proven that it has a token."""

    hello: Hello


@dataclass(frozen=True, slots=True)
class StatisticsReported:
    """The counters of the bridge, by name."""

    values: dict[str, int]


Event: TypeAlias = Joined | BridgedPush | StatisticsReported


class Conversation:
    """One connection of a bridge.

    Args:
        accepted_tokens: The tokens, any of which the bridge may have.
        nonce: 32 random bytes.
        window: The most pushes without an acknowledgement.

    Attributes:
        hello: What the bridge said of itself; None until it has proven its token.
        in_flight: Pushes that are not acknowledged.
    """

    def __init__(
        self, *, accepted_tokens: Sequence[bytes], nonce: bytes, max_push_bytes: int, window: int
    ) -> None:
        self.hello: Hello | None = None
        self.in_flight = 0
        self._tokens = tuple(accepted_tokens)
        self._nonce = nonce
        self._max_push_bytes = max_push_bytes
        self._window = window
        self._received = bytearray()
        self._start = 0  # of the first frame that is not handled
        self._said: tuple[Hello, bytes, bytes] | None = None  # Hello, and both frames of the proofs
        self._results: list[tuple[int, Result]] = []
        self._asked = False
        self._out: list[bytes] = []
        self._ended = False

    @property
    def waiting_bytes(self) -> int:
        """Bytes that have arrived and are not handled."""
        return len(self._received) - self._start

    def receive(self, data: bytes | memoryview) -> None:
        """Take bytes that arrived; :meth:`next_event` handles them."""
        if self._start:
            del self._received[: self._start]
            self._start = 0
        self._received += data

    def next_event(self) -> Event | None:
        """Handle the next frame that has arrived; None when there is no whole one.

        A push's metrics are valid until the next call of a method.

        Raises:
            ConversationError: The conversation has ended; send what is left, and close.
        """
        while not self._ended:
            data = self._next_frame()
            if data is None:
                return None
            try:
                event = self._handle(data)
            except FrameError as error:
                raise self.refuse(str(error)) from None
            if event is not None:
                return event
        return None

    def acknowledge(self, sequence: int, result: Result) -> None:
        """Say what became of a push."""
        self.in_flight -= 1
        self._results.append((sequence, result))

    def refuse(self, reason: str, kind: str = "protocol") -> ConversationError:
        """End the conversation for a reason, and return the error to raise."""
        if not self._ended:
            self._ended = True
            self._out.append(frames.frame(frames.encode_refused(reason)))
        return ConversationError(reason, kind)

    def to_send(self) -> bytes:
        """Return the bytes to send now, and forget them."""
        while (self._results or self._asked) and not self._ended:
            results, self._results = (
                self._results[:_MAX_ACKNOWLEDGED],
                self._results[_MAX_ACKNOWLEDGED:],
            )
            self._asked = False
            self._out.append(frames.frame(frames.encode_acknowledge(results)))
        out = b"".join(self._out)
        self._out.clear()
        return out

    def _next_frame(self) -> bytes | None:
        received, start = self._received, self._start
        if len(received) - start < LENGTH_BYTES:
            return None
        (length,) = _LENGTH.unpack_from(received, start)
        begin = start + LENGTH_BYTES
        if length == 0 or length > self._longest():
            raise self.refuse(f"a frame of {length} bytes is not from 1 to {self._longest()}")
        if len(received) > begin:
            self._check_length(received[begin], length)
        if len(received) - begin < length:
            return None
        self._start = begin + length
        return bytes(memoryview(received)[begin : begin + length])

    def _longest(self) -> int:
        return _MAX_UNKNOWN_BYTES if self.hello is None else BOUNDS[FrameType.PUSH] + self._max_push_bytes

    def _check_length(self, kind: int, length: int) -> None:
        """Refuse a frame that is too long for its type, before it is received."""
        bound = BOUNDS.get(kind)
        if bound is None:
            raise self.refuse(f"a bridge sends no frame of type {kind}")
        if length > bound + (self._max_push_bytes if kind == FrameType.PUSH else 0):
            raise self.refuse(f"a frame of type {kind} with {length} bytes is too long")

    def _handle(self, data: bytes) -> Event | None:
        kind = data[0]
        if self.hello is not None and kind == FrameType.PUSH:
            return self._push(data)
        if self.hello is not None and kind == FrameType.STATISTICS:
            self._asked = True
            return StatisticsReported(frames.decode_statistics(data))
        if self._said is None and kind == FrameType.HELLO:
            self._challenge(data)
            return None
        if self._said is not None and self.hello is None and kind == FrameType.PROOF:
            return self._welcome(*self._said, frames.decode_proof(data))
        raise self.refuse(f"a frame of type {kind} is not expected now")

    def _push(self, data: bytes) -> BridgedPush:
        if self.in_flight >= self._window:
            raise self.refuse(f"more than {self._window} pushes wait for their acknowledgement")
        push = frames.decode_push(data)
        if len(push.metrics) > self._max_push_bytes:
            raise self.refuse(f"metrics of {len(push.metrics)} bytes are more than {self._max_push_bytes}")
        self.in_flight += 1
        return push

    def _challenge(self, data: bytes) -> None:
        hello = frames.decode_hello(data)
        if not hello.min_version <= frames.VERSION <= hello.max_version:
            raise self.refuse(
                f"the bridge speaks versions {hello.min_version} to {hello.max_version} of the protocol, and "
                f"the receiver {frames.VERSION}",
                "version",
            )
        challenge = frames.encode_challenge(Challenge(version=frames.VERSION, nonce=self._nonce))
        self._said = hello, data, challenge
        self._out.append(frames.frame(challenge))

    def _welcome(self, hello: Hello, said: bytes, challenge: bytes, shown: bytes) -> Joined:
        token = tokens.find_token(self._tokens, shown, said, challenge)
        if token is None:
            raise self.refuse("the bridge does not have the receiver's token (bridge.token.file)", "token")
        answer = Welcome(
            proof=tokens.proof(token, tokens.RECEIVER, said, challenge),
            max_push_bytes=self._max_push_bytes,
            window=self._window,
        )
        self._out.append(frames.frame(frames.encode_welcome(answer)))
        self.hello = hello
        return Joined(hello)
