"""Matches a client against many subscriptions at once.

RE2 runs up to 64 patterns of a selector as one automaton, which takes the time of one or two
patterns. A set of subscriptions is an integer with a bit for each, so that combining the selectors
costs a few operations. With 1,000 subscriptions a match takes some tens of microseconds.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from receiver.patterns import PatternSet
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.selectors import Revealed, selector_of, selector_value

# More patterns in one automaton save little time and take longer to compile.
_PATTERNS_IN_A_GROUP: Final = 64

# Compiled groups are kept, because a change of one subscription changes one group of a selector.
_MAX_GROUPS_KEPT: Final = 512


class _Selector:
    """The patterns of one selector, and the subscriptions that each decides about."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.needing = 0  # the subscriptions with a pattern that must match
        self.allows: dict[str, int] = {}  # by pattern: the subscriptions that need it
        self.forbids: dict[str, int] = {}  # by pattern: the subscriptions that exclude it
        self._groups: list[PatternSet] = []

    def add(self, pattern: str, bit: int, *, negated: bool) -> None:
        masks = self.forbids if negated else self.allows
        masks[pattern] = masks.get(pattern, 0) | bit
        if not negated:
            self.needing |= bit

    def compile(self) -> None:
        patterns = {**self.allows, **self.forbids}
        count = math.ceil(len(patterns) / _PATTERNS_IN_A_GROUP)
        groups: list[list[str]] = [[] for _ in range(count)]
        for pattern in sorted(patterns):
            groups[zlib.crc32(pattern.encode("utf-8", "replace")) % count].append(pattern)
        self._groups = [_pattern_set(tuple(group)) for group in groups if group]

    def excluded(self, value: bytes) -> int:
        """Return the subscriptions that do not match a client with this value."""
        allowed = forbidden = 0
        for group in self._groups:
            for pattern in group.matching(value):
                allowed |= self.allows.get(pattern, 0)
                forbidden |= self.forbids.get(pattern, 0)
        return self.needing & ~allowed | forbidden


class Matcher:
    """Finds the subscriptions that match a client.

    Args:
        conditions: For each subscription its patterns by selector, as in ``match``. The patterns
            are valid.
    """

    def __init__(self, conditions: Sequence[Mapping[str, str]]) -> None:
        self._every = (1 << len(conditions)) - 1
        selectors: dict[str, _Selector] = {}
        for index, match in enumerate(conditions):
            for condition, pattern in match.items():
                name, negated = selector_of(condition)
                selector = selectors.setdefault(name, _Selector(name))
                selector.add(pattern, 1 << index, negated=negated)
        self._selectors = tuple(selectors.values())
        for selector in self._selectors:
            selector.compile()

    @property
    def selectors(self) -> frozenset[str]:
        """The names of the selectors that have a pattern."""
        return frozenset(selector.name for selector in self._selectors)

    def matching(self, client: ClientIdentity, revealed: Revealed) -> int:
        """Return the subscriptions that match, as bits by index."""
        matching = self._every
        for selector in self._selectors:
            if not matching:
                break
            matching &= ~selector.excluded(selector_value(selector.name, client, revealed))
        return matching


@lru_cache(_MAX_GROUPS_KEPT)
def _pattern_set(patterns: tuple[str, ...]) -> PatternSet:
    return PatternSet(patterns)


def bits(mask: int) -> Iterable[int]:
    """Return the indexes of the bits that are set, in ascending order."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
