# ruff: noqa: S608 - constants of this package; Grafana quotes what users choose (:sqlstring).
"""Panels for the roll-up's findings and their evidence."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.panels import NOTHING_FOUND, Panel, column, lines, link_to_path, number, rows
from deploy.dashboards.queries import Mark
from deploy.dashboards.sql import BY_CLIENT, BY_FLEET, SEEN, are_all, chosen, key

#: Findings of the chosen clusters and software, and findings without a cluster or software.
OF_CHOSEN: Final = (
    f"({chosen({'cluster': 'cluster_id'})} OR cluster_id IS NULL)\n"
    f"  AND ({chosen({'software': 'client_software_name'})} OR client_software_name IS NULL)"
)
_OF_FLEET: Final = chosen(BY_FLEET)
_OF_CLIENTS: Final = f"FROM telemetry.client WHERE {SEEN} AND {chosen(BY_FLEET | BY_CLIENT)}"
#: The same, and if clients are chosen: only findings of these, and of their groups.
OF_CHOSEN_CLIENTS: Final = (
    f"{OF_CHOSEN}\n"
    f"  AND ({are_all(list(BY_CLIENT))}\n"
    f"    OR client_id IN (SELECT client_id {_OF_CLIENTS})\n"
    f"    OR client_id IS NULL AND group_id IN (SELECT group_id {_OF_CLIENTS}))"
)
SEVERITY_COLOURS: Final = {"critical": "red", "warning": "orange", "info": "blue"}
#: The condition held in the range, by the clients' minutes.
_IN_RANGE: Final = "began_at <= $__timeTo() AND coalesce(ended_at, 'infinity') >= $__timeFrom()"
_RANK: Final = "array_position(ARRAY['critical', 'warning', 'info'], severity)"
_SUBJECT: Final = (
    "CASE\n"
    "    WHEN client_id IS NOT NULL OR client_instance_id IS NOT NULL\n"
    "      THEN 'client ' || coalesce(client_id, '(none)')\n"
    "    WHEN group_id IS NOT NULL THEN 'group ' || group_id\n"
    "    ELSE concat_ws(' ', client_software_name, client_software_version)\n"
    "  END"
)
#: The dashboard that shows a finding's subject, with its variable.
_PATH: Final = (
    "CASE\n"
    "    WHEN client_id IS NOT NULL OR client_instance_id IS NOT NULL\n"
    f"      THEN 'kct-one-client?var-client=' || {key('client_id')}\n"
    f"    WHEN group_id IS NOT NULL THEN 'kct-topics-and-groups?var-group=' || {key('group_id')}\n"
    f"    ELSE 'kct-versions?var-software=' || {key('client_software_name')}\n"
    "  END"
)
#: Clients to look at first: the worst instance of a group, or the first client ids of a version.
_MEMBER: Final = (
    "coalesce(\n"
    "    (SELECT client.client_id FROM telemetry.client\n"
    "      WHERE client.client_instance_id = finding.evidence ->> 'worst_instance'),\n"
    "    (SELECT string_agg(id, ', ') FROM jsonb_array_elements_text(\n"
    "      CASE jsonb_typeof(evidence -> 'some_client_ids') WHEN 'array' THEN evidence -> 'some_client_ids'\n"
    "        ELSE '[]' END) AS id)\n"
    "  )"
)
#: The dashboard that shows them: one client, or all with the version.
_MEMBER_PATH: Final = (
    "CASE\n"
    "    WHEN evidence ->> 'worst_instance' IS NOT NULL THEN (\n"
    f"      SELECT 'kct-one-client?var-client=' || {key('client_id')} FROM telemetry.client\n"
    "      WHERE client.client_instance_id = finding.evidence ->> 'worst_instance')\n"
    f"    WHEN client_id IS NOT NULL THEN 'kct-one-client?var-client=' || {key('client_id')}\n"
    f"    ELSE 'kct-versions?var-software=' || {key('client_software_name')}\n"
    "  END"
)


def tiles() -> tuple[Panel, ...]:
    """Build a number of open findings for each severity."""
    words = {
        "critical": "Data or service is affected now.",
        "warning": "Look at it this week.",
        "info": "Good to know.",
    }
    return tuple(
        number(
            title,
            f"Open findings of severity {severity}. {words[severity]}",
            "short",
            "SELECT count(*)::float8 AS value FROM telemetry.finding\n"
            f"WHERE resolved_at IS NULL AND severity = '{severity}'\n  AND {OF_CHOSEN}",
            warnings={1: SEVERITY_COLOURS[severity]},
            width=3,
        )
        for severity, title in (("critical", "Critical"), ("warning", "Warnings"), ("info", "Info"))
    )


def of_clients() -> str:
    """Return a query of open findings by client id: its own, and those of its groups.

    A finding that names the worst member of a group is of that member alone.

    Its columns are client_id, rank (1 is critical), severity and kinds.
    """
    return (
        "SELECT client_id, min(rank) AS rank,\n"
        "  (ARRAY['critical', 'warning', 'info'])[min(rank)] AS severity,\n"
        "  string_agg(DISTINCT kind, ', ') AS kinds\n"
        "FROM (\n"
        f"  SELECT client_id, kind, {_RANK} AS rank FROM telemetry.finding\n"
        f"  WHERE resolved_at IS NULL AND client_id IS NOT NULL AND {OF_CHOSEN}\n"
        "  UNION ALL\n"
        f"  SELECT client.client_id, kind, {_RANK} AS rank FROM telemetry.finding\n"
        "  JOIN telemetry.client ON client.group_id = finding.group_id\n"
        "    AND coalesce(client.cluster_id, '') = coalesce(finding.cluster_id, '')\n"
        "  WHERE resolved_at IS NULL AND finding.client_id IS NULL AND finding.group_id IS NOT NULL\n"
        # Of some findings, one member is the cause.
        "    AND coalesce(finding.evidence ->> 'worst_instance', client.client_instance_id)\n"
        "      = client.client_instance_id\n"
        ") AS open_findings\nGROUP BY client_id"
    )


def marks(condition: str = OF_CHOSEN, *, clients: str = _OF_FLEET) -> tuple[Mark, ...]:
    """Build the marks of findings and of new versions, for all lines of a dashboard.

    ``condition`` is that of the findings, ``clients`` that of clients with a new version.
    """
    versions = (
        "SELECT begun AS time, client_id || ' now runs ' || client_software_name || ' '\n"
        "  || client_software_version AS text, 'version' AS tags\n"
        "FROM (\n"
        "  SELECT client_id, client_software_name, client_software_version, min(first_seen) AS begun,\n"
        "    row_number() OVER (\n"
        "      PARTITION BY client_id, client_software_name ORDER BY min(first_seen)) AS turn\n"
        f"  FROM telemetry.client WHERE {clients}\n"
        "  GROUP BY 1, 2, 3\n"
        ") AS versions\n"
        "WHERE turn > 1 AND begun BETWEEN $__timeFrom() AND $__timeTo()\nORDER BY 1 DESC LIMIT 100"
    )
    found = (
        "SELECT began_at AS time, ended_at AS timeend, severity || ': ' || summary AS text, kind AS tags\n"
        "FROM telemetry.finding\n"
        "WHERE severity <> 'info' AND began_at BETWEEN $__timeFrom() AND $__timeTo()\n"
        f"  AND {condition}\n"
        "ORDER BY 1 DESC LIMIT 100"
    )
    return Mark("Findings", found, colour="red"), Mark("Versions", versions, colour="blue")


def findings(title: str, condition: str, *, height: int = 9) -> Panel:
    """Build the table of findings that were open in the range, the most severe first."""
    query = (
        f"SELECT severity, {_SUBJECT} AS subject, summary, {_MEMBER} AS member, kind,\n"
        "  began_at, ended_at, principal, cluster_id, client_instance_id,\n"
        f"  evidence::text AS evidence, {_PATH} AS subject_key,\n  {_MEMBER_PATH} AS member_key\n"
        "FROM telemetry.finding\n"
        f"WHERE {_IN_RANGE}\n  AND {condition}\n"
        "ORDER BY (resolved_at IS NULL) DESC,\n"
        f"  {_RANK}, last_seen DESC, finding_id\n"
        "LIMIT 200"
    )
    return rows(
        title,
        "Findings of the roll-up in the clients' telemetry: open ones first, then by severity. The evidence "
        "has the numbers and the thresholds (docs/findings.md).",
        query,
        {
            "severity": column("Severity", width=90, colours=SEVERITY_COLOURS),
            "subject": column("Who", width=210, links=link_to_path("subject")),
            "summary": column("Finding", width=560),
            "member": column("Look at", width=160, links=link_to_path("member")),
            "kind": column("Kind", width=150),
            "began_at": column("Since", "dateTimeFromNow", width=130),
            "ended_at": column("Ended", "dateTimeFromNow", width=130),
            "principal": column("Principal", width=140),
            "cluster_id": column("Cluster", width=120),
            "client_instance_id": column("Instance", width=150),
            "evidence": column("Evidence"),
        },
        height=height,
        nothing=NOTHING_FOUND,
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
        "  ON began_at < step + $__interval_ms * interval '1 millisecond'\n"
        "  AND coalesce(ended_at, 'infinity') > step\n"
        f"  AND {_IN_RANGE}\nWHERE {condition}\n"
        "GROUP BY 1, 2\nORDER BY 1, 2"
    )
    return lines(
        "Open findings by kind",
        "Findings whose condition held in each step, by the clients' minutes.",
        "short",
        query,
        width=width,
        stacked=True,
        decimals=0,
        nothing=NOTHING_FOUND,
    )
