"""The ids of the decoder in plain Python: SipHash-2-4 of 128 bits over fields of whole 64-bit words.

Source: the reference implementation of SipHash (Aumasson and Bernstein), with ``outlen`` 16.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from spark_streaming.postgres import IdKey

__all__ = [
    "ATTRIBUTE",
    "CUMULATIVE",
    "KEY",
    "SERIES",
    "TEXT",
    "encoded",
    "fields_of",
    "hash_of",
    "identity_hash",
    "series_hash",
    "siphash_128",
    "storable",
]

KEY: Final = IdKey(key_id="of the tests", secret=bytes(range(100, 116)))
SERIES, CUMULATIVE, ATTRIBUTE, TEXT = 1, 2, 3, 4
MAX_TEXT_BYTES: Final = 512
_MASK: Final = (1 << 64) - 1
_MARK: Final = re.compile("…[0-9a-f]{32}\\Z")

Field = str | int | None


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> (64 - by)) & _MASK


def _rounds(state: list[int], count: int) -> None:
    v0, v1, v2, v3 = state
    for _ in range(count):
        v0 = (v0 + v1) & _MASK
        v1 = _rotated(v1, 13) ^ v0
        v0 = _rotated(v0, 32)
        v2 = (v2 + v3) & _MASK
        v3 = _rotated(v3, 16) ^ v2
        v0 = (v0 + v3) & _MASK
        v3 = _rotated(v3, 21) ^ v0
        v2 = (v2 + v1) & _MASK
        v1 = _rotated(v1, 17) ^ v2
        v2 = _rotated(v2, 32)
    state[:] = v0, v1, v2, v3


def siphash_128(key: bytes, data: bytes) -> bytes:
    """The 16 bytes of SipHash-2-4-128 of any bytes."""
    first, second = struct.unpack("<QQ", key)
    state = [
        first ^ 0x736F6D6570736575,
        second ^ 0x646F72616E646F6D ^ 0xEE,
        first ^ 0x6C7967656E657261,
        second ^ 0x7465646279746573,
    ]
    whole = len(data) // 8 * 8
    last = data[whole:].ljust(7, b"\0") + bytes((len(data) & 0xFF,))
    for (word,) in struct.iter_unpack("<Q", data[:whole] + last):
        state[3] ^= word
        _rounds(state, 2)
        state[0] ^= word
    state[2] ^= 0xEE
    _rounds(state, 4)
    high = state[0] ^ state[1] ^ state[2] ^ state[3]
    state[1] ^= 0xDD
    _rounds(state, 4)
    return struct.pack("<QQ", high, state[0] ^ state[1] ^ state[2] ^ state[3])


def encoded(domain: int, fields: Iterable[Field]) -> bytes:
    """The bytes that are hashed: a text is its length plus 1 and its bytes, padded; a number is a word."""
    words = [struct.pack("<Q", domain)]
    for field in fields:
        if isinstance(field, str):
            text = field.encode()
            words.append(struct.pack("<Q", len(text) + 1) + text + bytes(-len(text) % 8))
        else:
            words.append(struct.pack("<Q", field or 0))
    return b"".join(words)


def fields_of(data: bytes, kinds: Sequence[type]) -> tuple[int, list[Field]]:
    """Read back what :func:`encoded` wrote: there is at most one list of fields of these kinds."""
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
    metric: str, labels: Sequence[str | None], attributes: Sequence[str | None], *, breakdown: bool
) -> tuple[int, int]:
    """The hash of a series.

    Args:
        metric: Its metric.
        labels: Cluster id, software name, software version, client id, principal, group id.
        attributes: Topic, node id, node role.
        breakdown: Whether its points count once more elsewhere.
    """
    return hash_of(SERIES, (*labels, metric, *attributes, int(breakdown)))


def identity_hash(metric: str, attributes: Iterable[tuple[str, str | None]]) -> tuple[int, int]:
    """The hash of a cumulative sum of a client: of its metric and all attributes, in any order."""
    halves = [hash_of(ATTRIBUTE, attribute) for attribute in attributes]
    sums = [sum(half) & _MASK for half in zip(*halves, strict=True)] if halves else [0, 0]
    return hash_of(CUMULATIVE, (metric, *sums))


def storable(text: str | None, key: IdKey = KEY) -> str | None:
    """The text as the store keeps it: what it can't keep, and what looks like it, ends with its hash."""
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
