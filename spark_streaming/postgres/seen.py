"""Owns which series a process knows to be in the database, so that each is looked up once a day.

A series of which rows came today is not deleted: what was seen today stays true until tomorrow.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psycopg

__all__ = ["SeenSeries"]

Ids = npt.NDArray[np.int64]

_NONE: Final[Ids] = np.empty(0, np.int64)
#: 32 MB; beyond it the memory starts anew.
_MOST: Final = 4_000_000


class SeenSeries:
    """The series seen today by committed transactions, and those of the current one."""

    def __init__(self) -> None:
        self._day: datetime | None = None
        self._committed = _NONE
        self._mine = _NONE
        self._needed = _NONE

    def begin(self, day: datetime) -> None:
        """A transaction begins; whatever the last one saw without committing is forgotten."""
        if day != self._day or len(self._committed) > _MOST:
            self._day, self._committed = day, _NONE
        self._mine = self._needed = _NONE

    def committed(self) -> None:
        """The transaction was committed."""
        self._committed = np.union1d(self._committed, self._mine)

    def need(self, ids: Ids) -> None:
        """These must be in the database when the transaction ends."""
        self._needed = np.union1d(self._needed, self._fresh(ids))

    def added(self, ids: Ids) -> None:
        """These are in the database now."""
        self._mine = np.union1d(self._mine, ids)

    def unknown(self, cursor: psycopg.Cursor[Any], ids: Ids) -> set[int]:
        """Which of these the database lacks; the others are marked as in use today.

        Args:
            cursor: In the transaction.
            ids: In any order.

        Returns:
            Those that are not in the table ``series``.

        Raises:
            psycopg.Error: They can't be looked up.
        """
        asked = self._fresh(ids)
        if not len(asked):
            return set()
        cursor.execute("SELECT series_id FROM series WHERE series_id = ANY(%s::bigint[])", (asked.tolist(),))
        found = np.array([series_id for (series_id,) in cursor], np.int64)
        if len(found):
            cursor.execute(
                "WITH used AS (UPDATE series SET last_day = current_date WHERE series_id = ANY(%s::bigint[]) "
                "AND last_day < current_date RETURNING fleet_id) "
                "UPDATE fleet_series SET last_day = current_date "
                "WHERE fleet_id IN (SELECT fleet_id FROM used) AND last_day < current_date",
                (found.tolist(),),
            )
            self.added(found)
        return set(np.setdiff1d(asked, found).tolist())

    def missing(self, cursor: psycopg.Cursor[Any]) -> set[int]:
        """Which of those that are needed the database lacks."""
        return self.unknown(cursor, self._needed)

    def _fresh(self, ids: Ids) -> Ids:
        fresh = np.unique(ids)
        for known in (self._committed, self._mine):
            fresh = fresh[~_among(fresh, known)]
        return fresh


def _among(ids: Ids, known: Ids) -> npt.NDArray[np.bool_]:
    # Both are sorted: faster than numpy's isin, which sorts them once more.
    if not len(known):
        return np.zeros(len(ids), bool)
    places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return np.equal(known[places], ids)
