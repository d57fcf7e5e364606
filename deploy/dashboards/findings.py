# ruff: noqa: S608 - constants of this package; Grafana quotes what users choose (:sqlstring).
"""Panels for the roll-up's findings and their evidence."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.panels import Panel, column, lines, link_to_client, rows
from deploy.dashboards.sql import SEEN, chosen, key_column

__all__ = ["OF_CHOSEN", "SEVERITY_COLOURS", "findings", "findings_over_time"]

#: Findings of the chosen clusters and software, and findings without a cluster or software.
OF_CHOSEN: Final = (
    f"({chosen({'cluster': 'cluster_id'})} OR cluster_id IS NULL)\n"
    f"  AND ({chosen({'software': 'client_software_name'})} OR client_software_name IS NULL)"
)
SEVERITY_COLOURS: Final = {"critical": "red", "warning": "orange", "info": "blue"}


def findings(title: str, condition: str, *, height: int = 9) -> Panel:
    """Build the table of findings that were open in the range, the most severe first."""
    query = (
        "SELECT severity, kind, summary, client_id, client_software_name, client_software_version,\n"
        "  principal, group_id, cluster_id, client_instance_id, first_seen, last_seen, resolved_at,\n"
        f"  evidence::text AS evidence, {key_column('client_id')}\n"
        "FROM telemetry.finding\n"
        f"WHERE {SEEN}\n  AND {condition}\n"
        "ORDER BY (resolved_at IS NULL) DESC,\n"
        "  array_position(ARRAY['critical', 'warning', 'info'], severity), last_seen DESC\n"
        "LIMIT 200"
    )
    return rows(
        title,
        "Findings of the roll-up in the clients' telemetry: open ones first, then by severity. The evidence "
        "has the numbers and the thresholds (docs/findings.md).",
        query,
        {
            "severity": column("Severity", width=90, colours=SEVERITY_COLOURS),
            "kind": column("Kind", width=150),
            "summary": column("Finding", width=560),
            "client_id": column("Client id", width=160, links=link_to_client()),
            "client_software_name": column("Software", width=150),
            "client_software_version": column("Version", width=90),
            "principal": column("Principal", width=140),
            "group_id": column("Group", width=140),
            "cluster_id": column("Cluster", width=120),
            "client_instance_id": column("Instance", width=150),
            "first_seen": column("First seen", "dateTimeFromNow", width=130),
            "last_seen": column("Last seen", "dateTimeFromNow", width=130),
            "resolved_at": column("Resolved", "dateTimeFromNow", width=130),
            "evidence": column("Evidence"),
        },
        height=height,
    )


def findings_over_time(condition: str, *, width: int = 24) -> Panel:
    """Build the panel of open findings over time, by kind."""
    query = (
        "SELECT extract(epoch FROM step) AS time, kind AS metric, count(*)::float8 AS value\n"
        "FROM generate_series(\n"
        "  to_timestamp($__from / $__interval_ms * $__interval_ms / 1000), $__timeTo()::timestamptz,\n"
        "  $__interval_ms * interval '1 millisecond'\n"
        ") AS step\n"
        "JOIN telemetry.finding\n"
        "  ON first_seen < step + $__interval_ms * interval '1 millisecond'\n"
        "  AND coalesce(resolved_at, 'infinity') > step\n"
        f"  AND {SEEN}\nWHERE {condition}\n"
        "GROUP BY 1, 2\nORDER BY 1, 2"
    )
    return lines(
        "Open findings by kind",
        "Findings that were open in each step. A finding is resolved once its condition stays false.",
        "short",
        query,
        width=width,
        stacked=True,
    )
