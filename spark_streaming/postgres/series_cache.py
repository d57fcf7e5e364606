"""Caches which series are in the database, so that each is looked up once a day.

A series that was used today is not deleted today, so an entry is valid until the end of the day.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

_NONE: Final[Ids] = np.empty(0, np.int64)
#: Series in the cache, about 80 MB with their hashes. A larger cache is cleared.
_MAX_SERIES: Final = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSeries:
    """Ids of hashes, in the order of the query."""

    known: npt.NDArray[np.bool_]
    """Which hashes the database has. The ids of the others are undefined."""
    series: Ids
    fleet: Ids


@dataclass(frozen=True, slots=True)
class _Hashed:
    """Hashes and their ids, sorted by hash."""

    high: Ids = field(default_factory=_NONE.copy)
    low: Ids = field(default_factory=_NONE.copy)
    series: Ids = field(default_factory=_NONE.copy)
    fleet: Ids = field(default_factory=_NONE.copy)

    def with_rows(self, rows: Ids) -> _Hashed:
        """Return these and other rows (high, low, series, fleet), without duplicates."""
        columns = [
            np.concatenate((old, new))
            for old, new in zip((self.high, self.low, self.series, self.fleet), rows.T, strict=True)
        ]
        order = np.lexsort(columns[1::-1])
        high, low = columns[0][order], columns[1][order]
        kept = np.ones(len(order), np.bool_)
        kept[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        return _Hashed(*(column[order][kept] for column in columns))


class SeriesCache:
    """Series that were used today. Not thread-safe."""

    def __init__(self) -> None:
        self._day: datetime | None = None
        self._ids = _NONE
        self._hashed = _Hashed()

    def begin(self, day: datetime) -> None:
        """Forget the series of another day."""
        if day != self._day or len(self._ids) > _MAX_SERIES:
            self._day, self._ids, self._hashed = day, _NONE, _Hashed()

    def clear(self) -> None:
        """Forget everything, because the server may be another one."""
        self._day = None

    def add(self, rows: Ids) -> None:
        """Add series that the database has: rows of high, low, series and fleet."""
        self._hashed = self._hashed.with_rows(rows)
        self.add_ids(rows[:, 2])

    def add_ids(self, ids: Ids) -> None:
        """Add the ids of series that the database has."""
        self._ids = np.union1d(self._ids, ids)

    def find(self, high: Ids, low: Ids) -> FoundSeries:
        """Find the series of distinct hashes, given by their halves.

        Of hashes with an equal first half, only one is found.
        """
        found = FoundSeries(
            known=np.zeros(len(high), np.bool_), series=np.zeros_like(high), fleet=np.zeros_like(high)
        )
        hashed = self._hashed
        if len(hashed.high):
            places = np.minimum(np.searchsorted(hashed.high, high), len(hashed.high) - 1)
            at = np.flatnonzero((hashed.high[places] == high) & (hashed.low[places] == low))
            found.known[at] = True
            found.series[at] = hashed.series[places[at]]
            found.fleet[at] = hashed.fleet[places[at]]
        return found

    def without(self, ids: Ids) -> Ids:
        """Return the distinct ids that the cache lacks."""
        ids = np.unique(ids)
        if not len(self._ids):
            return ids
        # Faster than numpy.isin, which sorts both again.
        places = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        missing: Ids = ids[self._ids[places] != ids]
        return missing
