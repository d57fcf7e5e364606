"""What a plugin's process sends, and the pushes that it is sent.

An input's first byte says which of the two the rest is.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from random import Random

from receiver.host.isolation.channel import (
    MAX_ANSWER_BYTES,
    Answer,
    Channel,
    ChannelError,
    Outcome,
    pushes_from_bytes,
    pushes_to_bytes,
)
from receiver.host.push_format import PushFormatError
from tests.fuzz.target import Target, require
from tests.unit.host.support import push

_HEAD = struct.Struct("!BQ")
_LENGTH = struct.Struct("!I")
_MAX_BYTES = 4096
_ANSWERS, _PUSHES = b"\0", b"\1"


def _run(data: bytes) -> None:
    if data[:1] == _ANSWERS:
        _run_answers(data[1:])
    else:
        _run_pushes(data[1:])


def _run_answers(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    try:
        # There is room for all of it in the pair.
        with theirs:
            theirs.sendall(data)
        taken = 0
        with contextlib.suppress(EOFError):
            while True:
                try:
                    kind, body = channel.receive(max_bytes=MAX_ANSWER_BYTES, timeout_s=1.0)
                except ChannelError:
                    return
                frame = _HEAD.pack(kind, len(body)) + body
                require(data[taken : taken + len(frame)] == frame, "a frame is not what was sent")
                taken += len(frame)
                _read_answer(body)
    finally:
        channel.close()
    require(len(data) - taken < _HEAD.size + MAX_ANSWER_BYTES, "frames were left unread")


def _read_answer(body: bytes) -> None:
    try:
        answer = Answer.model_validate_json(body)
    except ValueError:
        return
    require(answer.rejected_points >= 0, "it took points back")
    require(len(answer.text.encode()) <= len(body), "a text is longer than what it was in")


def _run_pushes(data: bytes) -> None:
    try:
        pushes = pushes_from_bytes(data)
    except PushFormatError:
        return
    at = 0
    for item in pushes:
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size + length
        require(data[:at].endswith(item.payload.data), "a push has other bytes than came")
    require(at == len(data), "the last push is not whole, or not the last")
    require(pushes_from_bytes(pushes_to_bytes(pushes)) == pushes, "pushes are not the same the second time")


def _frame(body: bytes, kind: int = 0) -> bytes:
    return _HEAD.pack(kind, len(body)) + body


def _answer(outcome: Outcome) -> bytes:
    answer = Answer(outcome=outcome, text="HTTP 503", rejected_points=3, retry_after_s=1.5)
    return answer.model_dump_json().encode()


def _seeds() -> list[bytes]:
    answers = [_frame(_answer(outcome)) for outcome in Outcome]
    return [
        *(_ANSWERS + answer for answer in answers),
        _ANSWERS + b"".join(answers),
        *(_PUSHES + pushes_to_bytes([push(n, size=n) for n in range(count)]) for count in (1, 2, 5)),
    ]


_VALUES: tuple[object, ...] = (
    0,
    -1,
    1.5,
    1e400,
    10**30,
    10**400,
    float("nan"),
    "",
    "a\n\0b",
    "\ud800",
    None,
    True,
    [],
    {},
    "crash",
)
_KEYS = ("outcome", "text", "rejected_points", "retry_after_s", "other")


def _reshape(data: bytes, random: Random) -> bytes:
    """Write frames whose lengths fit, of answers and pushes that are nearly right."""
    parts = []
    if random.random() < 0.5:
        for _ in range(random.randrange(1, 4)):
            answer = json.loads(_answer(random.choice(list(Outcome))))
            for _ in range(random.randrange(3)):
                answer[random.choice(_KEYS)] = random.choice(_VALUES)
            parts.append(
                _frame(_scratched(json.dumps(answer).encode(), random), random.choice((0, 0, 1, 255)))
            )
        return _ANSWERS + b"".join(parts) + data[: random.randrange(12)]
    for _ in range(random.randrange(1, 4)):
        encoded = pushes_to_bytes([push(random.getrandbits(10), size=random.randrange(20))])[_LENGTH.size :]
        encoded = _scratched(encoded, random)
        parts.append(_LENGTH.pack(len(encoded)) + encoded)
    body = b"".join(parts)
    return _PUSHES + body[: len(body) - random.choice((0, 0, 1, 7))]


def _scratched(data: bytes, random: Random) -> bytes:
    scratched = bytearray(data)
    for _ in range(random.choice((0, 0, 1, 3))):
        scratched[random.randrange(len(scratched))] = random.getrandbits(8)
    return bytes(scratched)


TARGET = Target(
    name="channel",
    run=_run,
    seeds=_seeds,
    tokens=(
        *(b'"%b":' % key.encode() for key in _KEYS),
        *(json.dumps(value).encode() for value in _VALUES),
        *(outcome.value.encode() for outcome in Outcome),
        b"1" * 400,
        b"[" * 300,
        b"[[",
        b"],[",
        _HEAD.pack(0, MAX_ANSWER_BYTES),
        _HEAD.pack(0, MAX_ANSWER_BYTES + 1),
    ),
    reshape=_reshape,
    max_bytes=_MAX_BYTES,
    max_memory=16 << 20,
    brief=20_000,
)
