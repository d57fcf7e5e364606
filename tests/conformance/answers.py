"""Reads raw answers into the values that a case compares: a line of text, and the bytes.

The readers are independent of the receiver's own codec. Values that differ between two peers
(random ids, offsets, ports) are left out of the line and blanked in the bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.conformance import requests
from tests.conformance.talk import Fate

ERRORS = {
    -1: "UNKNOWN_SERVER_ERROR",
    0: "NONE",
    33: "UNSUPPORTED_SASL_MECHANISM",
    34: "ILLEGAL_SASL_STATE",
    35: "UNSUPPORTED_VERSION",
    42: "INVALID_REQUEST",
    58: "SASL_AUTHENTICATION_FAILED",
    76: "UNSUPPORTED_COMPRESSION_TYPE",
    87: "INVALID_RECORD",
    89: "THROTTLING_QUOTA_EXCEEDED",
    117: "UNKNOWN_SUBSCRIPTION_ID",
    118: "TELEMETRY_TOO_LARGE",
    129: "REBOOTSTRAP_REQUIRED",
}
CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}

_FINALIZED_FEATURES_EPOCH = 1
_TELEMETRY = (requests.GET_TELEMETRY_SUBSCRIPTIONS, requests.PUSH_TELEMETRY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An answer of a peer, or the end of its connection.

    Attributes:
        text: A readable line, which the table of differences uses too.
        raw: The answer's bytes with its header, random values blanked; empty if there are none to
            compare.
    """

    text: str
    raw: bytes = b""


@dataclass(slots=True, kw_only=True)
class Reading:
    """Values from earlier answers that later requests need.

    Attributes:
        seed: Seed of its client instance ids, the same for both peers.
        telemetry_versions: The peer's versions of both telemetry requests; None to read an
            ApiVersions answer as it is.
        sasl_payload: The payload of the last SaslAuthenticate answer.
        instance_ids: The id that the peer answered or the client made up, by instance name.
        subscription_ids: The last answered subscription id, by instance name.
        numbers: The order in which subscription ids were first seen.
    """

    seed: str = ""
    telemetry_versions: tuple[int, int] | None = None
    sasl_payload: bytes = b""
    instance_ids: dict[str, bytes] = field(default_factory=dict)
    subscription_ids: dict[str, int] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)

    def instance_id(self, instance: str) -> bytes:
        """Return the id of an instance, made up by the client if the peer gave none."""
        made_up = hashlib.sha256(f"{self.seed}/{instance}".encode()).digest()[:16]
        return self.instance_ids.setdefault(instance, made_up)

    def subscription_id(self, instance: str) -> int:
        """Return the last answered subscription id of an instance; any if it never asked."""
        return self.subscription_ids.get(instance, 1)

    def number(self, subscription_id: int) -> int:
        """Return the position of a subscription id among those seen: 1 for the first."""
        return self.numbers.setdefault(subscription_id, len(self.numbers) + 1)


Reader = Callable[[bytes, Reading], Seen]


