"""Counters of a relay's connections, in memory that the core sees too.

The relay counts where chunks pass, and the core reads. So a relay that is killed loses no count but
that of the chunk it was moving, and a core that starts anew finds everything. Each connection has a
*slot*. The relay takes a free slot; the core frees it, once it has settled the counters of the
closed connection. A word is written by one process only: the relay's first, the core's behind them.

``receiver/native/_speedups.c`` writes the same words.
"""

from __future__ import annotations

import mmap
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from receiver.wire.seen_versions import SEEN_BYTES

#: Connections that have a slot at a time. Others are counted nowhere. A page of the memory is used
#: once it is written.
MAX_SLOTS: Final = 262_144

#: Words of a slot that the relay writes: the connection's number on its relay, 0 if it is free;
#: bytes from and to the client; its requests; the broker's frames; requests that the broker got
#: besides the client's own, without those answered here; monotonic milliseconds of the latest bytes
#: and of the next interval; the API key of the latest request; and the milliseconds since the epoch
#: at which it closed, 0 while it is open.
NUMBER: Final = 0
BYTES_IN: Final = 1
BYTES_OUT: Final = 2
REQUESTS: Final = 3
RESPONSES: Final = 4
EXTRA: Final = 5
LAST_AT: Final = 6
NEXT_AT: Final = 7
LAST_KEY: Final = 8
CLOSED_AT: Final = 9

#: Words that the core writes: two records of what is settled, each with its stamp.
SETTLED: Final = 12
_RECORD_WORDS: Final = 4

#: The counters at the first bytes of each of the latest intervals, with the interval's number.
HISTORY: Final = 20
INTERVAL_MS: Final = 10_000
INTERVALS: Final = 6
_ENTRY_WORDS: Final = 4

#: The versions of the APIs that were used.
SEEN: Final = HISTORY + INTERVALS * _ENTRY_WORDS

WORDS: Final = SEEN + SEEN_BYTES // 8
_WORD_BYTES: Final = 8
_SLOT_BYTES: Final = WORDS * _WORD_BYTES
_EMPTY: Final = bytes(_SLOT_BYTES)

#: In front of the slots: the number of slots that were ever used, and the layout of this module. A
#: relay of an earlier version, which a new one takes over, may have another layout.
_USED: Final = 0
_LAYOUT_AT: Final = 1
_LAYOUT: Final = 1
_HEADER_WORDS: Final = WORDS

_clock_gettime = time.clock_gettime
#: CLOCK_MONOTONIC_COARSE of <linux/time.h>: as precise as the kernel's ticks, and quick to read.
_COARSE: Final = 6


def now_ms() -> int:
    """Return monotonic milliseconds, as the counters have them."""
    return int(_clock_gettime(_COARSE) * 1000)


def new_table(slots: int = MAX_SLOTS) -> int:
    """Return the descriptor of an empty table.

    Raises:
        OSError: No descriptor or no memory is left.
    """
    fd = os.memfd_create("traffic", os.MFD_CLOEXEC)
    with closed_on_error(fd):
        os.ftruncate(fd, (_HEADER_WORDS + slots * WORDS) * _WORD_BYTES)
    return fd


@contextmanager
def closed_on_error(fd: int) -> Iterator[None]:
    """Close a descriptor if the block fails."""
    try:
        yield
    except BaseException:
        os.close(fd)
        raise


class Slot:
    """The counters of one connection, for the relay.

    Attributes:
        index: Its place in the table; -1: it is private to the relay.
        seen: The bytes of its versions.
    """

    __slots__ = ("index", "seen", "words")

    def __init__(self, index: int, raw: memoryview) -> None:
        self.index = index
        self.words: memoryview[int] = raw.cast("q")
        self.seen = raw[SEEN * _WORD_BYTES : SEEN * _WORD_BYTES + SEEN_BYTES]


def private_slot() -> Slot:
    """Return a slot that is in no table, so that the core does not see it."""
    return Slot(-1, memoryview(bytearray(_SLOT_BYTES)))


def arrived(words: memoryview[int]) -> None:
    """Note that bytes have arrived now, before they are counted."""
    now = int(_clock_gettime(_COARSE) * 1000)
    words[LAST_AT] = now
    if now >= words[NEXT_AT]:
        interval = now // INTERVAL_MS
        at = HISTORY + interval % INTERVALS * _ENTRY_WORDS
        words[at + 1], words[at + 2], words[at + 3] = words[BYTES_IN], words[BYTES_OUT], words[REQUESTS]
        words[at] = interval
        words[NEXT_AT] = (interval + 1) * INTERVAL_MS


