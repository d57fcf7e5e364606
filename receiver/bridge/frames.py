"""The frames of the bridge's protocol (docs/bridge-protocol.md).

Pure. Every length is checked before anything is sliced, and no text or error holds bytes of a
secret or of a push.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Any, Final

from receiver.wire.uuid import Uuid

#: The version of the protocol that this module speaks.
VERSION: Final = 1

LENGTH_BYTES: Final = 4
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
BRIDGE_ID_BYTES: Final = 16
#: The longest text: 512 characters of four bytes.
MAX_TEXT_BYTES: Final = 2048
#: What a push has beside its metrics, at most.
PUSH_CONTEXT_BYTES: Final = 64 + 8 * (2 + MAX_TEXT_BYTES)

_MAGIC: Final = b"KTBP"
_MAX_STATISTICS: Final = 64
_MAX_REASON_BYTES: Final = 512
_MAX_PORT: Final = 65_535


class FrameType(IntEnum):
    """The first byte of a frame."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    PUSH = 5
    STATISTICS = 6
    ACKNOWLEDGE = 7
    REFUSED = 8


class Result(IntEnum):
    """What became of a push."""

    ACCEPTED = 0
    DUPLICATE = 1
    REFUSED = 2


#: The longest frame of each type that a bridge sends, in bytes without its length. A push's metrics
#: come on top.
BOUNDS: Final[Mapping[int, int]] = {
    FrameType.HELLO: 1 + 4 + 2 + BRIDGE_ID_BYTES + NONCE_BYTES + 4 + 2 * (2 + MAX_TEXT_BYTES),
    FrameType.PROOF: 1 + PROOF_BYTES,
    FrameType.PUSH: PUSH_CONTEXT_BYTES,
    FrameType.STATISTICS: 2 + 8 * _MAX_STATISTICS,
}

#: The values of a Statistics frame, in order.
STATISTICS: Final = (
    "received",
    "forwarded",
    "acknowledged",
    "refused",
    "resent",
    "dropped_queue_full",
    "dropped_too_large",
    "dropped_stopped",
    "dropped_error",
    "unreadable_details",
    "queue_items",
    "queue_bytes",
    "connected",
)

_LENGTH: Final = Struct(">I")
_TEXT: Final = Struct(">H")
_HELLO: Final = Struct(f">B4sBB{BRIDGE_ID_BYTES}s{NONCE_BYTES}si")
_CHALLENGE: Final = Struct(f">BB{NONCE_BYTES}s")
_WELCOME: Final = Struct(f">B{PROOF_BYTES}sII")
_PUSH: Final = Struct(">BBQQ16siii")
_ACKNOWLEDGED: Final = Struct(">QB")

_TERMINATING: Final = 1
_CODEC_UNKNOWN: Final = 2


class FrameError(ValueError):
    """The other end sent bytes that are not a frame of the protocol.

    Names fields and lengths.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The first frame of a bridge: who it is, and the versions that it speaks."""

    min_version: int
    max_version: int
    bridge_id: bytes
    nonce: bytes
    node_id: int  # -1: not known
    cluster_id: str  # empty: not known
    software_version: str  # of the bridge


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The receiver's answer to a Hello."""

    version: int
    nonce: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The receiver's answer to a right proof."""

    proof: bytes
    max_push_bytes: int
    window: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgedPush:
    """A push that a broker accepted, with the context of its request."""

    sequence: int
    received_at_ns: int
    client_instance_id: Uuid
    terminating: bool
    codec_unknown: bool
    source_port: int  # 0: not known
    correlation_id: int
    interval_ms: int  # -1: not known
    client_id: str
    principal: str
    source_address: str
    listener: str
    security_protocol: str
    client_software_name: str
    client_software_version: str
    connection_id: str
    metrics: bytes | memoryview  # valid while the frame's buffer is


def frame(body: bytes) -> bytes:
    """Return a frame with its length in front."""
    return _LENGTH.pack(len(body)) + body


# -- the handshake -----------------------------------------------------------------------------


def encode_hello(hello: Hello) -> bytes:
    """Encode a Hello, without its length."""
    return (
        _HELLO.pack(
            FrameType.HELLO,
            _MAGIC,
            hello.min_version,
            hello.max_version,
            hello.bridge_id,
            hello.nonce,
            hello.node_id,
        )
        + _text(hello.cluster_id)
        + _text(hello.software_version)
    )


def decode_hello(data: bytes | memoryview) -> Hello:
    """Decode a Hello, or raise FrameError."""
    _, magic, lowest, highest, bridge_id, nonce, node_id = _unpack(_HELLO, data, "Hello")
    if magic != _MAGIC:
        raise FrameError("Hello: the first bytes are not those of a bridge")
    texts = _Texts(data, _HELLO.size)
    cluster_id, version = texts.next("cluster id"), texts.next("version")
    return Hello(
        min_version=lowest,
        max_version=highest,
        bridge_id=bridge_id,
        nonce=nonce,
        node_id=node_id,
        cluster_id=cluster_id,
        software_version=version,
    )


