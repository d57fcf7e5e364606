"""Helpers that make and read spools in a folder."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from receiver.host.spool import Spool, Spooled
from receiver.host.spool.frame import FILE_HEADER, HEADER_BYTES, parse_header
from receiver.plugin import Push
from tests.unit.host.support import numbers, push

EVERYTHING = 1_000_000


def spool(folder: Path, *, max_bytes: int = 1 << 20, segment_bytes: int = 1 << 16) -> Spool:
    return Spool(folder, max_bytes=max_bytes, segment_bytes=segment_bytes)


def opened(folder: Path, *, max_bytes: int = 1 << 20, segment_bytes: int = 1 << 16) -> Spool:
    one = spool(folder, max_bytes=max_bytes, segment_bytes=segment_bytes)
    one.open()
    return one


def some(first: int, end: int, *, size: int = 100) -> list[Push]:
    """Pushes first, first + 1, ... whose data can't be compressed."""
    return [push(number, data=random.Random(number).randbytes(size)) for number in range(first, end)]


def append_each(one: Spool, first: int, end: int, *, size: int = 100) -> None:
    """Append pushes in a frame each."""
    for each in some(first, end, size=size):
        one.append([each])


def numbers_of(spooled: Sequence[Spooled]) -> list[int]:
    return numbers([each.push for each in spooled])


def read_all(one: Spool) -> list[int]:
    return numbers_of(one.read(EVERYTHING, 1 << 40))


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def bytes_on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in (*folder.glob("*.log"), *folder.glob("*.corrupt")))


def frames(path: Path) -> list[int]:
    """Where the frames of a segment begin, and where the last one ends."""
    data = path.read_bytes()
    places = [len(FILE_HEADER)]
    while places[-1] < len(data):
        header = parse_header(data[places[-1] : places[-1] + HEADER_BYTES])
        places.append(places[-1] + header.frame_bytes)
    return places


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)
