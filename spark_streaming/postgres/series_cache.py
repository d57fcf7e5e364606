"""Owns which series a process knows to be in the database, so that each is looked up once a day.

A series of which rows came today is not deleted: what was seen today stays true until tomorrow.
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
#: 80 MB with their hashes; beyond it the memory starts anew.
_MOST: Final = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSeries:
    """The ids of hashes, in the order in which they were asked for.

    Attributes:
        known: Which of the hashes the database has; the ids of the others mean nothing.
        series: The ids of series.
        fleet: The ids of their fleet series.
    """

    known: npt.NDArray[np.bool_]
    series: Ids
    fleet: Ids


@dataclass(frozen=True, slots=True)
class _Hashed:
    """Hashes with their ids, by the hashes' first half."""

    high: Ids = field(default_factory=_NONE.copy)
    low: Ids = field(default_factory=_NONE.copy)
    series: Ids = field(default_factory=_NONE.copy)
    fleet: Ids = field(default_factory=_NONE.copy)

    def __len__(self) -> int:
        return len(self.high)

    def and_also(self, rows: Ids) -> _Hashed:
        """Add rows of all four; a hash that is there already may come again."""
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
        """Fill in what is here. Of two hashes with one first half, only the first is found here."""
        if not len(self):
            return
        places = np.minimum(np.searchsorted(self.high, high), len(self) - 1)
        at = np.flatnonzero((self.high[places] == high) & (self.low[places] == low))
        found.known[at] = True
        found.series[at] = self.series[places[at]]
        found.fleet[at] = self.fleet[places[at]]


class SeriesCache:
    """The series seen today by committed transactions, and those of the current one."""

    def __init__(self) -> None:
        self._day: datetime | None = None
        self._committed = _NONE
        self._mine = _NONE
        self._needed = _NONE
        self._committed_hashes = _Hashed()
        self._my_hashes = _Hashed()

    def begin(self, day: datetime) -> None:
        """A transaction begins; whatever the last one saw without committing is forgotten."""
        if day != self._day or len(self._committed) > _MOST:
            self._day, self._committed, self._committed_hashes = day, _NONE, _Hashed()
        self._mine = self._needed = _NONE
        self._my_hashes = _Hashed()

    def commit(self) -> None:
        """The transaction was committed."""
        self._committed = np.union1d(self._committed, self._mine)
        if len(self._my_hashes):
            self._committed_hashes = self._committed_hashes.and_also(self._my_hashes.rows())

    def require(self, ids: Ids) -> None:
        """These must be in the database when the transaction ends."""
        self._needed = np.union1d(self._needed, self._fresh(ids))

    def add(self, rows: Ids) -> None:
        """These are in the database now: rows of a hash's two halves, its series and its fleet series."""
        self._my_hashes = self._my_hashes.and_also(rows)
        self._mine = np.union1d(self._mine, rows[:, 2])

    def find(self, cursor: psycopg.Cursor[Any], high: Ids, low: Ids) -> FoundSeries:
        """Find the series of hashes; those that are there are marked as in use today.

        Args:
            cursor: In the transaction.
            high: The hashes' first halves; each hash once.
            low: Their second halves.

        Raises:
            psycopg.Error: They can't be looked up.
        """
        found = FoundSeries(
            known=np.zeros(len(high), np.bool_), series=np.zeros_like(high), fleet=np.zeros_like(high)
        )
        for hashed in (self._committed_hashes, self._my_hashes):
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
                _use(cursor, rows[:, 1])
                self.add(np.stack((high[at], low[at], rows[:, 1], rows[:, 2]), axis=1))
        return found

    def missing(self, cursor: psycopg.Cursor[Any]) -> set[int]:
        """Which of those that are needed the database lacks; the others are marked as in use today."""
        asked = self._fresh(self._needed)
        if not len(asked):
            return set()
        cursor.execute("SELECT series_id FROM series WHERE series_id = ANY(%s::bigint[])", (asked.tolist(),))
        found = np.array([series_id for (series_id,) in cursor], np.int64)
        if len(found):
            _use(cursor, found)
            self._mine = np.union1d(self._mine, found)
        return set(np.setdiff1d(asked, found).tolist())

    def _fresh(self, ids: Ids) -> Ids:
        fresh = np.unique(ids)
        for known in (self._committed, self._mine):
            fresh = fresh[~_among(fresh, known)]
        return fresh


def _use(cursor: psycopg.Cursor[Any], series: Ids) -> None:
    cursor.execute(
        "WITH used AS (UPDATE series SET last_day = current_date WHERE series_id = ANY(%s::bigint[]) "
        "AND last_day < current_date RETURNING fleet_id) "
        "UPDATE fleet_series SET last_day = current_date "
        "WHERE fleet_id IN (SELECT fleet_id FROM used) AND last_day < current_date",
        (series.tolist(),),
    )


def _among(ids: Ids, known: Ids) -> npt.NDArray[np.bool_]:
    # Both are sorted: faster than numpy's isin, which sorts them once more.
    if not len(known):
        return np.zeros(len(ids), bool)
    places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return np.equal(known[places], ids)
