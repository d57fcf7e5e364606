"""Topics that XXH64 maps to another client's series.

This is the attack on 64-bit ids with a public seed. XXH64 can be inverted over its last eight
bytes, so finding a topic for any id takes some hundred tries. Source: the xxHash specification
("XXH64 algorithm description").
"""

from __future__ import annotations

import functools
from random import Random
from typing import Final

from tests.fuzz.pipeline.identities import Identity

#: The victim's metric and topic.
METRIC: Final = b"my.orders.total"
TOPIC: Final = b"orders"
#: Two client instance ids with the same 64-bit client key, found in the same way in 65,536 tries or
#: so.
INSTANCES: Final = ("32w0uvf5-TtdABrUOA8y7g", "jMLPhpXFLI6Vr1o1PLbZEA")

_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_INVERSE_1, _INVERSE_2, _INVERSE_3 = (pow(prime, -1, 1 << 64) for prime in (_P1, _P2, _P3))
_SEED: Final = 42
_HAS_TOPIC: Final = 1


@functools.cache
def colliding(attacker: Identity, victim: Identity) -> tuple[bytes, bytes]:
    """Find a metric and topic of the attacker with the victim's 64-bit series id.

    Args:
        attacker: Who will push them.
        victim: Whose series it is, of :data:`METRIC` and :data:`TOPIC`.

    Returns:
        The metric's name and the topic.
    """
    random = Random(repr(attacker.series_labels))
    target = _unmixed(xxh64(TOPIC, point_seed(victim)))
    seed = point_seed(attacker)
    while True:
        first = bytes(random.randrange(0x61, 0x7B) for _ in range(8))
        state = _step(seed + _P5 + 16 & _MASK, int.from_bytes(first, "little"))
        topic = first + _word_between(state, target)
        if topic.isascii() and b"\0" not in topic:
            return METRIC, topic


def _word_between(state: int, after: int) -> bytes:
    """Return the eight bytes that lead from one state to another."""
    before = _rotated((after - _P4) * _INVERSE_1 & _MASK, 64 - 27)
    word = _rotated((before ^ state) * _INVERSE_1 & _MASK, 64 - 31) * _INVERSE_2
    return (word & _MASK).to_bytes(8, "little")


def point_seed(identity: Identity) -> int:
    """Return the common hash state of the client's series of :data:`METRIC`."""
    cluster, software, version, client_id, principal = identity.series_labels
    fleet = _hash_all(_SEED, cluster, software, version)
    series = _hash_all(fleet, client_id, principal, None)
    return _hash_long(_HAS_TOPIC, _hash_long(xxh64(METRIC, _SEED), series))


def _hash_all(seed: int, *texts: str | None) -> int:
    present = 0
    for text in texts:
        present = present << 1 | (text is not None)
    hashed = _hash_long(present, seed)
    for text in texts:
        hashed = hashed if text is None else xxh64(text.encode(), hashed)
    return hashed


def _hash_long(value: int, seed: int) -> int:
    return xxh64(value.to_bytes(8, "little"), seed)


def xxh64(data: bytes, seed: int) -> int:
    """Compute XXH64."""
    at = 0
    if len(data) >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while at + 32 <= len(data):
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], int.from_bytes(data[at : at + 8], "little"))
                at += 8
        state = sum(_rotated(lane & _MASK, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            state = ((state ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        state = seed + _P5
    state = state + len(data) & _MASK
    while at + 8 <= len(data):
        state = _step(state, int.from_bytes(data[at : at + 8], "little"))
        at += 8
    if at + 4 <= len(data):
        state ^= int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK
        state = _rotated(state, 23) * _P2 + _P3 & _MASK
        at += 4
    for byte in data[at:]:
        state = _rotated(state ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    state = (state ^ state >> 33) * _P2 & _MASK
    state = (state ^ state >> 29) * _P3 & _MASK
    return state ^ state >> 32


def _round(lane: int, word: int) -> int:
    return _rotated(lane + word * _P2 & _MASK, 31) * _P1 & _MASK


def _step(state: int, word: int) -> int:
    return _rotated(state ^ _round(0, word), 27) * _P1 + _P4 & _MASK


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _MASK


def _unmixed(hashed: int) -> int:
    state = hashed ^ hashed >> 32
    state = state * _INVERSE_3 & _MASK
    state = state ^ state >> 29 ^ state >> 58
    state = state * _INVERSE_2 & _MASK
    return state ^ state >> 33
