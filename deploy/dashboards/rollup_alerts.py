# ruff: noqa: S608 - the SQL holds constants of this module only.
"""Grafana alert rules on the roll-up's findings and on the roll-up itself.

Each rule has a summary, a description and a runbook that says what to do. Templates avoid Go's
``$``, because Grafana expands it to an environment variable when it reads a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from deploy.dashboards.queries import POSTGRES_UID
from deploy.dashboards.runbooks import runbook_url

#: The address of Grafana, without the slash at its end.
_GRAFANA: Final = r'{{ reReplaceAll "/+\\z" "" externalURL }}'
#: Stands for a number that is not known: librdkafka does not count rebalances.
_UNKNOWN: Final = 0.5
#: The value of the alert's query. It is no label, because an alert with another label is another.
_NUMBER: Final = (
    '{{ if ge .Values.A.Value 1.0 }}{{ printf "%.0f" .Values.A.Value }}{{ else }}'
    "an unknown number of{{ end }}"
)
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
    #: The dashboard to look at, by uid.
    dashboard: str
    #: The query of the dashboard's URL, a template; it selects the alert's subject.
    chooses: str = ""
    #: What a failed query means. Only one rule is about the database, so that its failure fires one
    #: alert and not one for each rule. The others keep their state, which Grafana can since 10.4.1:
    #: a problem has not ended because nobody can read it.
    if_query_fails: Literal["KeepLast", "Alerting"] = "KeepLast"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """What the findings of a rule are about."""

    labels: Mapping[str, str]
    """The expressions of the alert's labels, by name. None is ever empty, because Grafana shows
    empty labels."""
    words: str
    """The template that names the subject in a summary."""
    dashboard: str
    """The uid of the dashboard that shows it."""
    variable: tuple[str, str]
    """The variable of that dashboard that selects it, and the label with its text."""
    condition: str = ""


_CLUSTER: Final = {"cluster_id": "coalesce(cluster_id, 'unknown')"}
_OF_CLUSTER: Final = " (cluster {{ .Labels.cluster_id }})"
_CLIENT: Final = _Subject(
    labels=_CLUSTER
    | {"client_id": "coalesce(client_id, '(none)')", "principal": "coalesce(principal, 'unknown')"},
    words="Client id {{ .Labels.client_id }} of {{ .Labels.principal }}",
    dashboard="kct-one-client",
    variable=("client", "client_id"),
)
_GROUP: Final = _Subject(
    labels=_CLUSTER | {"group_id": "coalesce(group_id, '(none)')"},
    words="Group {{ .Labels.group_id }}",
    dashboard="kct-topics-and-groups",
    variable=("group", "group_id"),
    condition=" AND group_id IS NOT NULL",
)
_VERSION: Final = _Subject(
    labels=_CLUSTER
    | {
        "software": "coalesce(client_software_name, 'unknown')",
        "version": "coalesce(client_software_version, 'unknown')",
    },
    words="{{ .Labels.software }} {{ .Labels.version }}",
    dashboard="kct-versions",
    variable=("software", "software"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FindingRule:
    kind: str
    subject: _Subject
    title: str
    does: str
    """What the summary says of the subject, with ``{number}``."""
    number: str
    """The evidence with that number; the largest of the subject's findings."""
    meaning: str
    """The begin of the description."""
    severity: Literal["warning", "critical"] = "warning"
    """The least severity that fires."""


#: The kinds of finding that fire alerts. Old versions do not fire. Silent clients do not either: a
#: killed client, or an idle Java producer that was closed, looks like one that hangs.
_FINDINGS: Final = (
    _FindingRule(
        kind="throttled", subject=_CLIENT, title="Clients are throttled",
        does="is throttled by brokers for up to {number} ms",
        number="throttle_ms_max", meaning="A broker quota delays the client.",
    ),
    _FindingRule(
        kind="rebalance_storm", subject=_GROUP, title="A group rebalances too often",
        does="rebalances too often: {number} times in the window",
        number="rebalances",
        meaning="Members join and leave often, or poll too late. The group consumes little meanwhile.",
    ),
    _FindingRule(
        kind="connection_churn", subject=_CLIENT, title="A client opens connections all the time",
        does="opens connections all the time: {number} in the window",
        number="connections",
        meaning="It restarts often, its login fails, or the application creates a client for each use.",
    ),
    _FindingRule(
        kind="slow_client", subject=_CLIENT, title="A client is slower than its peers",
        does="waits {number} ms for responses, far longer than its peers",
        number="latency_ms",
        meaning="Compare its network, host and brokers with its peers'.",
    ),
    _FindingRule(
        kind="poll_bound", subject=_GROUP, title="Consumers are bound by their application",
        does="is limited by its application: {number} of its members hardly wait for records",
        number="members_bound",
        meaning="Its members almost never wait for records. More load makes them fall behind.",
    ),
    _FindingRule(
        kind="poll_bound",
        subject=replace(_CLIENT, condition=" AND group_id IS NULL"),
        title="A consumer without a group is bound by its application",
        does="is limited by its application: {number} instances hardly wait for records",
        number="members_bound",
        meaning="It almost never waits for records. More load makes it fall behind.",
    ),
    _FindingRule(
        kind="lagging", subject=_GROUP, title="A group falls behind",
        does="falls behind: {number} records in a partition",
        number="lag",
        meaning="Records wait longer and longer, or stay old.",
    ),
    _FindingRule(
        kind="lagging",
        subject=replace(_CLIENT, condition=" AND group_id IS NULL"),
        title="A consumer without a group falls behind",
        does="falls behind: {number} records in a partition",
        number="lag",
        meaning="Records wait longer and longer, or stay old.",
    ),
    _FindingRule(
        kind="shared_instance", subject=_CLIENT, title="Several processes use one client instance id",
        does="has about {number} processes with one client instance id",
        number="processes",
        meaning="Their gauges hide each other, and brokers throttle their pushes.",
    ),
    _FindingRule(
        kind="known_bad_version", subject=_VERSION, title="A version is known to be bad",
        does="has a serious bug, in {number} clients",
        number="clients", meaning="The finding's evidence names the bug.", severity="critical",
    ),
)  # fmt: skip


