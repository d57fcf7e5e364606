"""Reads the rolled-up metrics from PostgreSQL's views, like Grafana does.

Owns the queries; draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import psycopg

#: What the roll-up adds to each push is no metric of the client's.
_OWN: Final = "kafka.client.telemetry.%"

_CLIENTS: Final = """
SELECT client_software_name, client_software_version, count(*)
FROM telemetry.client GROUP BY 1, 2 ORDER BY 1, 2
"""
_PUSHES: Final = """
SELECT client_software_name, client_software_version, sum(pushes)::bigint, sum(points)::bigint
FROM telemetry.client_1m GROUP BY 1, 2
"""
_METRICS: Final = """
SELECT client_software_name, client_software_version,
    count(DISTINCT metric) FILTER (WHERE metric NOT LIKE %s),
    sum(sum) FILTER (WHERE metric = 'org.apache.kafka.producer.record.send.total'),
    sum(sum) FILTER (WHERE metric = 'org.apache.kafka.consumer.fetch.manager.records.consumed.total'),
    max(max) FILTER (WHERE metric LIKE 'org.apache.kafka.%%.node.request.latency.max')
FROM telemetry.fleet_1m GROUP BY 1, 2
"""
_FINDINGS: Final = """
SELECT severity, kind, summary FROM telemetry.finding WHERE resolved_at IS NULL ORDER BY began_at LIMIT 5
"""
_BY_CLIENT: Final = """
SELECT client_id, count(DISTINCT metric) FROM telemetry.metric_1m WHERE metric NOT LIKE %s GROUP BY client_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareSummary:
    """What one version of one client software came to.

    Attributes:
        name: What it calls itself.
        version: Its version.
        clients: Its client instances.
        pushes: Pushes, each counted once.
        points: Data points.
        metrics: Names of metrics.
        sent: Records that its producers sent; None where it doesn't tell.
        consumed: Records that its consumers fetched; None where it doesn't tell.
        latency_ms: The longest that a request took.
    """

    name: str
    version: str
    clients: int
    pushes: int = 0
    points: int = 0
    metrics: int = 0
    sent: float | None = None
    consumed: float | None = None
    latency_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finding that holds now, in the words of its row."""

    severity: str
    kind: str
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What is in the database.

    Attributes:
        software: By name and version.
        findings: The first that hold.
        metrics: How many metrics there are of a client, by client id.
    """

    software: Sequence[SoftwareSummary] = ()
    findings: Sequence[Finding] = ()
    metrics: Mapping[str, int] = field(default_factory=dict)


class RolledUp:
    """A reader of the roll-up's views.

    Args:
        url: The database.
    """

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def summary(self) -> Summary:
        """Read it all; empty before the roll-up has made its tables."""
        try:
            with self._connection.transaction():
                return self._read()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return Summary()

    def _read(self) -> Summary:
        execute = self._connection.execute
        pushes = {row[:2]: row[2:] for row in execute(_PUSHES)}
        metrics = {row[:2]: row[2:] for row in execute(_METRICS, (_OWN,))}
        software = []
        for name, version, clients in execute(_CLIENTS):
            pushed, points = pushes.get((name, version), (0, 0))
            names, sent, consumed, latency_ms = metrics.get((name, version), (0, None, None, None))
            software.append(
                SoftwareSummary(
                    name=name,
                    version=version,
                    clients=clients,
                    pushes=pushed,
                    points=points,
                    metrics=names,
                    sent=sent,
                    consumed=consumed,
                    latency_ms=latency_ms,
                )
            )
        return Summary(
            software=software,
            findings=[
                Finding(severity=severity, kind=kind, summary=summary)
                for severity, kind, summary in execute(_FINDINGS)
            ],
            metrics=dict(execute(_BY_CLIENT, (_OWN,)).fetchall()),
        )
