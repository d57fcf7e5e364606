"""The bridge's end of a conversation, for tests."""

from __future__ import annotations

from dataclasses import replace

from receiver.bridge import frames, tokens
from receiver.bridge.conversation import Conversation
from receiver.bridge.frames import BridgedPush, Hello
from receiver.wire.uuid import Uuid
from tests.unit.bridge import bridge_frames

TOKEN = b"0123456789abcdef0123"
WINDOW = 4
MAX_PUSH_BYTES = 1000

HELLO = Hello(
    min_version=1,
    max_version=1,
    bridge_id=b"B" * 16,
    nonce=b"c" * 32,
    node_id=3,
    cluster_id="cluster",
    software_version="0.1.0",
)

PUSH = BridgedPush(
    sequence=7,
    received_at_ns=1_700_000_000_000_000_000,
    client_instance_id=Uuid(bytes(range(16))),
    terminating=True,
    codec_unknown=False,
    source_port=40_123,
    correlation_id=-5,
    interval_ms=1000,
    client_id="orders-é",
    principal="User:alice",
    source_address="192.0.2.7",
    listener="SASL",
    security_protocol="SASL_SSL",
    client_software_name="apache-kafka-java",
    client_software_version="4.4.0",
    connection_id="192.0.2.1:9092-192.0.2.7:40123-1-2",
    metrics=b"\x0a\x00metrics",
)


def conversation(*accepted: bytes) -> Conversation:
    """A conversation that has not begun."""
    return Conversation(
        accepted_tokens=accepted or (TOKEN,),
        nonce=b"s" * 32,
        max_push_bytes=MAX_PUSH_BYTES,
        window=WINDOW,
    )


def split(data: bytes) -> list[bytes]:
    """Split bytes into frames without their lengths."""
    found = []
    while data:
        length = int.from_bytes(data[:4], "big")
        found.append(data[4 : 4 + length])
        data = data[4 + length :]
    return found


def prove(receiver: Conversation, token: bytes = TOKEN, hello: Hello = HELLO) -> bytes:
    """Greet the receiver, and return the frame of the proof."""
    said = frames.encode_hello(hello)
    receiver.receive(frames.frame(said))
    assert receiver.next_event() is None
    (challenge,) = split(receiver.to_send())
    return frames.frame(bridge_frames.encode_proof(tokens.proof(token, tokens.BRIDGE, said, challenge)))


def joined(hello: Hello = HELLO) -> Conversation:
    """A conversation after its handshake."""
    receiver = conversation()
    receiver.receive(prove(receiver, hello=hello))
    assert receiver.next_event() is not None
    receiver.to_send()
    return receiver


def push(sequence: int, metrics: bytes = b"\x0a\x00") -> bytes:
    """A Push frame."""
    return frames.frame(bridge_frames.encode_push(replace(PUSH, sequence=sequence, metrics=metrics)))