def _finding_rule(rule: _FindingRule) -> _SqlRule:
    subject = rule.subject
    variable, label = subject.variable
    severities = "'critical'" if rule.severity == "critical" else "'warning', 'critical'"
    columns = ", ".join(f"{expression} AS {name}" for name, expression in subject.labels.items())
    by = ", ".join(str(number) for number in range(1, 1 + len(subject.labels)))
    name = rule.kind.replace("_", "-")
    is_second = any(other.kind == rule.kind for other in _FINDINGS[: _FINDINGS.index(rule)])
    return _SqlRule(
        name=f"{name}-client" if is_second else name,
        title=rule.title,
        # The roll-up opens a finding only after its condition held for a whole window.
        sql=(
            # Above zero also without a number, so that it fires.
            f"SELECT {columns}, greatest(max((evidence ->> '{rule.number}')::float8), {_UNKNOWN}) AS number "
            "FROM telemetry.finding "
            f"WHERE resolved_at IS NULL AND kind = '{rule.kind}' AND severity IN ({severities})"
            f"{subject.condition} GROUP BY {by}"
        ),
        lasts="0m",
        severity=rule.severity,
        summary=f"{subject.words} {rule.does.format(number=_NUMBER)}{_OF_CLUSTER}",
        description=f"{rule.meaning} The dashboard shows the finding with its evidence, and so does "
        f"`kafka-telemetry rollup findings --kind {rule.kind}`.",
        dashboard=subject.dashboard,
        # The variable's value is a key: an array of the text alone, in hexadecimal digits.
        chooses=f'&var-{variable}={{{{ printf "%x" (printf "{{%q}}" .Labels.{label}) }}}}',
    )


_SQL: Final = (
    *(_finding_rule(rule) for rule in _FINDINGS),
    _SqlRule(
        name="rollup-stands-still",
        title="The roll-up stands still",
        # Without any push there is no such time: a new installation is not broken.
        sql=(
            "SELECT coalesce(read_until < now() - interval '15 minutes', false)::int::float8 AS late "
            "FROM telemetry.progress"
        ),
        lasts="5m",
        severity="critical",
        summary="The roll-up has read no pushes for 15 minutes",
        description="The job does not run, can't reach PostgreSQL, or is behind. `kafka-telemetry "
        "rollup status` shows which. Panels show nothing new meanwhile. Nothing is lost.",
        dashboard="kct-fleet",
    ),
    _SqlRule(
        name="no-pushes",
        title="No pushes arrive",
        sql=(
            "SELECT coalesce(cluster_id, 'unknown') AS cluster_id, stopped::int::float8 AS stopped "
            "FROM telemetry.feed"
        ),
        lasts="5m",
        severity="critical",
        summary="No pushes arrive from cluster {{ .Labels.cluster_id }}",
        description="The roll-up runs, and all clients of the cluster stopped pushing at once. The sidecars, "
        "or their delivery to the roll-up, have probably stopped.",
        dashboard="kct-receiver",
    ),
    _SqlRule(
        name="database",
        title="The roll-up's database can't be read",
        sql="SELECT (count(*) = 0)::int::float8 AS missing FROM telemetry.progress",
        lasts="5m",
        severity="critical",
        summary="Grafana can't read the roll-up's database",
        description="PostgreSQL does not answer, refuses Grafana's role, or lacks the roll-up's tables. No "
        "other rule of the roll-up can fire meanwhile.",
        dashboard="kct-fleet",
        if_query_fails="Alerting",
    ),
    _SqlRule(
        name="dead-letters",
        title="Pushes that can't be read",
        sql=(
            "SELECT coalesce(nullif(reason, ''), 'unknown') AS reason, count(*)::float8 AS letters "
            "FROM telemetry.dead_letter WHERE seen_at > now() - interval '1 hour' GROUP BY 1"
        ),
        lasts="0m",
        severity="warning",
        summary="The roll-up could not read pushes: {{ .Labels.reason }}",
        description="The table telemetry.dead_letter lists them with their source.",
        dashboard="kct-fleet",
    ),
)  # fmt: skip


def grafana_rules() -> dict[str, object]:
    """Return the rule file for Grafana's provisioning; it uses :data:`POSTGRES_UID`."""
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
        "execErrState": rule.if_query_fails,
        "labels": {"severity": rule.severity},
        "annotations": {
            "summary": rule.summary,
            "description": rule.description,
            "runbook_url": runbook_url(rule.title),
            # Grafana's own link to a dashboard needs a panel too, and has no variables.
            "dashboard_url": f"{_GRAFANA}/d/{rule.dashboard}?from=now-6h&to=now{rule.chooses}",
        },
        "data": [
            {
                "refId": "A",
                "relativeTimeRange": {"from": _LOOK_BACK_S, "to": 0},
                "datasourceUid": POSTGRES_UID,
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
