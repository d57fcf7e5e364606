"""Looks for findings: once a minute, in the transaction of the roll-up's tick.

Owns the order of the statements in ``sql/`` and what they are given. It judges nothing in Python but versions
of software, reads the store's views alone, and writes nothing but the table ``finding``. Two looks at the
same data at the same time leave the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from spark_streaming.findings.settings import FindingSettings, VersionSettings
from spark_streaming.findings.versions import SEVERITIES, built_in_versions, judge_versions

__all__ = ["FindingCounts", "find"]

_WINDOWED: Final = ("throttled", "rebalance_storm", "connection_churn", "slow_client", "poll_bound")
_VERSIONS: Final = ("old_version", "known_bad_version")

_Cursor = psycopg.Cursor[tuple[Any, ...]]

# Names and versions are the clients' own words, so that there may be any number of them.
_MOST_SOFTWARE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingCounts:
    """What a look changed, by kind; a kind without any is left out.

    Attributes:
        opened: Findings that are new.
        resolved: Findings that were open and are resolved.
        left_out: Findings that hold and have no row, as `max_open` of their kind are open; the others are
            worse, or were there before.
    """

    opened: Mapping[str, int]
    resolved: Mapping[str, int]
    left_out: Mapping[str, int]


def find(connection: psycopg.Connection[Any], settings: FindingSettings, now: datetime) -> FindingCounts:
    """Look for findings; open, move on and resolve rows of ``telemetry.finding``.

    Runs in the caller's transaction, and expects that nobody else does the same at the same time.

    Args:
        connection: A connection to the store, in a transaction.
        settings: What to look for.
        now: The end of what is looked back on, with a time zone. Not before the time of an earlier call.

    Returns:
        What changed.
    """
    longest = max(getattr(settings, kind).window_minutes for kind in _WINDOWED)
    common = {"now": now, "longest": longest}
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(_statement("tables"))
        cursor.execute(_statement("clients"), common | settings.silent.model_dump())
        cursor.execute("ANALYZE finding_client")
        cursor.execute(_statement("clusters"), common)
        cursor.execute(
            _statement("instances"),
            common
            | {
                "throttle_ms": settings.throttled.throttle_ms,
                "throttled_minutes": settings.throttled.window_minutes,
                "churn_minutes": settings.connection_churn.window_minutes,
                "slow_minutes": settings.slow_client.window_minutes,
                "poll_minutes": settings.poll_bound.window_minutes,
                "storm_minutes": settings.rebalance_storm.window_minutes,
            },
        )
        cursor.execute("ANALYZE finding_instance")
        for kind in (*_WINDOWED, "silent"):
            chosen = getattr(settings, kind)
            if chosen.enabled:
                cursor.execute(_statement(kind), common | chosen.model_dump())
        _judge_software(cursor, settings, common)
        return _keep(cursor, settings, now)


def _judge_software(cursor: _Cursor, settings: FindingSettings, common: dict[str, Any]) -> None:
    seen = cursor.execute(_statement("software"), common | {"most": _MOST_SOFTWARE}).fetchall()
    for kind in _VERSIONS:
        chosen: VersionSettings = getattr(settings, kind)
        if not chosen.enabled:
            continue
        ranges = (*chosen.further, *(built_in_versions()[kind] if chosen.built_in else ()))
        verdicts = judge_versions(seen, ranges)
        cursor.execute(
            _statement("versions"),
            common
            | {
                "kind": kind,
                "names": [verdict.client_software_name for verdict in verdicts],
                "versions": [verdict.client_software_version for verdict in verdicts],
                "severities": [verdict.severity for verdict in verdicts],
                "ranks": [SEVERITIES.index(verdict.severity) for verdict in verdicts],
                "reasons": [Jsonb(list(verdict.reasons)) for verdict in verdicts],
                "sources": [Jsonb(list(verdict.sources)) for verdict in verdicts],
            },
        )


def _keep(cursor: _Cursor, settings: FindingSettings, now: datetime) -> FindingCounts:
    cursor.execute(_statement("link_open"))
    cursor.execute(_statement("refresh_open"), {"now": now})
    new = cursor.execute(_statement("insert_new"), {"now": now, "max_open": settings.max_open}).fetchall()
    untrue = cursor.execute(
        _statement("resolve_ended"),
        {
            "now": now,
            "resolve_after_minutes": settings.resolve_after_minutes,
            "forget_after_minutes": settings.forget_after_minutes,
        },
    ).fetchall()
    resolved = [kind for kind, is_resolved in untrue if is_resolved]
    return FindingCounts(
        opened={kind: opened for kind, opened, _ in new if opened},
        resolved={kind: resolved.count(kind) for kind in sorted(set(resolved))},
        left_out={kind: left_out for kind, _, left_out in new if left_out},
    )


@cache
def _statement(name: str) -> str:
    return (files(__package__) / "sql" / f"{name}.sql").read_text("utf-8")
