# ruff: noqa: S608 - made of this module's own words.
"""Owns the alert rules of Grafana's own for what the roll-up found, and for the roll-up itself.

Each has a summary, a description and a runbook that says what to do. Go's template language is used without
its ``$``, which Grafana takes for a variable of its environment when it reads a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deploy.dashboards.runbooks import runbook_url

__all__ = ["DATA_SOURCE_UID", "grafana_rules"]

#: What the PostgreSQL data source has to have as its uid: an alert rule can't choose one by a variable.
DATA_SOURCE_UID: Final = "kafka-client-telemetry-postgres"

_FOLDER: Final = "Kafka client telemetry"
_LOOK_BACK_S: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class _SqlRule:
    """An alert on the roll-up's views.

    Attributes:
        name: What its uid ends in.
        title: Its title.
        sql: Rows of labels and one number; an alert for each whose number is above zero.
        lasts: For how long before it fires.
        severity: ``critical`` or ``warning``.
        summary: One line.
        description: What it means and what to do.
    """

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
#: What people are told of, by kind of finding: the least severity, the title, what it means. Not of versions
#: that are merely old, nor of silent clients: so is each that was killed, and each Java producer that was
#: closed while idle, and nothing tells them from one that hangs.
_FINDINGS: Final = {
    "throttled": ("warning", "Clients are throttled", "A quota of the brokers slows the client down."),
    "rebalance_storm": (
        "warning", "A group rebalances too often", "Members come and go, or don't poll in time: little "
        "is consumed.",
    ),
    "connection_churn": (
        "warning", "A client opens connections all the time", "It restarts, loses its login, or is made "
        "anew for each use.",
    ),
    "slow_client": (
        "warning", "A client is slower than its peers", "Its network, its host or its brokers differ "
        "from theirs.",
    ),
    "poll_bound": (
        "warning", "Consumers are bound by their application", "They hardly ever wait for records: a "
        "little more and they fall behind.",
    ),
    "known_bad_version": ("critical", "A version is known to be bad", "The finding's evidence says what "
    "is wrong with it."),
}  # fmt: skip

_SQL: Final = (
    *(
        _SqlRule(
            name=kind.replace("_", "-"),
            title=title,
            # The finding's condition has held for its whole window already.
            sql=(
                f"SELECT {_LABELS}, count(*)::float8 AS findings FROM telemetry.finding "
                f"WHERE resolved_at IS NULL AND kind = '{kind}' AND severity IN ({severities}) "
                "GROUP BY 1, 2, 3, 4, 5"
            ),
            lasts="0m",
            severity=severity,
            summary=f"{title}: "
            "{{ .Labels.client_id }} {{ .Labels.group_id }} {{ .Labels.software }} {{ .Labels.cluster_id }}",
            description=f"{meaning} The dashboard Fleet has the evidence, and so has One client of "
            "each client that it is about.",
        )
        for kind, (severity, title, meaning) in _FINDINGS.items()
        for severities in ["'critical'" if severity == "critical" else "'warning', 'critical'"]
    ),
    _SqlRule(
        name="rollup-stands-still",
        title="The roll-up stands still",
        sql=(
            # Of a ledger without a row, too: the job has never run.
            "SELECT (coalesce(max(committed_at), '-infinity') < now() - interval '15 minutes')::int::float8 "
            "AS late FROM telemetry.ledger"
        ),
        lasts="5m",
        severity="critical",
        summary="The roll-up has committed nothing for 15 minutes",
        description="The job does not run, can't reach PostgreSQL, or gets no pushes. `kafka-telemetry "
        "rollup "
        "status` says more; panels show nothing new meanwhile, and nothing is lost.",
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
        description="They are in telemetry.dead_letter with where they come from.",
    ),
)  # fmt: skip


def grafana_rules() -> dict[str, object]:
    """The file of rules that Grafana provisions; its PostgreSQL data source is :data:`DATA_SOURCE_UID`."""
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
        # No row is no finding.
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