def encode_challenge(challenge: Challenge) -> bytes:
    """Encode a Challenge, without its length."""
    return _CHALLENGE.pack(FrameType.CHALLENGE, challenge.version, challenge.nonce)


def decode_challenge(data: bytes | memoryview) -> Challenge:
    """Decode a Challenge, or raise FrameError."""
    _, version, nonce = _unpack(_CHALLENGE, data, "Challenge")
    return Challenge(version=version, nonce=nonce)


def decode_proof(data: bytes | memoryview) -> bytes:
    """Decode a Proof, or raise FrameError."""
    if len(data) != 1 + PROOF_BYTES:
        raise FrameError(f"Proof: {len(data)} bytes are not {1 + PROOF_BYTES}")
    return bytes(data[1:])


def encode_welcome(welcome: Welcome) -> bytes:
    """Encode a Welcome, without its length."""
    return _WELCOME.pack(FrameType.WELCOME, welcome.proof, welcome.max_push_bytes, welcome.window)


def encode_refused(reason: str) -> bytes:
    """Encode a Refused, without its length; a long reason is cut."""
    text = reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore")
    return bytes([FrameType.REFUSED]) + text.encode()


def decode_refused(data: bytes | memoryview) -> str:
    """Decode a Refused, or raise FrameError."""
    if len(data) > 1 + _MAX_REASON_BYTES:
        raise FrameError(f"Refused: {len(data)} bytes are more than {1 + _MAX_REASON_BYTES}")
    return bytes(data[1:]).decode(errors="replace")


# -- pushes ------------------------------------------------------------------------------------


def decode_push(data: bytes | memoryview) -> BridgedPush:
    """Decode a Push, or raise FrameError; its metrics are a view into the data."""
    _, flags, sequence, received_at_ns, instance_id, port, correlation_id, interval_ms = _unpack(
        _PUSH, data, "Push"
    )
    if not 0 <= port <= _MAX_PORT:
        raise FrameError(f"Push: source port {port} is not from 0 to {_MAX_PORT}")
    texts = _Texts(data, _PUSH.size)
    return BridgedPush(
        sequence=sequence,
        received_at_ns=received_at_ns,
        client_instance_id=Uuid(instance_id),
        terminating=bool(flags & _TERMINATING),
        codec_unknown=bool(flags & _CODEC_UNKNOWN),
        source_port=port,
        correlation_id=correlation_id,
        interval_ms=interval_ms if interval_ms > 0 else -1,
        client_id=texts.next("client id"),
        principal=texts.next("principal"),
        source_address=texts.next("source address"),
        listener=texts.next("listener"),
        security_protocol=texts.next("security protocol"),
        client_software_name=texts.next("software name"),
        client_software_version=texts.next("software version"),
        connection_id=texts.next("connection id"),
        metrics=memoryview(data)[texts.offset :],
    )


def encode_acknowledge(results: Iterable[tuple[int, Result]]) -> bytes:
    """Encode an Acknowledge of at most 65,535 pushes, without its length."""
    parts = [_ACKNOWLEDGED.pack(sequence, result) for sequence, result in results]
    return bytes([FrameType.ACKNOWLEDGE]) + _TEXT.pack(len(parts)) + b"".join(parts)


def decode_statistics(data: bytes | memoryview) -> dict[str, int]:
    """Decode a Statistics: the values that this version knows, by name.

    Or raise FrameError.
    """
    if len(data) < 2 or data[1] > _MAX_STATISTICS or len(data) != 2 + 8 * data[1]:
        raise FrameError(f"Statistics: {len(data)} bytes do not hold what the count says")
    numbers = Struct(f">{data[1]}q").unpack_from(data, 2)
    if any(number < 0 for number in numbers):
        raise FrameError("Statistics: a value is negative")
    return dict(zip(STATISTICS, numbers, strict=False))


# -- parts -------------------------------------------------------------------------------------


class _Texts:
    """Reads one text after the other."""

    def __init__(self, data: bytes | memoryview, offset: int) -> None:
        self._data = data
        self.offset = offset

    def next(self, field: str) -> str:
        data, start = self._data, self.offset + _TEXT.size
        if start > len(data):
            raise FrameError(f"{field}: the frame ends before its length")
        (size,) = _TEXT.unpack_from(data, self.offset)
        if size > MAX_TEXT_BYTES:
            raise FrameError(f"{field}: {size} bytes are more than {MAX_TEXT_BYTES}")
        end = start + size
        if end > len(data):
            raise FrameError(f"{field}: the frame ends before {size} bytes of text")
        self.offset = end
        return str(data[start:end], "utf-8", "replace")


def _text(value: str) -> bytes:
    encoded = value.encode("utf-8", "replace")[:MAX_TEXT_BYTES]
    return _TEXT.pack(len(encoded)) + encoded


def _unpack(layout: Struct, data: bytes | memoryview, name: str) -> tuple[Any, ...]:
    if len(data) < layout.size:
        raise FrameError(f"{name}: {len(data)} bytes are fewer than {layout.size}")
    return layout.unpack_from(data)
