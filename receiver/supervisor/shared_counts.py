"""Counts that all processes of a receiver see, in memory that they share.

The supervisor makes it and its children inherit it by fork. A process writes only counts of its
own, a whole word at a time, so nobody needs a lock.
"""

from __future__ import annotations

import mmap
from typing import Final

#: Processes at a time. There are at most 256 relays, and as many that drain.
_MAX_PROCESSES: Final = 512

#: Words of a process: one for its connections, and the counts of keys. Two keys share a count in a
#: thousandth of all cases.
_WORDS: Final = 1024
_COUNTS: Final = _WORDS - 1

_WORD_BYTES: Final = 8

_NONE: Final = memoryview(bytes(_WORDS * _WORD_BYTES)).cast("q")


class SharedCounts:
    """The counts of all processes. A page of memory is used once it is written."""

    def __init__(self) -> None:
        # The number of processes, and their counts one after the other.
        size = 1 + _MAX_PROCESSES * _WORDS
        self._words = memoryview(mmap.mmap(-1, size * _WORD_BYTES)).cast("q")
        self._claimed: set[int] = set()

    def claim(self) -> ProcessCounts:
        """Return the counts of a new process, all zero. Call it before the fork.

        Raises:
            OSError: There are too many processes.
        """
        number = next((index for index in range(_MAX_PROCESSES) if index not in self._claimed), None)
        if number is None:
            raise OSError(f"{_MAX_PROCESSES} relays run already, with those that drain")
        self._claimed.add(number)
        self._words[0] = max(self._claimed) + 1
        return ProcessCounts(self._words, number)

    def release(self, counts: ProcessCounts) -> None:
        """Take back the counts of a process that has ended."""
        counts.clear()
        self._claimed.discard(counts.number)
        self._words[0] = max(self._claimed, default=-1) + 1


class ProcessCounts:
    """The counts of one process, by key.

    Keys are hashed with the process's own seed, which its forks have too. So no client can choose
    an address that shares a count with another's.

    Args:
        words: As :class:`SharedCounts` has laid them out.
    """

    __slots__ = ("_first", "_words", "number")

    def __init__(self, words: memoryview[int], number: int) -> None:
        self._words = words
        self._first = 1 + number * _WORDS
        self.number = number

    def add(self, key: str, more: int) -> None:
        """Change this process's count of a key."""
        self._words[self._first + 1 + hash(key) % _COUNTS] += more

    def total(self, key: str) -> int:
        """Return the sum of all processes' counts of a key."""
        words = self._words
        return sum(words[2 + hash(key) % _COUNTS : 1 + words[0] * _WORDS : _WORDS])

    def set_connections(self, connections: int | None) -> None:
        """Set how many connections this process has; None: it accepts no clients."""
        self._words[self._first] = 0 if connections is None else connections + 1

    def fewest_connections(self, *, above: int = -1) -> int | None:
        """Return the least number of connections of a process that accepts clients.

        This one counts too. None: no process accepts clients.

        Args:
            above: Leave out the processes that have this many, or fewer.
        """
        words = self._words
        counts = [count for count in words[1 : 1 + words[0] * _WORDS : _WORDS] if count > above + 1]
        return min(counts) - 1 if counts else None

    def clear(self) -> None:
        """Set all counts of this process to zero."""
        self._words[self._first : self._first + _WORDS] = _NONE
