"""The decoder's series hashes in plain Python: SipHash-2-4 with 128 bits.

Source: the reference implementation of SipHash (Aumasson and Bernstein), with ``outlen`` 16.
"""

from __future__ import annotations

import functools
import operator
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from spark_streaming.postgres import IdKey

KEY: Final = IdKey(key_id="of the tests", secret=bytes(range(100, 116)))
SERIES, CUMULATIVE, ATTRIBUTE, TEXT, _, PART = 1, 2, 3, 4, 5, 6
MAX_TEXT_BYTES: Final = 512
_MASK: Final = (1 << 64) - 1
_MARK: Final = re.compile("…[0-9a-f]{32}\\Z")

Field = str | int | None


State = tuple[int, int, int, int]


def _absorbed(state: State, word: int, rounds: int) -> State:
    v0, v1, v2, v3 = state
    v3 ^= word
    for _ in range(rounds):
        v0 = (v0 + v1) & _MASK
        v1 = ((v1 << 13 | v1 >> 51) & _MASK) ^ v0
        v0 = (v0 << 32 | v0 >> 32) & _MASK
        v2 = (v2 + v3) & _MASK
        v3 = ((v3 << 16 | v3 >> 48) & _MASK) ^ v2
        v0 = (v0 + v3) & _MASK
        v3 = ((v3 << 21 | v3 >> 43) & _MASK) ^ v0
        v2 = (v2 + v1) & _MASK
        v1 = ((v1 << 17 | v1 >> 47) & _MASK) ^ v2
        v2 = (v2 << 32 | v2 >> 32) & _MASK
    return v0 ^ word, v1, v2, v3


@functools.lru_cache(100_000)
def _begun(key: bytes, words: bytes) -> State:
    """The state after whole words."""
    k0, k1 = struct.unpack("<QQ", key)
    state: State = (
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D ^ 0xEE,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    )
    for (word,) in struct.iter_unpack("<Q", words):
        state = _absorbed(state, word, 2)
    return state


def siphash_128(key: bytes, data: bytes, shared: int = 0) -> bytes:
    """Return SipHash-2-4-128 of bytes. States of shared prefixes are cached."""
    state = _begun(key, data[:shared])
    whole = len(data) // 8 * 8
    last = data[whole:].ljust(7, b"\0") + bytes((len(data) & 0xFF,))
    for (word,) in struct.iter_unpack("<Q", data[shared:whole] + last):
        state = _absorbed(state, word, 2)
    v0, v1, v2, v3 = state
    first = _absorbed((v0, v1, v2 ^ 0xEE, v3), 0, 4)
    v0, v1, v2, v3 = first
    second = _absorbed((v0, v1 ^ 0xDD, v2, v3), 0, 4)
    return struct.pack("<QQ", *(functools.reduce(operator.xor, half) for half in (first, second)))


def encoded(domain: int, fields: Iterable[Field]) -> bytes:
    """Encode fields: text as length plus 1 and padded bytes, a number as a word."""
    words = [struct.pack("<Q", domain)]
    for field in fields:
        if isinstance(field, str):
            text = field.encode()
            words.append(struct.pack("<Q", len(text) + 1) + text + bytes(-len(text) % 8))
        else:
            words.append(struct.pack("<Q", field or 0))
    return b"".join(words)


def fields_of(data: bytes, kinds: Sequence[type]) -> tuple[int, list[Field]]:
    """Decode the result of :func:`encoded`, which is unambiguous."""
    (domain,) = struct.unpack_from("<Q", data)
    at, fields = 8, list[Field]()
    for kind in kinds:
        (word,) = struct.unpack_from("<Q", data, at)
        at += 8
        if kind is int:
            fields.append(word)
        elif word == 0:
            fields.append(None)
        else:
            fields.append(data[at : at + word - 1].decode())
            at += (word - 1 + 7) // 8 * 8
    assert at == len(data)
    return domain, fields


@functools.lru_cache(100_000)
def hash_of(domain: int, fields: tuple[Field, ...], key: IdKey = KEY) -> tuple[int, int]:
    """Both halves of a hash, as signed numbers."""
    high, low = struct.unpack("<qq", siphash_128(key.secret, encoded(domain, fields)))
    return high, low


def series_hash(
    metric: str,
    labels: Sequence[str | None],
    attributes: Sequence[str | None],
    later: Sequence[str | None] = (),
    *,
    breakdown: bool,
) -> tuple[int, int]:
    """The hash of a series.

    Args:
        metric: Its metric.
        labels: Cluster id, software name, software version, client id, principal, group id.
        attributes: Topic, node id, node role.
        later: Reason, error, acks, partition: not hashed unless there is one.
        breakdown: Whether its points count once more elsewhere.
    """
    label_words = encoded(SERIES, labels)
    tail = later if any(text is not None for text in later) else ()
    data = label_words + encoded(SERIES, (metric, *attributes, int(breakdown), *tail))[8:]
    high, low = struct.unpack("<qq", siphash_128(KEY.secret, data, len(label_words)))
    return high, low


def identity_hash(
    metric: str, attributes: Iterable[tuple[str, str | None]], bounds: Sequence[int] = ()
) -> tuple[int, int]:
    """Return the hash of a client's cumulative sum or histogram, for any order of attributes.

    Args:
        metric: Its metric.
        attributes: Those of the point.
        bounds: What a histogram's buckets depend on, as words.
    """
    halves = [hash_of(ATTRIBUTE, attribute) for attribute in attributes]
    sums = [sum(half) & _MASK for half in zip(*halves, strict=True)] if halves else [0, 0]
    return hash_of(CUMULATIVE, (metric, *sums, *(bound & _MASK for bound in bounds)))


def part_hash(histogram: tuple[int, int], part: int, lower: int, upper: int) -> tuple[int, int]:
    """Return the hash of a part of a cumulative histogram."""
    return hash_of(PART, tuple(word & _MASK for word in (*histogram, part, lower, upper)))


@functools.lru_cache(10_000)
def storable(text: str | None, key: IdKey = KEY) -> str | None:
    """Return the stored form of text. Text that was cut ends with its hash."""
    if text is None:
        return None
    if len(text.encode()) <= MAX_TEXT_BYTES and "\0" not in text and not _MARK.search(text):
        return text
    kept = b"".join(_cut(text.replace("\0", "\ufffd"), MAX_TEXT_BYTES - 35))
    mark = siphash_128(key.secret, encoded(TEXT, [text]))
    return f"{kept.decode()}…{mark[7::-1].hex()}{mark[:7:-1].hex()}"


def _cut(text: str, size: int) -> Iterator[bytes]:
    for char in text:
        size -= len(char.encode())
        if size < 0:
            return
        yield char.encode()
