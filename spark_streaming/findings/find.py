"""Finds problems of clients once a minute, in the maintenance transaction.

Runs the statements in ``sql/`` in order. All kinds are judged in SQL, except software versions. It
reads the views and writes only the table ``finding``. Running it twice on the same data and time is
idempotent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from spark_streaming.findings.onsets import set_onsets
from spark_streaming.findings.settings import FindingSettings, VersionSettings
from spark_streaming.findings.statements import statement
from spark_streaming.findings.versions import ROLES, SEVERITIES, built_in_versions, judge_versions

_WINDOWED: Final = (
    "throttled",
    "rebalance_storm",
    "connection_churn",
    "slow_client",
    "poll_bound",
    "lagging",
    "shared_instance",
)
_VERSIONS: Final = ("old_version", "known_bad_version")

_Cursor = psycopg.Cursor[tuple[Any, ...]]

# Bounded, because clients choose these names and versions.
_MAX_SOFTWARE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingCounts:
    """Numbers of changed findings by kind, without zeros."""

    opened: Mapping[str, int]
    resolved: Mapping[str, int]
    left_out: Mapping[str, int]
    """Findings without a row, because `max_open` older or worse ones of the kind are open."""


def find(
    connection: psycopg.Connection[Any],
    settings: FindingSettings,
    now: datetime,
    *,
    found_at: datetime | None = None,
) -> FindingCounts:
    """Open, refresh and resolve rows of ``telemetry.finding``.

    The pushed minutes until ``now`` decide everything, except the numbers and the times of rows:
    ``finding_id``, ``first_seen`` and ``resolved_at``.

    Args:
        connection: A connection to the store, in a transaction. The caller holds the store's lock.
        now: The last minute of the windows, with a time zone: later minutes are not used. It must
            not decrease between calls.
        found_at: The time of day. By default it is ``now``.
    """
    longest = max(getattr(settings, kind).window_minutes for kind in _WINDOWED)
    common = {"now": now, "longest": longest, "found_at": found_at or now}
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(statement("tables"))
        cursor.execute(statement("clients"), common | settings.silent.model_dump())
        cursor.execute("ANALYZE finding_client")
        cursor.execute(statement("clusters"), common)
        cursor.execute(
            statement("instances"),
            common
            | {
                "throttle_ms": settings.throttled.throttle_ms,
                "throttled_minutes": settings.throttled.window_minutes,
                "churn_minutes": settings.connection_churn.window_minutes,
                "slow_minutes": settings.slow_client.window_minutes,
                "poll_minutes": settings.poll_bound.window_minutes,
                "lag_minutes": settings.lagging.window_minutes,
                "storm_minutes": settings.rebalance_storm.window_minutes,
                "shared_minutes": settings.shared_instance.window_minutes,
            },
        )
        cursor.execute("ANALYZE finding_instance")
        for kind in (*_WINDOWED, "silent"):
            kind_settings = getattr(settings, kind)
            if kind_settings.enabled:
                cursor.execute(statement(kind), common | kind_settings.model_dump())
        _judge_software(cursor, settings, common)
        return _store_findings(cursor, settings, common)


def _judge_software(cursor: _Cursor, settings: FindingSettings, common: dict[str, Any]) -> None:
    software = cursor.execute(statement("software"), common | {"max_software": _MAX_SOFTWARE}).fetchall()
    for kind in _VERSIONS:
        kind_settings: VersionSettings = getattr(settings, kind)
        if not kind_settings.enabled:
            continue
        built_in = built_in_versions()[kind] if kind_settings.built_in else ()
        ranges = (*kind_settings.further, *built_in)
        judged = [(role, verdict) for role in ROLES for verdict in judge_versions(software, ranges, role)]
        verdicts = [verdict for _, verdict in judged]
        cursor.execute(
            statement("versions"),
            common
            | {
                "kind": kind,
                "roles": [role for role, _ in judged],
                "names": [verdict.client_software_name for verdict in verdicts],
                "versions": [verdict.client_software_version for verdict in verdicts],
                "severities": [verdict.severity for verdict in verdicts],
                "ranks": [SEVERITIES.index(verdict.severity) for verdict in verdicts],
                "reasons": [Jsonb(list(verdict.reasons)) for verdict in verdicts],
                "sources": [Jsonb(list(verdict.sources)) for verdict in verdicts],
            },
        )


def _store_findings(cursor: _Cursor, settings: FindingSettings, common: dict[str, Any]) -> FindingCounts:
    cursor.execute(statement("link_open"))
    cursor.execute(
        statement("refresh_open"), common | {"resolve_after_minutes": settings.resolve_after_minutes}
    )
    new = cursor.execute(statement("insert_new"), common | {"max_open": settings.max_open}).fetchall()
    set_onsets(cursor, settings, _WINDOWED, common["now"])
    ended = cursor.execute(
        statement("resolve_ended"),
        common
        | {
            "resolve_after_minutes": settings.resolve_after_minutes,
            "forget_after_minutes": settings.forget_after_minutes,
        },
    ).fetchall()
    resolved = [kind for kind, is_resolved in ended if is_resolved]
    return FindingCounts(
        opened={kind: opened for kind, opened, _ in new if opened},
        resolved={kind: resolved.count(kind) for kind in sorted(set(resolved))},
        left_out={kind: left_out for kind, _, left_out in new if left_out},
    )
