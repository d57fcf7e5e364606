"""Caches which series are in the database, so that each is looked up once a day.

A series that was used today is not deleted today, so an entry is valid until the end of the day.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psycopg

__all__ = ["FoundSeries", "SeriesCache"]

Ids = npt.NDArray[np.int64]

_NONE: Final[Ids] = np.empty(0, np.int64)
#: Series in the cache, about 80 MB with their hashes. A larger cache is cleared.
_MAX_SERIES: Final = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSeries:
    """Ids of hashes, in the order of the query.

    Attributes:
        known: Which hashes the database has. The ids of the others are undefined.
        series: Series ids.
        fleet: Fleet series ids.
    """

    known: npt.NDArray[np.bool_]
    series: Ids
    fleet: Ids


@dataclass(frozen=True, slots=True)
class _Hashed:
    """Hashes and their ids, sorted by hash."""

    high: Ids = field(default_factory=_NONE.copy)
    low: Ids = field(default_factory=_NONE.copy)
    series: Ids = field(default_factory=_NONE.copy)
    fleet: Ids = field(default_factory=_NONE.copy)

    def __len__(self) -> int:
        return len(self.high)

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

    def rows(self) -> Ids:
        return np.stack((self.high, self.low, self.series, self.fleet), axis=1)

    def find_into(self, found: FoundSeries, high: Ids, low: Ids) -> None:
        """Fill in the cached ids. Of hashes with an equal first half, only one is found."""
        if not len(self):
            return
        places = np.minimum(np.searchsorted(self.high, high), len(self) - 1)
        at = np.flatnonzero((self.high[places] == high) & (self.low[places] == low))
        found.known[at] = True
        found.series[at] = self.series[places[at]]
        found.fleet[at] = self.fleet[places[at]]


class SeriesCache:
    """Series used today by committed transactions and by the current one."""

    def __init__(self) -> None:
        self._day: datetime | None = None
        self._committed = _NONE
        self._current = _NONE
        self._required = _NONE
        self._committed_hashes = _Hashed()
        self._current_hashes = _Hashed()

    def begin(self, day: datetime) -> None:
        """Start a transaction. Forgets the series of one that was not committed."""
        if day != self._day or len(self._committed) > _MAX_SERIES:
            self._day, self._committed, self._committed_hashes = day, _NONE, _Hashed()
        self._current = self._required = _NONE
        self._current_hashes = _Hashed()

    def commit(self) -> None:
        """Keep the series of the transaction, which was committed."""
        self._committed = np.union1d(self._committed, self._current)
        if len(self._current_hashes):
            self._committed_hashes = self._committed_hashes.with_rows(self._current_hashes.rows())

    def require(self, ids: Ids) -> None:
        """Require that these series are in the database when the transaction ends."""
        self._required = np.union1d(self._required, self._not_cached(ids))

    def add(self, rows: Ids) -> None:
        """Add series that are in the database: rows of high, low, series and fleet."""
        self._current_hashes = self._current_hashes.with_rows(rows)
        self._current = np.union1d(self._current, rows[:, 2])

    def find(self, cursor: psycopg.Cursor[Any], high: Ids, low: Ids) -> FoundSeries:
        """Find the series of distinct hashes, and mark them as used today.

        Args:
            cursor: In the transaction.
            high: First halves of the hashes.
            low: Second halves.
        """
        found = FoundSeries(
            known=np.zeros(len(high), np.bool_), series=np.zeros_like(high), fleet=np.zeros_like(high)
        )
        for hashed in (self._committed_hashes, self._current_hashes):
            hashed.find_into(found, high, low)
        asked = np.flatnonzero(~found.known)
        if len(asked):
            cursor.execute(
                "SELECT w.position, s.series_id, s.fleet_id FROM unnest(%s::bigint[], %s::bigint[]) "
                "WITH ORDINALITY AS w (series_high, series_low, position) "
                "JOIN series s USING (series_high, series_low)",
                (high[asked].tolist(), low[asked].tolist()),
            )
            rows = np.array(cursor.fetchall(), np.int64).reshape(-1, 3)
            at = asked[rows[:, 0] - 1]
            found.known[at], found.series[at], found.fleet[at] = True, rows[:, 1], rows[:, 2]
            if len(at):
                _mark_used(cursor, rows[:, 1])
                self.add(np.stack((high[at], low[at], rows[:, 1], rows[:, 2]), axis=1))
        return found

    def missing(self, cursor: psycopg.Cursor[Any]) -> set[int]:
        """Return required series that the database lacks. Marks the others as used."""
        asked = self._not_cached(self._required)
        if not len(asked):
            return set()
        cursor.execute("SELECT series_id FROM series WHERE series_id = ANY(%s::bigint[])", (asked.tolist(),))
        found = np.array([series_id for (series_id,) in cursor], np.int64)
        if len(found):
            _mark_used(cursor, found)
            self._current = np.union1d(self._current, found)
        return set(np.setdiff1d(asked, found).tolist())

    def _not_cached(self, ids: Ids) -> Ids:
        ids = np.unique(ids)
        for cached in (self._committed, self._current):
            ids = ids[~_is_in(ids, cached)]
        return ids


def _mark_used(cursor: psycopg.Cursor[Any], series: Ids) -> None:
    cursor.execute(
        "WITH used AS (UPDATE series SET last_day = current_date WHERE series_id = ANY(%s::bigint[]) "
        "AND last_day < current_date RETURNING fleet_id) "
        "UPDATE fleet_series SET last_day = current_date "
        "WHERE fleet_id IN (SELECT fleet_id FROM used) AND last_day < current_date",
        (series.tolist(),),
    )


def _is_in(ids: Ids, known: Ids) -> npt.NDArray[np.bool_]:
    # Faster than numpy.isin, which sorts both again.
    if not len(known):
        return np.zeros(len(ids), bool)
    places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return np.equal(known[places], ids)
