"""Counts new series by client, principal and minute; takes out those over a bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
from psycopg import sql

from spark_streaming import admission
from spark_streaming.admission import Bound, Candidate, Count
from spark_streaming.postgres.tables import EPOCH
from spark_streaming.settings import NewSeriesSettings

Ids = npt.NDArray[np.int64]

#: How long counters are kept after their last change. They are of the time of receipt, so those of
#: old pushes that are read now are new.
_KEPT: Final = timedelta(hours=2)
#: Refused series that are remembered, 8 MB.
_MAX_REMEMBERED: Final = 1_000_000
_NONE: Final[Ids] = np.empty(0, np.int64)

#: The decoder's own series of each client, which are admitted before those that it pushes.
_FIRST: Final = frozenset({"kafka.client.telemetry.clients", "kafka.client.telemetry.pushes"})

#: The staged series that will be rows. Others have a row without a hash, or are folded into
#: another one (reasons.py) because that has all that it may have.
_NEW: Final = (
    "SELECT s.series_high, s.series_low FROM pg_temp.staged s WHERE "
    "NOT EXISTS (SELECT FROM series o WHERE (o.series_high, o.series_low) = (s.series_high, s.series_low)) "
    "AND NOT EXISTS (SELECT FROM series o WHERE o.series_high IS NULL AND {old} = {new}) "
    "AND NOT ((s.reason IS NOT NULL OR s.error IS NOT NULL) AND {max_reasons} <= (SELECT count(*) FROM "
    "(SELECT FROM series o WHERE (o.reason IS NOT NULL OR o.error IS NOT NULL) AND {old_base} = {new_base} "
    "LIMIT {max_reasons}) AS stored)) ORDER BY 1, 2"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomers:
    """What bounds the series to add."""

    minutes: Sequence[int]
    """When the push of each was received, in minutes since the epoch."""
    settings: NewSeriesSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Series that were not added."""

    high: Ids
    """First halves of their hashes."""
    bounds: Mapping[Bound, int]
    client_id: str | None
    """The client id with most of them."""
    principal: str | None


class RefusedSeries:
    """Remembers refused series. Not thread-safe.

    Their dimensions are sent only once. So they are refused again without a look, until the next
    minute.
    """

    def __init__(self) -> None:
        self._minute: datetime | None = None
        self._high = _NONE

    def begin(self, now: datetime) -> None:
        """Forget the series of another minute."""
        minute = now.replace(second=0, microsecond=0)
        if minute != self._minute:
            self._minute, self._high = minute, _NONE

    def clear(self) -> None:
        """Forget everything, because the server may be another one."""
        self._minute = None

    def add(self, high: Ids) -> None:
        """Add refused series, given by the first halves of their hashes."""
        if len(self._high) < _MAX_REMEMBERED:
            self._high = np.union1d(self._high, high)

    def contains(self, high: Ids) -> npt.NDArray[np.bool_]:
        """Return which are remembered. Two share a half once in 2 ** 64 pairs."""
        return np.isin(high, self._high)


def refuse(
    cursor: psycopg.Cursor[Any],
    series: pa.Table,
    newcomers: Newcomers,
    names: Mapping[str, sql.Composable],
) -> Refused | None:
    """Take new series over a bound out of ``pg_temp.staged``, count the others.

    Args:
        cursor: In a transaction that holds the lock of series and has staged them.
        series: The staged ``SERIES_ROWS``.
        names: Parts of statements: digests of series ``o`` and ``s``, and the bound of reasons.

    Returns:
        The series that were taken out; None if there are none.
    """
    pairs = zip(series["series_high"].to_pylist(), series["series_low"].to_pylist(), strict=True)
    at = {pair: row for row, pair in enumerate(pairs)}
    metric = series["metric"].to_pylist()
    new = [at[pair] for pair in cursor.execute(sql.SQL(_NEW).format(**names)).fetchall()]
    new.sort(key=lambda row: metric[row] not in _FIRST)
    if not new:
        return None
    columns = (series[name].to_pylist() for name in ("cluster_id", "principal", "client_id"))
    all_candidates = list(map(Candidate, *columns, newcomers.minutes))
    candidates = [all_candidates[row] for row in new]
    counters = {counter for candidate in set(candidates) for counter in admission.counts(candidate)}
    over, added = admission.admit(candidates, _read(cursor, counters), newcomers.settings)
    _write(cursor, added)
    refused = [(row, bound) for row, bound in zip(new, over, strict=True) if bound is not None]
    if not refused:
        return None
    rows = pa.array([row for row, _ in refused], pa.int64())
    high, low = (series[name].take(rows).to_numpy() for name in ("series_high", "series_low"))
    cursor.execute(
        "DELETE FROM pg_temp.staged s USING unnest(%s::bigint[], %s::bigint[]) AS r (high, low) "
        "WHERE (s.series_high, s.series_low) = (r.high, r.low)",
        (high.tolist(), low.tolist()),
    )
    ((largest, _),) = Counter(all_candidates[row]._replace(minute=0) for row, _ in refused).most_common(1)
    return Refused(
        high=high,
        bounds=Counter(bound for _, bound in refused),
        client_id=largest.client_id,
        principal=largest.principal,
    )


def expire(cursor: psycopg.Cursor[Any], now: datetime) -> None:
    """Delete the counters that have not changed for hours."""
    cursor.execute("DELETE FROM new_series WHERE counted_at < %s", [now - _KEPT])


def _read(cursor: psycopg.Cursor[Any], counters: set[Count]) -> dict[Count, int]:
    keys = list(counters)
    cursor.execute(
        "SELECT k.position, n.series FROM unnest(%s::text[], %s::timestamptz[], %s::bytea[]) "
        "WITH ORDINALITY AS k (bound, since, name, position) JOIN new_series n USING (bound, since, name)",
        _columns(keys),
    )
    return {keys[position - 1]: series for position, series in cursor}


def _write(cursor: psycopg.Cursor[Any], added: Counter[Count]) -> None:
    cursor.execute(
        "INSERT INTO new_series AS old (bound, since, name, series) "
        "SELECT * FROM unnest(%s::text[], %s::timestamptz[], %s::bytea[], %s::bigint[]) "
        "ON CONFLICT (bound, since, name) DO UPDATE SET series = old.series + excluded.series, "
        "counted_at = clock_timestamp()",
        (*_columns(list(added)), list(added.values())),
    )


def _columns(counters: Sequence[Count]) -> tuple[list[str], list[datetime], list[bytes]]:
    return (
        [bound for bound, _, _ in counters],
        [EPOCH + timedelta(minutes=minute) for _, minute, _ in counters],
        [name for _, _, name in counters],
    )
