"""Builds clients and their values in the store's tables, for tests of findings."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg

from spark_streaming.findings import FindingCounts, FindingSettings, find

NOW: Final = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
INTERVAL_MS: Final = 300_000
LAG: Final = "org.apache.kafka.consumer.fetch.manager.records.lag.max"
SETTINGS: Final = FindingSettings()
_keys = itertools.count(1)


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


class Fleet:
    """Clients in the store. ``look`` searches for findings, as maintenance does."""

    def __init__(self, connection: psycopg.Connection[dict[str, Any]], url: str) -> None:
        self.connection, self.url = connection, url

    def client(
        self,
        name: str,
        *,
        first_seen: datetime = NOW - timedelta(hours=5),
        last_seen: datetime = NOW - timedelta(minutes=1),
        terminated: bool = False,
        interval_ms: int = INTERVAL_MS,
        pushes: int = 9,
        **values: Any,
    ) -> int:
        """Add a client that pushed the same values each interval until ``last_seen``."""
        labels = {
            "cluster_id": "c1",
            "client_id": name,
            "client_software_name": "apache-kafka-java",
            "client_software_version": "4.4.0",
            "principal": "User:app",
            "group_id": None,
            "client_owner": None,
        }
        labels.update({key: values.pop(key) for key in tuple(values) if key in labels})
        key = next(_keys)
        self.connection.execute(
            "INSERT INTO telemetry.client_state (client_key, client_instance_id, first_seen, last_seen,"
            " push_interval_ms, terminated, terminated_at, cluster_id, client_id, client_software_name,"
            " client_software_version, principal, group_id, client_owner)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                key,
                name,
                first_seen,
                last_seen,
                interval_ms,
                terminated,
                last_seen if terminated else None,
                *labels.values(),
            ),
        )
        self.says(key, last_seen, pushes=pushes, interval_ms=interval_ms, **values)
        return key

    def says(
        self, key: int, last: datetime, *, pushes: int = 9, interval_ms: int = INTERVAL_MS, **values: Any
    ) -> None:
        """Add the values of some pushes of a client."""
        values = {"push_interval_ms_sum": interval_ms, **values}
        columns = "".join(f", {name}" for name in values)
        with self.connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO telemetry.client_rollup_1m"
                f" (client_key, bucket, pushes, points, terminating{columns})"
                f" VALUES (%s, date_trunc('minute', %s), 1, 10, false{', %s' * len(values)})",
                [
                    (key, last - push * timedelta(milliseconds=interval_ms), *values.values())
                    for push in range(pushes)
                ],
            )

    def lags(
        self,
        client_id: str,
        values: Sequence[float],
        *,
        group_id: str | None = None,
        last: datetime = NOW - timedelta(minutes=1),
        interval_ms: int = INTERVAL_MS,
    ) -> None:
        """Add the lag of a client id in its pushes, the newest last."""
        (series,) = self.connection.execute(
            "INSERT INTO telemetry.series"
            " (fleet_id, metric, cluster_id, client_id, group_id, breakdown, rule)"
            " VALUES (1, %s, 'c1', %s, %s, false, 3) RETURNING series_id",
            (LAG, client_id, group_id),
        )
        with self.connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO telemetry.rollup_1m (series_id, bucket, points, min, max)"
                " VALUES (%s, date_trunc('minute', %s), 1, %s, %s)",
                [
                    (series["series_id"], last - push * timedelta(milliseconds=interval_ms), value, value)
                    for push, value in enumerate(reversed(values))
                ],
            )

    def went_on(self, key: int, now: datetime, **values: Any) -> None:
        """Let a client push until shortly before then, now saying something else."""
        self.connection.execute("DELETE FROM telemetry.client_rollup_1m WHERE client_key = %s", (key,))
        self.connection.execute(
            "UPDATE telemetry.client_state SET last_seen = %s WHERE client_key = %s", (now - minutes(1), key)
        )
        self.says(key, now - minutes(1), **values)

    def look(
        self, now: datetime = NOW, settings: FindingSettings = SETTINGS, *, found_at: datetime | None = None
    ) -> FindingCounts:
        with self.connection.transaction():
            return find(self.connection, settings, now, found_at=found_at)

    def findings(self, kind: str | None = None) -> list[dict[str, Any]]:
        return self.connection.execute(
            "SELECT * FROM telemetry.finding WHERE %s::text IS NULL OR kind = %s ORDER BY finding_id",
            (kind, kind),
        ).fetchall()

    def open(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in self.findings(kind) if row["resolved_at"] is None]

    def one(self, kind: str) -> dict[str, Any]:
        (finding,) = self.open(kind)
        return finding


def peers(fleet: Fleet, count: int = 5, **values: Any) -> list[int]:
    return [fleet.client(f"peer-{number}", **values) for number in range(count)]
