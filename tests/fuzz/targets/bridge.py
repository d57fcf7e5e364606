"""Fuzzes what a bridge sends to the receiver (docs/bridge-protocol.md).

An input's first byte says whether the bridge has proven its token, and how large the pieces are in
which the rest arrives. In one piece, the conversation must have the same events and answers.
"""

from __future__ import annotations

from random import Random

from receiver.bridge import frames
from receiver.bridge.conversation import Conversation, ConversationError, Event
from receiver.bridge.frames import BridgedPush, FrameError, Result
from tests.fuzz.target import Target, require
from tests.unit.bridge import bridge_frames
from tests.unit.bridge.support import HELLO, WINDOW, conversation, joined, prove, push

_MAX_REASON_CHARACTERS = 300


def _converse(talk: Conversation, data: bytes, piece: int) -> tuple[list[str], bytes]:
    events, out = [], b""
    try:
        for start in range(0, len(data), piece):
            talk.receive(data[start : start + piece])
            while (event := talk.next_event()) is not None:
                events.append(_check(talk, event))
    except ConversationError as error:
        events.append(str(error))
        require(len(str(error)) <= _MAX_REASON_CHARACTERS, "a reason as long as the bytes allow")
        out = talk.to_send()
        require(talk.next_event() is None, "a conversation that has ended goes on")
    require(talk.waiting_bytes <= len(data), "more waits than has arrived")
    return events, out


def _check(talk: Conversation, event: Event) -> str:
    if isinstance(event, BridgedPush):
        require(talk.hello is not None, "a push is taken before the proof")
        require(0 < talk.in_flight <= WINDOW, "more pushes are in flight than may be")
        again = frames.decode_push(bridge_frames.encode_push(event))
        require(again.metrics == event.metrics and again.sequence == event.sequence, "the push changes")
        if event.sequence % 2:
            talk.acknowledge(event.sequence, Result.ACCEPTED)
        return f"{event.sequence} {len(event.metrics)} {event.client_id!r}"
    return repr(event)


def _run(data: bytes) -> None:
    if not data:
        return
    start, piece, rest = (joined if data[0] % 2 else conversation), 1 + data[0] // 2, data[1:]
    whole = _converse(start(), rest, max(len(rest), 1))
    require(_converse(start(), rest, piece) == whole, "it depends on the pieces")
    for decode in (frames.decode_challenge, bridge_frames.decode_welcome, bridge_frames.decode_acknowledge):
        try:
            decode(rest)
        except FrameError as error:
            require(len(str(error)) <= _MAX_REASON_CHARACTERS, "an error as long as the bytes allow")


def _seeds() -> list[bytes]:
    statistics = frames.frame(bridge_frames.encode_statistics(range(13)))
    proven = prove(conversation())
    hello = frames.frame(frames.encode_hello(HELLO))
    return [
        b"\x00" + hello + proven + push(1) + statistics,
        b"\x07" + push(1) + push(2) + statistics + push(3, b"\x0a" * 60),
        b"\x31" + b"".join(map(push, range(0, 12, 2))),
        b"\x01" + statistics,
        b"\x00" + hello,
    ]


def _reshape(data: bytes, random: Random) -> bytes:
    """Send known frames in any order, one of them with another length."""
    parts = [data[1:], push(random.randrange(9), bytes(random.randrange(40)))]
    parts.append(frames.frame(bridge_frames.encode_statistics(range(random.randrange(70)))))
    random.shuffle(parts)
    joint = bytearray(b"".join(parts))
    if random.random() < 0.5 and len(joint) > 4:
        joint[3] = random.randrange(256)
    return data[:1] + bytes(joint)[:2000]


TARGET = Target(
    name="bridge",
    run=_run,
    seeds=_seeds,
    tokens=(b"KTBP", b"\0\0\0\x21\x03", b"\0\0\0\x02\x06\0", b"\xff\xff"),
    reshape=_reshape,
    max_bytes=2048,
    max_memory=8 << 20,
    brief=4000,
)
