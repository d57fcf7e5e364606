# ruff: noqa: S608 - the SQL holds constants of this module only.
"""Grafana alert rules on the roll-up's findings and on the roll-up itself.

Each rule has a summary, a description and a runbook that says what to do. Templates avoid Go's
``$``, because Grafana expands it to an environment variable when it reads a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deploy.dashboards.runbooks import runbook_url

__all__ = ["DATA_SOURCE_UID", "grafana_rules"]

#: The uid of the PostgreSQL data source. An alert rule can't use a variable for it.
DATA_SOURCE_UID: Final = "kafka-client-telemetry-postgres"

_FOLDER: Final = "Kafka client telemetry"
_LOOK_BACK_S: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class _SqlRule:
    """An alert for each row (labels and one number above zero) of an SQL query."""

    #: The end of its uid.
    name: str
    title: str
    sql: str
    lasts: str
    severity: str
    summary: str
    description: str


_LABELS: Final = (
    "coalesce(cluster_id, '') AS cluster_id, coalesce(client_id, '') AS client_id, "
    "coalesce(group_id, '') AS group_id, coalesce(principal, '') AS principal, "
    "concat_ws(' ', client_software_name, client_software_version) AS software"
)
#: The kinds of finding that fire alerts: least severity, title, meaning. Old versions do not fire.
#: Silent clients do not either: a killed client, or an idle Java producer that was closed, looks
#: like one that hangs.
_FINDINGS: Final = {
    "throttled": ("warning", "Clients are throttled", "A broker quota delays the client."),
    "rebalance_storm": (
        "warning", "A group rebalances too often",
        "Members join and leave often, or poll too late. The group consumes little meanwhile.",
    ),
    "connection_churn": (
        "warning", "A client opens connections all the time",
        "It restarts often, its login fails, or the application creates a client for each use.",
    ),
    "slow_client": (
        "warning", "A client is slower than its peers", "Compare its network, host and brokers "
        "with its peers'.",
    ),
    "poll_bound": (
        "warning", "Consumers are bound by their application", "They almost never wait for records. "
        "More load makes them fall behind.",
    ),
    "shared_instance": (
        "warning", "Several processes use one client instance id", "Their gauges hide each other, and "
        "brokers throttle their pushes.",
    ),
    "known_bad_version": ("critical", "A version is known to be bad", "The finding's evidence names "
    "the defect."),
}  # fmt: skip

_SQL: Final = (
    *(
        _SqlRule(
            name=kind.replace("_", "-"),
            title=title,
            # The roll-up opens a finding only after its condition held for a whole window.
            sql=(
                f"SELECT {_LABELS}, count(*)::float8 AS findings FROM telemetry.finding "
                f"WHERE resolved_at IS NULL AND kind = '{kind}' AND severity IN ({severities}) "
                "GROUP BY 1, 2, 3, 4, 5"
            ),
            lasts="0m",
            severity=severity,
            summary=f"{title}: "
            "{{ .Labels.client_id }} {{ .Labels.group_id }} {{ .Labels.software }} {{ .Labels.cluster_id }}",
            description=f"{meaning} The dashboards Fleet and One client "
            "show the evidence.",
        )
        for kind, (severity, title, meaning) in _FINDINGS.items()
        for severities in ["'critical'" if severity == "critical" else "'warning', 'critical'"]
    ),
    _SqlRule(
        name="rollup-stands-still",
        title="The roll-up stands still",
        sql=(
            # An empty ledger counts too: the job has never run.
            "SELECT (coalesce(max(committed_at), '-infinity') < now() - interval '15 minutes')::int::float8 "
            "AS late FROM telemetry.ledger"
        ),
        lasts="5m",
        severity="critical",
        summary="The roll-up has committed nothing for 15 minutes",
        description="The job does not run, can't reach PostgreSQL, or receives no pushes. `kafka-telemetry "
        "rollup status` shows which. Panels show nothing new meanwhile. Nothing is lost.",
    ),
    _SqlRule(
        name="dead-letters",
        title="Pushes that can't be read",
        sql=(
            "SELECT reason, count(*)::float8 AS letters FROM telemetry.dead_letter "
            "WHERE seen_at > now() - interval '1 hour' GROUP BY 1"
        ),
        lasts="0m",
        severity="warning",
        summary="The roll-up could not read pushes: {{ .Labels.reason }}",
        description="The table telemetry.dead_letter lists them with their source.",
    ),
)  # fmt: skip


def grafana_rules() -> dict[str, object]:
    """Return the rule file for Grafana's provisioning; it uses :data:`DATA_SOURCE_UID`."""
    return {
        "apiVersion": 1,
        "groups": [
            {
                "orgId": 1,
                "name": "kafka-client-telemetry-rollup",
                "folder": _FOLDER,
                "interval": "1m",
                "rules": [_grafana_rule(rule) for rule in _SQL],
            }
        ],
    }


def _grafana_rule(rule: _SqlRule) -> dict[str, object]:
    return {
        "uid": f"kct-{rule.name}",
        "title": rule.title,
        "condition": "B",
        "for": rule.lasts,
        # No row means no finding.
        "noDataState": "OK",
        "execErrState": "Error",
        "labels": {"severity": rule.severity},
        "annotations": {
            "summary": rule.summary,
            "description": rule.description,
            "runbook_url": runbook_url(rule.title),
        },
        "data": [
            {
                "refId": "A",
                "relativeTimeRange": {"from": _LOOK_BACK_S, "to": 0},
                "datasourceUid": DATA_SOURCE_UID,
                "model": {
                    "refId": "A",
                    "rawQuery": True,
                    "editorMode": "code",
                    "format": "table",
                    "rawSql": rule.sql,
                },
            },
            {
                "refId": "B",
                "relativeTimeRange": {"from": _LOOK_BACK_S, "to": 0},
                "datasourceUid": "__expr__",
                "model": {
                    "refId": "B",
                    "type": "threshold",
                    "expression": "A",
                    "conditions": [{"evaluator": {"type": "gt", "params": [0]}}],
                },
            },
        ],
    }