class _Mapped:
    """A table in this process's memory."""

    def __init__(self, fd: int) -> None:
        self._raw = memoryview(mmap.mmap(fd, os.fstat(fd).st_size))
        self._words: memoryview[int] = self._raw.cast("q")
        self._slots = len(self._words) // WORDS - _HEADER_WORDS // WORDS

    def _slot(self, index: int) -> memoryview:
        begin = _HEADER_WORDS * _WORD_BYTES + index * _SLOT_BYTES
        return self._raw[begin : begin + _SLOT_BYTES]


class RelayTable(_Mapped):
    """The table of this relay, whose descriptor ``fd`` the caller may close."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._words[_LAYOUT_AT] = _LAYOUT
        self._closed: deque[int] = deque()  # the earliest first

    def take(self, number: int) -> Slot:
        """Return a slot for a connection; a private one if none is free."""
        index = self._free()
        if index is None:
            return private_slot()
        raw = self._slot(index)
        raw[:] = _EMPTY
        slot = Slot(index, raw)
        slot.words[LAST_KEY] = -1
        slot.words[LAST_AT] = now_ms()
        slot.words[NUMBER] = number
        return slot

    def _free(self) -> int | None:
        used, closed = self._words[_USED], self._closed
        if closed and not self._words[_HEADER_WORDS + closed[0] * WORDS + NUMBER]:
            return closed.popleft()
        if used == self._slots:
            return None
        self._words[_USED] = used + 1
        return used

    def close(self, slot: Slot) -> None:
        """Leave a slot to the core, which settles and frees it."""
        if slot.index < 0:
            return
        slot.words[CLOSED_AT] = time.time_ns() // 1_000_000
        self._closed.append(slot.index)

    def is_settled(self, index: int, number: int) -> bool:
        """Return whether the core has settled a closed connection."""
        return self._words[_HEADER_WORDS + index * WORDS + NUMBER] != number


class CoreTable(_Mapped):
    """The table of a relay, for the core.

    Args:
        fd: Its descriptor, which the caller may close.
        committed: The stamp of the latest settlement that is stored. Later ones count as nothing.

    Raises:
        ValueError: The relay has another layout.
        OSError: There is no memory left.
    """

    def __init__(self, fd: int, committed: int) -> None:
        super().__init__(fd)
        if self._words[_LAYOUT_AT] not in {0, _LAYOUT}:  # 0: the relay has not begun
            raise ValueError(f"the relay counts in layout {self._words[_LAYOUT_AT]}, the core in {_LAYOUT}")
        for index in range(self.used):
            words = self.words(index)
            for at in (SETTLED, SETTLED + _RECORD_WORDS):
                if words[at] > committed:
                    words[at] = 0

    @property
    def used(self) -> int:
        """The number of slots that were ever used."""
        return min(self._words[_USED], self._slots)

    def words(self, index: int) -> memoryview[int]:
        """Return the words of a slot."""
        begin = _HEADER_WORDS + index * WORDS
        return self._words[begin : begin + WORDS]

    def seen(self, index: int) -> bytes:
        """Return the versions of a slot."""
        return bytes(self._slot(index)[SEEN * _WORD_BYTES : SEEN * _WORD_BYTES + SEEN_BYTES])


def last_minute(words: memoryview[int], now: int) -> tuple[int, int, int]:
    """Return bytes in, bytes out and requests of the last 50 to 60 seconds.

    Args:
        words: A slot's.
        now: Monotonic milliseconds.
    """
    first = now // INTERVAL_MS - INTERVALS + 1
    totals = words[BYTES_IN], words[BYTES_OUT], words[REQUESTS]
    earliest: tuple[int, ...] | None = None
    for at in range(HISTORY, SEEN, _ENTRY_WORDS):
        entry = tuple(words[at : at + _ENTRY_WORDS])
        if entry[0] >= first and (earliest is None or entry[0] < earliest[0]):
            earliest = entry
    if earliest is None:
        return 0, 0, 0
    return totals[0] - earliest[1], totals[1] - earliest[2], totals[2] - earliest[3]


def settled(words: memoryview[int], committed: int) -> tuple[int, int, int] | None:
    """Return bytes in, bytes out and requests that are settled; None: none ever."""
    at = _valid_record(words, committed)
    return (words[at + 1], words[at + 2], words[at + 3]) if words[at] else None


def settle(words: memoryview[int], totals: tuple[int, int, int], stamp: int) -> None:
    """Note what a settlement counts; it holds once its stamp is committed."""
    committed = stamp - 1
    valid = _valid_record(words, committed)
    at = SETTLED if valid != SETTLED else SETTLED + _RECORD_WORDS
    words[at] = 0
    words[at + 1], words[at + 2], words[at + 3] = totals
    words[at] = stamp


def _valid_record(words: memoryview[int], committed: int) -> int:
    """Return where the latest record is whose stamp is committed."""
    stamps = [words[at] if words[at] <= committed else -1 for at in (SETTLED, SETTLED + _RECORD_WORDS)]
    return SETTLED if stamps[0] >= stamps[1] else SETTLED + _RECORD_WORDS