class _Bytes:
    """A cursor over an answer, which can blank what it just read."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self.offset = 0

    def take(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(form, self.data, self.offset)
        self.offset += struct.calcsize(form)
        return values

    def bytes(self, size: int) -> bytes:
        if self.offset + size > len(self.data):
            raise ValueError(f"{size} bytes at {self.offset} of {len(self.data)}")
        self.offset += size
        return bytes(self.data[self.offset - size : self.offset])

    def blank(self, size: int) -> None:
        self.data[self.offset - size : self.offset] = bytes(size)

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(">B")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def string(self) -> str | None:
        (length,) = self.take(">h")
        return None if length < 0 else self.bytes(length).decode()

    def end(self) -> None:
        if self.offset != len(self.data):
            raise ValueError(f"{len(self.data) - self.offset} bytes after the answer's end")


def _error(code: int) -> str:
    return ERRORS.get(code, f"error {code}")


def read(answer: bytes | Fate, correlation_id: int, reader: Reader, reading: Reading) -> Seen:
    """Read an answer; a malformed one becomes a line that says so."""
    if isinstance(answer, Fate):
        return Seen(text=str(answer))
    (answered,) = struct.unpack_from(">i", answer)
    if answered != correlation_id:
        return Seen(text=f"an answer to correlation id {answered}, not {correlation_id}", raw=answer)
    try:
        return reader(answer, reading)
    except (struct.error, ValueError, IndexError) as error:
        return Seen(text=f"unreadable: {error}: {answer.hex()}", raw=answer)


def api_versions(version: int) -> Reader:
    """Return a reader of ApiVersions answers; UNSUPPORTED_VERSION has a v0 body."""

    def reader(answer: bytes, reading: Reading) -> Seen:
        body = _Bytes(answer)
        body.take(">i")
        (error,) = body.take(">h")
        layout = 0 if error == 35 or version not in range(6) else version
        count = body.uvarint() - 1 if layout >= 3 else body.take(">i")[0]
        listed: dict[int, str] = {}
        for _entry in range(count):
            key, least, greatest = body.take(">hhh")
            listed[key] = f"{least}-{greatest}"
            if key in _TELEMETRY and (least, greatest) == reading.telemetry_versions:
                listed[key] = "its own"
                body.blank(4)
            if layout >= 3 and body.uvarint():
                raise ValueError(f"tagged fields of key {key}")
        throttled = layout >= 1 and body.take(">i")[0]
        if layout >= 3:
            for _tag in range(body.uvarint()):
                tag, size = body.uvarint(), body.uvarint()
                body.bytes(size)
                if tag == _FINALIZED_FEATURES_EPOCH:  # counts what a broker did since its start
                    body.blank(size)
        body.end()
        interesting = [
            f"{key}: {ends}"
            for key, ends in sorted(listed.items())
            if key in {requests.API_VERSIONS, *_TELEMETRY}
        ]
        text = f"{_error(error)}, {count} keys" + (f" ({', '.join(interesting)})" if interesting else "")
        return Seen(text=text + (f", throttled {throttled} ms" if throttled else ""), raw=bytes(body.data))

    return reader


def get(instance: str, asked_with: bytes, version: int = 0) -> Reader:
    """Return a reader of GetTelemetrySubscriptions responses; v1 has no id (KIP-1313)."""

    def reader(answer: bytes, reading: Reading) -> Seen:
        body = _Bytes(answer)
        _, tags, throttled, error = body.take(">ibih")
        answered_with = body.bytes(16) if version == 0 else requests.ZERO_ID
        if answered_with not in {asked_with, requests.ZERO_ID}:
            body.blank(16)
        (subscription_id,) = body.take(">i")
        body.blank(4)
        codecs = [CODECS.get(*body.take(">b")) for _ in range(body.uvarint() - 1)]
        interval_ms, max_bytes, delta = body.take(">ii?")
        metrics = [body.bytes(body.uvarint() - 1).decode() for _ in range(body.uvarint() - 1)]
        body.take(">b")
        body.end()
        raw = bytes(body.data)
        if error:
            return Seen(text=_error(error), raw=raw)
        if answered_with == requests.ZERO_ID:
            which_id = "no id"
        else:
            which_id = "the same id" if answered_with == asked_with else "a new id"
            reading.instance_ids[instance] = answered_with
        reading.subscription_ids[instance] = subscription_id
        number = reading.number(subscription_id)
        return Seen(
            text=(
                f"NONE, {which_id}, subscription #{number}, {'/'.join(map(str, codecs))}, {interval_ms} ms, "
                f"{max_bytes} bytes, {'delta' if delta else 'cumulative'}, metrics {metrics}"
                + (f", throttled {throttled} ms" if throttled else "")
                + (", tagged fields" if tags else "")
            ),
            raw=raw,
        )

    return reader


def push(answer: bytes, _reading: Reading) -> Seen:
    """Read an answer to PushTelemetry."""
    body = _Bytes(answer)
    _, _, throttled, error, _ = body.take(">ibihb")
    body.end()
    text = _error(error) + (f", throttled {throttled} ms" if throttled else "")
    return Seen(text=text, raw=answer)


def metadata(answer: bytes, _reading: Reading) -> Seen:
    """Read an answer to Metadata v2; the brokers' ports differ."""
    body = _Bytes(answer)
    _, brokers = body.take(">ii")
    for _broker in range(brokers):
        body.take(">i")
        body.string()
        body.take(">i")
        body.string()
    cluster_id = body.string()
    body.take(">ii")
    body.end()
    return Seen(text=f"Metadata of {cluster_id}, {brokers} broker")


def produce(answer: bytes, _reading: Reading) -> Seen:
    """Read an answer to Produce v3 for one partition; offsets differ."""
    body = _Bytes(answer)
    body.take(">ii")
    body.string()
    _, _, error, _, _, _ = body.take(">iihqqi")
    body.end()
    return Seen(text=f"Produce: {_error(error)}")


def sasl_handshake(answer: bytes, _reading: Reading) -> Seen:
    """Read an answer to SaslHandshake."""
    body = _Bytes(answer)
    _, error, count = body.take(">ihi")
    mechanisms = sorted(str(body.string()) for _ in range(count))
    body.end()
    return Seen(text=f"{_error(error)}, {', '.join(mechanisms)}", raw=answer)


def sasl_authenticate(answer: bytes, reading: Reading) -> Seen:
    """Read an answer to SaslAuthenticate v1; its payload is random."""
    body = _Bytes(answer)
    _, error = body.take(">ih")
    message = body.string()
    (size,) = body.take(">i")
    reading.sasl_payload = body.bytes(size)
    body.take(">q")
    body.end()
    return Seen(text=_error(error) + (f": {message}" if message else ""))


def token(answer: bytes) -> Seen:
    """Read a bare SASL token: it has no correlation id."""
    return Seen(text=f"a token of {len(answer)} bytes", raw=answer)
