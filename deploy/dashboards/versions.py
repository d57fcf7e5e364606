# ruff: noqa: S608 - constants of this package; Grafana quotes what users choose (:sqlstring).
"""The dashboard *Versions* (KIP-511): client software, known defects, effects of an upgrade."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.models.dashboard import DataTransformerConfig

from deploy.dashboards.choices import cluster, sending, software
from deploy.dashboards.findings import OF_CHOSEN, SEVERITY_COLOURS, findings, marks
from deploy.dashboards.fleet import clients_by_version
from deploy.dashboards.grafana import Dashboard
from deploy.dashboards.metrics import support
from deploy.dashboards.panels import Panel, column, lines, link_to_client, note, rows
from deploy.dashboards.queries import PROMETHEUS, promql
from deploy.dashboards.sql import BY_FLEET, SEEN, chosen, key_column
from deploy.dashboards.status import status
from receiver.catalogue import CATALOGUE

_CHOSEN: Final = chosen(BY_FLEET)
#: The oldest versions that speak the protocol versions of Kafka 4.0, by KIP-896.
_KAFKA_4: Final = {
    "apache-kafka-java": (2, 1),
    "librdkafka": (1, 8, 2),
    "confluent-kafka-python": (1, 8, 2),
    "confluent-kafka-go": (1, 8, 2),
    "confluent-kafka-dotnet": (1, 8, 2),
    "kafkajs": (1, 15),
    "sarama": (1, 30, 1),
    "kafka-python": (2, 0, 2),
    # They came after Kafka 2.1, whose protocol versions KIP-896 keeps, and speak newer ones.
    "kgo": (0,),
    "franz-go": (0,),
    "dekaf": (0,),
}
_READ_ME: Final = (
    "**Kafka 4.0 brokers** refuse clients that only speak removed protocol versions "
    "([KIP-896](https://cwiki.apache.org/confluence/display/KAFKA/KIP-896%3A+Remove+old+client+protocol+API+"
    "versions+in+Kafka+4.0)): Java before 2.1, librdkafka before 1.8.2, KafkaJS before 1.15, Sarama before "
    "1.30.1, kafka-python before 2.0.2. No client with telemetry is that old. Check *Open "
    "connections by software*: `unknown` clients do not send their name and version (Java before 2.4), "
    "and may be older than 2.1. Their addresses and client ids are in the receiver's `GET /v1/connections`."
)


def versions() -> Dashboard:
    """Build it."""
    every = ("kafka.client.telemetry.pushes",)
    board = Dashboard(
        "kct-versions",
        "Kafka clients: versions",
        "Versions of client software (KIP-511): which are old or have known defects, and which clients "
        "a broker upgrade would break.",
        start="now-7d",
    )
    board.sources(prometheus=True).variables(
        cluster(), software(), sending(every, "clients", by_client=False)
    ).resolution()
    board.marks(*marks()).panel(status())
    board.row("Before an upgrade", note("Kafka 4 and old clients", _READ_ME), _connected(), _connections())
    board.row(
        "Versions that push",
        _table(),
        clients_by_version(width=24),
        _who(),
    )
    board.row(
        "What is wrong with them",
        findings(
            "Old and known-bad versions", f"kind IN ('old_version', 'known_bad_version')\n  AND {OF_CHOSEN}"
        ),
        support([metric.name.removeprefix("org.apache.kafka.") for metric in CATALOGUE if metric.required]),
    )
    return board


def _connected() -> Panel:
    query = promql(
        "sum by (client_software_name, client_software_version) (kafka_telemetry_connections)",
        "",
        instant=True,
    )
    shown = {"indexByName": {"client_software_name": 0, "client_software_version": 1, "Value": 2}}
    return rows(
        "Open connections by software, now",
        "All clients that are connected through a receiver, whether they push telemetry or not: "
        "`unknown` clients do not send their name and version.",
        [query],
        {
            "client_software_name": column("Software", colours={"unknown": "orange", "other": "blue"}),
            "client_software_version": column("Version"),
            "Value": column("Connections", "short"),
        },
        width=12,
        height=8,
        source=PROMETHEUS,
        transformations=[
            DataTransformerConfig(id_val="organize", options={"excludeByName": {"Time": True}, **shown})
        ],
    )


def _connections() -> Panel:
    return lines(
        "Open connections by software",
        "All clients that are connected through a receiver, whether they push telemetry or not.",
        "short",
        [promql("sum by (client_software_name) (kafka_telemetry_connections)", "{{client_software_name}}")],
        stacked=True,
        source=PROMETHEUS,
    )


def _numbers(version: str) -> str:
    # Versions such as 7.9.1-ccs or 2.5.0-rdkafka: the numbers at their beginning.
    return (
        f"string_to_array(substring({version} FROM '^v?(\\d{{1,9}}(?:\\.\\d{{1,9}}){{0,3}})'), '.')::bigint[]"
    )


def _table() -> Panel:
    oldest = ", ".join(f"('{name}', ARRAY{list(numbers)}::bigint[])" for name, numbers in _KAFKA_4.items())
    query = (
        "SELECT v.*,\n"
        "  CASE\n"
        "    WHEN oldest.numbers IS NULL OR v.numbers IS NULL THEN 'unknown'\n"
        "    WHEN v.numbers < oldest.numbers THEN 'refused'\n"
        "    ELSE 'fine'\n"
        "  END AS kafka_4,\n"
        "  coalesce(f.severity, 'none known') AS severity, f.reasons\n"
        "FROM (\n"
        "  SELECT client_software_name, client_software_version,\n"
        f"    {_numbers('client_software_version')} AS numbers,\n"
        "    count(*) FILTER (WHERE state = 'live')::float8 AS live, count(*)::float8 AS instances,\n"
        "    count(DISTINCT client_id)::float8 AS client_ids,\n"
        "    count(DISTINCT principal)::float8 AS principals, max(last_seen) AS last_seen\n"
        "  FROM telemetry.client\n"
        f"  WHERE {SEEN}\n    AND {_CHOSEN}\n"
        "  GROUP BY 1, 2\n"
        ") AS v\n"
        f"LEFT JOIN (VALUES {oldest}) AS oldest (client_software_name, numbers)\n"
        "USING (client_software_name)\n"
        "LEFT JOIN LATERAL (\n"
        "  SELECT (array_agg(\n"
        "    severity ORDER BY array_position(ARRAY['critical', 'warning', 'info'], severity)\n"
        "  ))[1] AS severity, string_agg(DISTINCT evidence #>> '{reasons,0}', '; ') AS reasons\n"
        "  FROM telemetry.finding\n"
        "  WHERE kind IN ('old_version', 'known_bad_version') AND resolved_at IS NULL\n"
        "    AND finding.client_software_name = v.client_software_name\n"
        "    AND finding.client_software_version = v.client_software_version\n"
        ") AS f ON true\n"
        "ORDER BY client_software_name, numbers NULLS FIRST"
    )
    return rows(
        "Versions of clients that push",
        "Each version that pushed in this time, the oldest first, with its known issues and whether "
        "Kafka 4 brokers accept it (KIP-896).",
        query,
        {
            "client_software_name": column("Software", width=190),
            "client_software_version": column("Version", width=120),
            "numbers": column("Numbers", hidden=True),
            "live": column("Live", "short", width=80),
            "instances": column("Instances", "short", width=90),
            "client_ids": column("Client ids", "short", width=90),
            "principals": column("Principals", "short", width=90),
            "last_seen": column("Last push", "dateTimeFromNow", width=130),
            "kafka_4": column(
                "Kafka 4 brokers", width=130, colours={"fine": "green", "refused": "red", "unknown": "orange"}
            ),
            "severity": column(
                "Known issues", width=120, colours={**SEVERITY_COLOURS, "none known": "green"}
            ),
            "reasons": column("Which"),
        },
    )


def _who() -> Panel:
    query = (
        "SELECT client_software_name, client_software_version, client_id, principal,\n"
        "  count(*)::float8 AS instances, max(last_seen) AS last_seen,\n"
        f"  {key_column('client_id')}\n"
        "FROM telemetry.client\n"
        f"WHERE {SEEN}\n  AND {_CHOSEN}\n"
        "GROUP BY 1, 2, 3, 4\n"
        f"ORDER BY 1, {_numbers('client_software_version')} NULLS FIRST, 3, 4\nLIMIT 500"
    )
    return rows(
        "Who runs which version",
        "Client ids by version, the oldest first. Their owners have to upgrade.",
        query,
        {
            "client_software_name": column("Software"),
            "client_software_version": column("Version"),
            "client_id": column("Client id", links=link_to_client()),
            "principal": column("Principal"),
            "instances": column("Instances", "short"),
            "last_seen": column("Last push", "dateTimeFromNow"),
        },
        height=8,
    )
