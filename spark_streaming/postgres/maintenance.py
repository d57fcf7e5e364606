"""Maintenance transaction, once a minute: hours, days and retention."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from time import monotonic, sleep
from typing import Any, Final

import psycopg
from psycopg import sql

from spark_streaming.contributions import ClientState, Contribution, Reconciliation
from spark_streaming.pace import pause_s
from spark_streaming.postgres import clients, contributions, dead_letters, loads, new_series, series
from spark_streaming.postgres.coarse import mark
from spark_streaming.postgres.database import SERIES_LOCK
from spark_streaming.postgres.horizons import DAY, Horizons, read_until
from spark_streaming.postgres.packed import stored_rows
from spark_streaming.postgres.packing import Packing
from spark_streaming.postgres.partitions import PACKED, PARTITIONED, Partitions
from spark_streaming.postgres.series_cache import SeriesCache
from spark_streaming.postgres.spans import beginning
from spark_streaming.postgres.sums import Sums
from spark_streaming.postgres.tables import GRAINS, MINUTES, TOTALS, Grain
from spark_streaming.settings import RetentionSettings

#: A growing hour or day is computed again once a minute, or less often if that takes long
#: (``pause_s``).
_MIN_PAUSE_S: Final = 55.0
_USUAL_PAUSE_S: Final = {"1h": 300.0, "1d": 900.0}
#: If no minute becomes whole for so long, there may be no further push, and hours get all minutes.
_STUCK: Final = timedelta(minutes=5)
#: Days by which a month of days outlives its first day.
_LONGEST_MONTH: Final = 31
#: A drop waits for the readers of a table, and other readers wait for it, so each wait is short.
_DROP_TIMEOUT: Final = "100ms"
_DROP_TRIES: Final = 10
_DROP_PAUSE_S: Final = 0.15


class Maintenance:
    """Carries counts forward, computes hours and days, and drops old rows.

    :meth:`Store.maintenance` creates, commits or rolls it back.

    Args:
        connection: In a transaction that holds the store's lock.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        *,
        retention: RetentionSettings,
        series_cache: SeriesCache,
        now_ns: int,
    ) -> None:
        #: For other statements in the same transaction.
        self.connection = connection
        self._cursor = connection.cursor()
        self._binary = connection.cursor(binary=True)
        self._retention = retention
        self._partitions = Partitions(self._cursor)
        self._packing = Packing(self._cursor, self._partitions)
        horizons = Horizons.read(self._cursor)
        self._horizons, self._now = dict(horizons.since), horizons.now
        series_cache.begin(horizons.today)
        self._series_cache = series_cache
        # The earlier of two clocks, because one that is ahead must not expire anything.
        self._clock = min(self._now, datetime.fromtimestamp(now_ns / 1e9, UTC))

    def clients_to_carry(self, closed: int) -> dict[int, ClientState]:
        """Return the states of clients whose counts must be carried forward."""
        return clients.states(
            self._binary,
            sql.SQL("to_carry AND covered_until < %s"),
            [closed],
        )

    def contributions(self, pairs: Collection[tuple[int, int]]) -> dict[tuple[int, int], Contribution]:
        """Return the stored contributions by client key and minute."""
        return contributions.read(self._binary, pairs)

    def carry(self, reconciled: Reconciliation) -> None:
        """Store what was carried forward. It counts at once.

        Raises:
            StoreError: A series or a client is not in the database.
        """
        sums = Sums(Horizons(now=self._now, since=self._horizons))
        sums.add(reconciled.rows)
        if len(self._series_cache.without(sums.series)):
            self._cursor.execute("SELECT pg_advisory_xact_lock(%s)", [SERIES_LOCK])
            series.require(self._cursor, self._series_cache, sums.series)
        minutes = sums.minutes()
        for table, buckets in {**minutes, "contribution": [self._now]}.items():
            self._partitions.ensure(table, buckets)
        load = loads.Load(self.connection, loads.next_id(self._cursor))
        load.totals(sums)
        load.contributions(reconciled.contributions)
        late = loads.add_late(self._cursor, [load.load_id], self._partitions)
        clients.put_silent(self._cursor, reconciled.clients)
        self._cursor.execute(
            "UPDATE horizon SET minutes_covered_until = "
            "(SELECT to_timestamp((min(covered_until) + 1) * 60) FROM client_state WHERE to_carry)"
        )
        changed = {**late, MINUTES.name: [at for found in minutes.values() for at in found]}
        self._packing.note_late(changed)
        for grain, coarser in pairwise(GRAINS):
            mark(self._cursor, coarser, changed[grain.name])

    def read_until(self, time_ns: int | None, *, ended: bool) -> datetime | None:
        """Record that pushes received until this time were read. It never decreases.

        Args:
            time_ns: The time, nanoseconds since the epoch. None if nothing was read.
            ended: No further pushes will be read.

        Returns:
            The last minute whose pushes were read, or with ``ended`` the last one with pushes. None
            if none was.
        """
        until = read_until(self._cursor, time_ns)
        if until is None:
            return None
        minute = until.replace(second=0, microsecond=0)
        return minute if ended else minute - timedelta(minutes=1)

    def sweep(self) -> int:
        """Delete the rows of loads that will never count. Returns the number of loads."""
        return loads.sweep(self._cursor)

    def compute_hours_and_days(self, *, all_of_them: bool = False) -> int:
        """Compute changed hours from minutes, changed days from hours; return how many.

        A growing hour gets the minutes that have become whole since it was computed. If an earlier
        minute has changed, all are added up again.

        Args:
            all_of_them: Include hours and days that are not due yet, and minutes that are not
                whole.
        """
        # Hours are computed of minutes that are whole until then, and days of hours.
        ((until,),) = self._cursor.execute("SELECT whole_until FROM progress")
        whole_until = None if all_of_them else until
        done = 0
        for finer, grain in pairwise(GRAINS):
            before = self._computed_until(grain)
            dirty = self._dirty(grain, finer)
            due = {bucket for bucket, is_due in dirty.items() if is_due or all_of_them}
            # All that grow are computed at once, because the views take means until one time.
            growing = {
                bucket
                for bucket in dirty
                if bucket <= until and (before is None or before < bucket + grain.length)
            }
            if growing & due:
                due |= growing
            if until == before and until < self._now - _STUCK:
                whole_until = None
            done += self._compute(grain, finer, sorted(due), whole_until)
            if growing <= due:
                self._cursor.execute(
                    sql.SQL("UPDATE horizon SET {} = %s").format(_until_column(grain)), [until]
                )
            elif before is not None:
                until = before
        return done

    def backlog(self) -> dict[str, int]:
        """Return how many ``hours`` and ``days`` changed and are not computed yet."""
        found = dict(
            self._cursor.execute("SELECT grain, count(*) FROM coarse WHERE dirty GROUP BY grain").fetchall()
        )
        return {"hours": found.get("1h", 0), "days": found.get("1d", 0)}

    def expire(self) -> None:
        """Drop expired rows, and create the partitions of today and tomorrow.

        A partition that readers hold for some seconds is dropped by a later maintenance.
        """
        today, kept = beginning("day", self._clock), self._retention
        due = {"1m": kept.minute_days, "1h": kept.hour_days, "1d": kept.day_days}
        for grain, coarser in zip(GRAINS, (*GRAINS[1:], None), strict=True):
            until = today - due[grain.name] * DAY
            if until > self._horizons[grain.name]:
                if coarser is not None:
                    # Before the rows are dropped, because the coarser table can't be computed
                    # afterwards.
                    dirty = self._dirty(coarser, grain)
                    self._compute(coarser, grain, sorted(bucket for bucket in dirty if bucket < until))
                self._horizons[grain.name] = until
        self._cursor.execute(
            "UPDATE horizon SET minutes_from = %s, hours_from = %s, days_from = %s",
            [*self._horizons.values()],
        )
        self._packing.expire(self._horizons)
        for table, span in PARTITIONED.items():
            if table in PACKED:
                continue
            times = [self._now, self._now + timedelta(hours=1)]
            self._partitions.ensure(table, times if span == "hour" else [today, today + DAY])
        self._delete(today)
        self._drop(today)

    def _delete(self, today: datetime) -> None:
        kept, now = self._retention, self._clock
        dead_letters.expire(self._cursor, now - kept.dead_letter_days * DAY, kept.dead_letters)
        new_series.expire(self._cursor, now)
        self._cursor.execute("DELETE FROM finding WHERE last_seen < %s", [now - kept.finding_days * DAY])
        self._cursor.execute(
            "DELETE FROM ledger l WHERE committed_at < %s AND EXISTS "
            "(SELECT FROM ledger n WHERE n.query_id = l.query_id AND n.batch_id > l.batch_id)",
            [now - kept.ledger_days * DAY],
        )
        self._cursor.execute(
            "UPDATE horizon SET expired_on = %(day)s WHERE expired_on IS DISTINCT FROM %(day)s",
            {"day": today},
        )
        if self._cursor.rowcount:
            self._cursor.execute(
                "DELETE FROM client_state WHERE last_seen < %s", [now - kept.hour_days * DAY]
            )
            # No longer than there are days, and not before the hours expire.
            unused_days = min(max(kept.series_days, kept.hour_days), kept.day_days + _LONGEST_MONTH)
            series.delete_unused(self._cursor, today - unused_days * DAY)
            self._cursor.execute(
                "DELETE FROM coarse WHERE NOT dirty AND bucket < CASE grain WHEN '1h' THEN %s ELSE %s END",
                [self._horizons["1m"], self._horizons["1h"]],
            )

    def _drop(self, today: datetime) -> None:
        # While old pushes are read again, their ids are kept, however old they are.
        (newest,) = self._cursor.execute(
            "SELECT newest_received_at FROM ledger WHERE newest_received_at IS NOT NULL "
            "ORDER BY committed_at DESC LIMIT 1"
        ).fetchone() or (self._clock,)
        expired: dict[str, datetime] = {}
        for grain in GRAINS:
            horizon = self._horizons[grain.name]
            for kind in TOTALS:
                expired[kind.table(grain)] = horizon
                expired[kind.packed_table(grain)] = horizon
        expired["push"] = min(today, beginning("day", newest)) - self._retention.push_days * DAY
        expired["contribution"] = self._clock - timedelta(hours=self._retention.contribution_hours)
        for _ in range(_DROP_TRIES):
            try:
                with self.connection.transaction():
                    self._drop_at_once(expired)
                return
            except psycopg.errors.LockNotAvailable:
                # Readers wait for the tables that were locked before. Let them pass.
                sleep(_DROP_PAUSE_S)

    def _drop_at_once(self, expired: Mapping[str, datetime]) -> None:
        partitions = Partitions(self._cursor)
        self._cursor.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(_DROP_TIMEOUT)))
        for table in PARTITIONED:
            partitions.drop(table, before=expired[table])
        for grain in GRAINS:
            for kind in (kind for kind in TOTALS if grain.name in kind.grains):
                partitions.drop_empty(kind.table(grain), before=self._packing.until(grain))

    def _computed_until(self, grain: Grain) -> datetime | None:
        """The time up to which growing hours or days are computed; None if nothing is."""
        found: datetime | None
        ((found,),) = self._cursor.execute(sql.SQL("SELECT {} FROM horizon").format(_until_column(grain)))
        return found

    def _dirty(self, grain: Grain, finer: Grain) -> dict[datetime, bool]:
        """The buckets that changed and can be computed, with whether they are due."""
        return dict(
            self._cursor.execute(
                "SELECT bucket, due_at <= %s FROM coarse WHERE grain = %s AND dirty AND bucket >= %s",
                (self._now, grain.name, self._horizons[finer.name]),
            ).fetchall()
        )

    def _compute(
        self, grain: Grain, finer: Grain, buckets: Sequence[datetime], whole_until: datetime | None = None
    ) -> int:
        """Compute hours or days; return for how many there was something to compute.

        Args:
            grain: Hours or days.
            finer: Minutes or hours.
            whole_until: Leave out later minutes.
        """
        done = 0
        for bucket in buckets:
            started = monotonic()
            since, until = bucket, bucket + grain.length
            if finer is MINUTES:
                since, until = self._minutes_to_add(bucket, whole_until)
            if since >= until:
                continue
            done += 1
            self._packing.open_window(grain, bucket)
            for totals in TOTALS:
                if grain.name in totals.grains:
                    self._partitions.ensure(totals.table(grain), [bucket])
                    rows = stored_rows(totals, finer, since, until)
                    totals.compute(self._cursor, grain, bucket, rows, add=since > bucket)
            self._cursor.execute(
                "UPDATE coarse SET dirty = %s, changed_from = NULL, computed_until = %s, "
                "due_at = clock_timestamp() + %s WHERE (grain, bucket) = (%s, %s)",
                (
                    until < bucket + grain.length,
                    until,
                    timedelta(seconds=_pause_s(grain, monotonic() - started)),
                    *(grain.name, bucket),
                ),
            )
            coarser = GRAINS[GRAINS.index(grain) + 1 :][:1]
            for table in coarser:
                mark(self._cursor, table, [bucket])
        return done

    def _minutes_to_add(self, hour: datetime, whole_until: datetime | None) -> tuple[datetime, datetime]:
        """Return the first minute to add to an hour, and the end of the last one."""
        until = hour + timedelta(hours=1)
        # An hour that is still to come has none that is whole.
        if whole_until is not None and whole_until >= hour:
            until = min(until, MINUTES.beginning(whole_until))
        ((changed_from, computed_until),) = self._cursor.execute(
            "SELECT changed_from, computed_until FROM coarse WHERE grain = '1h' AND bucket = %s", [hour]
        )
        if computed_until is None:
            return hour, until
        if changed_from is None or changed_from >= computed_until:
            return computed_until, until
        # An earlier one has changed. So what the hour has is replaced.
        return hour, max(computed_until, until)


def _until_column(grain: Grain) -> sql.Identifier:
    return sql.Identifier({"1h": "hours_computed_until", "1d": "days_computed_until"}[grain.name])


def _pause_s(grain: Grain, spent_s: float) -> float:
    """Return the seconds until a growing bucket is computed again, from those it took."""
    return max(_MIN_PAUSE_S, pause_s(spent_s, usual_s=_USUAL_PAUSE_S[grain.name]))
