"""Mutates protobuf messages field by field: moved, doubled, left out.

Lengths are made to fit again, so that a parser takes what comes out, and the code behind it sees
it.
"""

from __future__ import annotations

from random import Random

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_MAX_DEPTH = 9
_DOUBLES = (
    b"\0\0\0\0\0\0\xf8\x7f",  # NaN
    b"\0\0\0\0\0\0\xf0\x7f",  # infinity
    b"\0\0\0\0\0\0\xf0\xff",
    b"\1\0\0\0\0\0\xf0\x7f",
    b"\0\0\0\0\0\0\xe0\x7f",
    bytes(8),
)


def varint(value: int, padding: int = 0) -> bytes:
    """Encode a varint, with so many bytes more than it needs."""
    out = bytearray()
    while value >= 0x80 or padding:
        out.append(value & 0x7F | 0x80)
        if value < 0x80:
            padding -= 1
        value >>= 7
    out.append(value)
    return bytes(out)


def fields(data: bytes) -> list[tuple[int, bytes]] | None:
    """Take a message apart into tags and contents; None where it is none."""
    found = []
    at = 0
    while at < len(data):
        tag, at = _varint_at(data, at)
        if at < 0 or tag < 8:
            return None
        kind = tag & 7
        if kind == _VARINT:
            begin = at
            _, at = _varint_at(data, at)
            if at < 0:
                return None
        elif kind in (_FIXED64, _FIXED32):
            begin = at
            at += 8 if kind == _FIXED64 else 4
        elif kind == _LENGTH_DELIMITED:
            size, begin = _varint_at(data, at)
            if begin < 0:
                return None
            at = begin + size
        else:
            return None
        if at > len(data):
            return None
        found.append((tag, data[begin:at]))
    return found


def join(parts: list[tuple[int, bytes]]) -> bytes:
    """Put a message together."""
    return b"".join(
        varint(tag) + (varint(len(content)) + content if tag & 7 == _LENGTH_DELIMITED else content)
        for tag, content in parts
    )


def reshape(data: bytes, random: Random, tokens: tuple[bytes, ...], depth: int = 0) -> bytes:
    """Change one thing somewhere in a message.

    Args:
        data: The message; other bytes come back with a token in their place.
        random: Where choices come from.
        tokens: Contents that mean something.
        depth: How deep the message lies in others.
    """
    parts = fields(data)
    if not parts:
        return random.choice(tokens)
    at = int(random.random() * len(parts))
    tag, content = parts[at]
    if tag & 7 == _LENGTH_DELIMITED and depth < _MAX_DEPTH and random.random() < 0.75:
        parts[at] = tag, reshape(content, random, tokens, depth + 1)
        return join(parts)
    other = parts[int(random.random() * len(parts))]
    choice = int(random.random() * 9)
    if choice == 0:
        del parts[at]
    elif choice == 1:
        parts[at:at] = [parts[at]] * (1 << int(random.random() * 6))
    elif choice == 2:
        parts.insert(at, other)
    elif choice == 3:
        parts[at] = other
    elif choice == 4:
        parts[at] = tag, _other_content(tag, random, tokens)
    elif choice == 5:
        parts.insert(at, (tag & 7 | 8 * int(1 + random.random() * 40), content))  # maybe a field nobody knows
    elif choice == 6:
        # The same in an odd encoding: a tag or a length in more bytes than it needs.
        odd = varint(tag, padding=random.randrange(3))
        if tag & 7 == _LENGTH_DELIMITED:
            odd += varint(len(content), padding=random.randrange(3))
        return join(parts[:at]) + odd + content + join(parts[at + 1 :])
    elif choice == 7:
        parts[at] = tag & 7 | 8 * (1 + int(random.random() * 12)), content
    else:
        # In two pieces, which a parser merges.
        inner = fields(content) if tag & 7 == _LENGTH_DELIMITED else None
        if inner:
            cut = int(random.random() * len(inner))
            parts[at : at + 1] = [(tag, join(inner[:cut])), (tag, join(inner[cut:]))]
    return join(parts)


def _other_content(tag: int, random: Random, tokens: tuple[bytes, ...]) -> bytes:
    kind = tag & 7
    if kind == _VARINT:
        return varint(random.choice((0, 1, 2, 127, 128, (1 << 31) - 1, (1 << 32) - 1, (1 << 64) - 1)))
    if kind == _FIXED64:
        return random.choice(_DOUBLES)
    if kind == _FIXED32:
        return random.randbytes(4)
    return random.choice(tokens)


def _varint_at(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint and where it ends; -1 for an end where there is none."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, -1
