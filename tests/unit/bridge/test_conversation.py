"""The receiver's side of the conversation, by its table of states."""

from __future__ import annotations

import pytest

from receiver.bridge import frames, tokens
from receiver.bridge.conversation import Conversation, ConversationError, Joined, StatisticsReported
from receiver.bridge.frames import BridgedPush, FrameType, Result
from receiver.bridge.tokens import TokenError, parse_tokens
from tests.unit.bridge import bridge_frames
from tests.unit.bridge.support import (
    HELLO,
    MAX_PUSH_BYTES,
    TOKEN,
    WINDOW,
    conversation,
    joined,
    prove,
    push,
    split,
)


def _read_all(receiver: Conversation) -> None:
    while receiver.next_event() is not None:
        pass


def refused(receiver: Conversation, data: bytes) -> str:
    """Send what the receiver refuses, and return the reason."""
    receiver.receive(data)
    with pytest.raises(ConversationError) as caught:
        _read_all(receiver)
    last = split(receiver.to_send())[-1]
    assert last[0] == FrameType.REFUSED
    assert frames.decode_refused(last) == str(caught.value)
    receiver.receive(push(1))
    assert receiver.next_event() is None
    assert receiver.to_send() == b""
    return str(caught.value)


def test_both_ends_prove_the_token() -> None:
    receiver = conversation(b"another-token-here", TOKEN)
    said = frames.encode_hello(HELLO)
    receiver.receive(frames.frame(said))
    assert receiver.next_event() is None
    (challenge,) = split(receiver.to_send())
    shown = tokens.proof(TOKEN, tokens.BRIDGE, said, challenge)
    receiver.receive(frames.frame(bridge_frames.encode_proof(shown)))
    assert receiver.next_event() == Joined(HELLO)
    welcome = bridge_frames.decode_welcome(split(receiver.to_send())[0])
    assert welcome.proof == tokens.proof(TOKEN, tokens.RECEIVER, said, challenge)
    assert welcome.proof != shown
    assert (welcome.max_push_bytes, welcome.window) == (MAX_PUSH_BYTES, WINDOW)


def test_a_bridge_without_the_token_is_refused() -> None:
    receiver = conversation()
    assert "bridge.token.file" in refused(receiver, prove(receiver, b"not-the-right-token"))
    assert receiver.hello is None


def test_a_proof_of_another_conversation_is_worth_nothing() -> None:
    first = conversation()
    shown = prove(first)
    other = Conversation(accepted_tokens=(TOKEN,), nonce=b"t" * 32, max_push_bytes=10, window=1)
    other.receive(frames.frame(frames.encode_hello(HELLO)))
    assert other.next_event() is None
    assert "bridge.token.file" in refused(other, shown)


def test_nothing_is_taken_before_the_proof() -> None:
    assert "not expected" in refused(conversation(), push(1))
    receiver = conversation()
    prove(receiver)
    assert "not expected" in refused(receiver, push(1))
    statistics = frames.frame(bridge_frames.encode_statistics([1]))
    assert "not expected" in refused(conversation(), statistics)


def test_another_version_is_refused_by_both_versions() -> None:
    newer = frames.encode_hello(HELLO)
    newer = newer[:5] + b"\x02\x03" + newer[7:]
    assert refused(conversation(), frames.frame(newer)) == (
        "the bridge speaks versions 2 to 3 of the protocol, and the receiver 1"
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0\0\0\0", "a frame of 0 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes"),
        (b"\0\0\0\x05\x63abcd", "no frame of type 99"),
        (b"\0\0\0\x22\x02" + b"c" * 33, "no frame of type 2"),
        (b"\0\0\x20\0\x03", "a frame of type 3 with 8192 bytes is too long"),
        (b"\0\0\x20\0\x06", "a frame of type 6 with 8192 bytes is too long"),
    ],
)
def test_what_no_bridge_sends_is_refused_before_it_is_received(data: bytes, reason: str) -> None:
    assert reason in refused(conversation(), data)


def test_pushes_are_acknowledged_in_any_order_and_together() -> None:
    receiver = joined()
    receiver.receive(push(1) + push(2) + push(3))
    taken = [receiver.next_event() for _ in range(3)]
    assert [item.sequence for item in taken if isinstance(item, BridgedPush)] == [1, 2, 3]
    assert receiver.next_event() is None
    receiver.acknowledge(3, Result.REFUSED)
    receiver.acknowledge(1, Result.ACCEPTED)
    (acknowledge,) = split(receiver.to_send())
    assert bridge_frames.decode_acknowledge(acknowledge) == [(3, Result.REFUSED), (1, Result.ACCEPTED)]
    assert receiver.in_flight == 1
    assert receiver.to_send() == b""


def test_a_conversation_works_byte_by_byte() -> None:
    receiver = conversation()
    found = []
    for part in (prove(receiver), push(1), push(2)):
        for index in range(len(part)):
            receiver.receive(part[index : index + 1])
            event = receiver.next_event()
            if event is not None:
                found.append(type(event))
    assert found == [Joined, BridgedPush, BridgedPush]
    assert receiver.waiting_bytes == 0


def test_a_bridge_has_no_more_pushes_in_flight_than_it_may() -> None:
    receiver = joined()
    assert f"more than {WINDOW} pushes" in refused(receiver, b"".join(map(push, range(WINDOW + 1))))


def test_metrics_have_a_bound() -> None:
    receiver = joined()
    receiver.receive(push(1, bytes(MAX_PUSH_BYTES)))
    assert isinstance(receiver.next_event(), BridgedPush)
    assert "1001 bytes are more than 1000" in refused(receiver, push(2, bytes(MAX_PUSH_BYTES + 1)))
    assert "is not from 1 to" in refused(joined(), (10**6).to_bytes(4, "big"))


def test_statistics_are_answered_though_nothing_waits() -> None:
    receiver = joined()
    receiver.receive(frames.frame(bridge_frames.encode_statistics([4, 3])))
    assert receiver.next_event() == StatisticsReported({"received": 4, "forwarded": 3})
    (acknowledge,) = split(receiver.to_send())
    assert bridge_frames.decode_acknowledge(acknowledge) == []


def test_tokens_are_read_a_line_each() -> None:
    assert parse_tokens(b"\n  0123456789abcdef \r\nfedcba9876543210\n") == (
        b"0123456789abcdef",
        b"fedcba9876543210",
    )
    for content, problem in (
        (b" \n", "is empty"),
        (b"short", "fewer than 16"),
        (b"0123456789abcdef 0123456789abcdef", "blank"),
        (b"0123456789abcdef\n" * 17, "more than 16 tokens"),
    ):
        with pytest.raises(TokenError, match=problem):
            parse_tokens(content)
