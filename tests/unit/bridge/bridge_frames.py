"""What a bridge writes and reads, where the receiver does the opposite."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from receiver.bridge import frames
from receiver.bridge.frames import BridgedPush, FrameError, FrameType, Welcome


def encode_proof(proof: bytes) -> bytes:
    """Encode a Proof, without its length."""
    return bytes([FrameType.PROOF]) + proof


def decode_welcome(data: bytes | memoryview) -> Welcome:
    """Decode a Welcome, or raise FrameError."""
    _, proof, max_push_bytes, window = frames._unpack(frames._WELCOME, data, "Welcome")
    return Welcome(proof=proof, max_push_bytes=max_push_bytes, window=window)


def encode_push(push: BridgedPush) -> bytes:
    """Encode a Push, without its length."""
    flags = (frames._TERMINATING if push.terminating else 0) | (
        frames._CODEC_UNKNOWN if push.codec_unknown else 0
    )
    fixed = frames._PUSH.pack(
        FrameType.PUSH,
        flags,
        push.sequence,
        push.received_at_ns,
        push.client_instance_id,
        push.source_port,
        push.correlation_id,
        push.interval_ms,
    )
    texts = (
        push.client_id,
        push.principal,
        push.source_address,
        push.listener,
        push.security_protocol,
        push.client_software_name,
        push.client_software_version,
        push.connection_id,
    )
    return fixed + b"".join(map(frames._text, texts)) + bytes(push.metrics)


def decode_acknowledge(data: bytes | memoryview) -> list[tuple[int, int]]:
    """Decode an Acknowledge: sequence numbers and results; or raise FrameError."""
    if len(data) < 1 + frames._TEXT.size:
        raise FrameError(f"Acknowledge: {len(data)} bytes are too few")
    (count,) = frames._TEXT.unpack_from(data, 1)
    start = 1 + frames._TEXT.size
    if len(data) != start + count * frames._ACKNOWLEDGED.size:
        raise FrameError(f"Acknowledge: {len(data)} bytes do not hold {count} pushes")
    return list(frames._ACKNOWLEDGED.iter_unpack(data[start:]))


def encode_statistics(values: Iterable[int]) -> bytes:
    """Encode a Statistics, without its length."""
    numbers = tuple(values)
    return Struct(f">BB{len(numbers)}q").pack(FrameType.STATISTICS, len(numbers), *numbers)
