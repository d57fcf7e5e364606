"""Makes inputs from others by byte changes that often break parsers.

Knows no format. What a format's own shape asks for (a length that fits, a checksum) is a target's
``reshape``.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

_SMALL: Final = (0, 1, 2, 4, 8, 16, 32, 64, 100, 127, 128, 255, 256, 4095, 4096, 32_767, 32_768, 65_535)
_LARGE: Final = (1 << 16, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, 1 << 63)
#: Numbers at which lengths, counts and versions change their meaning, in the sizes that they have.
_NUMBERS: Final = tuple(
    word
    for size in (1, 2, 4, 8)
    for number in (*_SMALL, *_LARGE, -1, -2, -128)
    if number < 1 << 8 * size
    for big in ((number % (1 << 8 * size)).to_bytes(size, "big"),)
    for word in (big, big[::-1])
)
#: The same as varints, and varints that are too long.
_VARINTS: Final = (
    b"\x80\x01",
    b"\xff\x7f",
    b"\x80\x80\x01",
    b"\xff\xff\x03",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x10",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 10,
    b"\x80\x00",
)


class Mutator:
    """Makes inputs from inputs.

    Args:
        random: Every choice comes from it.
        tokens: Byte strings that mean something to the target, to be put in.
        max_bytes: The longest input to make.
    """

    def __init__(self, random: Random, tokens: Sequence[bytes], max_bytes: int) -> None:
        self._random = random
        self._tokens = (*_NUMBERS, *_VARINTS, *(tuple(tokens) * (1 + 50 // max(1, len(tokens)))))
        self._max_bytes = max_bytes

    def mutate(self, data: bytes, other: bytes) -> bytes:
        """Change ``data`` in one to eight places; ``other`` is an input to take a part from."""
        random = self._random.random
        changed = bytearray(data)
        for _ in range(1 << int(random() * 4)):
            self._change(changed, other)
        return bytes(changed[: self._max_bytes])

    def _change(self, data: bytearray, other: bytes) -> None:
        random = self._random.random
        size = len(data)
        at = int(random() * size) if size else 0
        choice = int(random() * 12)
        if not size:
            data += self._token() if choice < 6 else other
        elif choice == 0:
            data[at] ^= 1 << int(random() * 8)
        elif choice == 1:
            data[at] = int(random() * 256)
        elif choice == 2:
            data[at] = (data[at] + int(random() * 17) - 8) & 0xFF
        elif choice in (3, 4):
            token = self._token()
            data[at : at + len(token)] = token
        elif choice in (5, 6):
            data[at:at] = self._token()
        elif choice == 7:
            del data[at : at + self._span(size)]
        elif choice == 8:
            part = data[at : at + self._span(size)]
            into = int(random() * size)
            data[into:into] = part * (1 << int(random() * 4))
        elif choice == 9:
            del data[at:]
        elif choice == 10:
            begin = int(random() * len(other))
            data[at:] = other[begin:]
        else:
            begin = int(random() * len(other))
            data[at:at] = other[begin : begin + self._span(len(other))]

    def _token(self) -> bytes:
        return self._tokens[int(self._random.random() * len(self._tokens))]

    def _span(self, size: int) -> int:
        """Return a length, mostly a small one."""
        random = self._random.random
        return 1 + int(random() * min(size, 1 << int(random() * 10)))
