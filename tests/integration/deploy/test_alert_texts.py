"""What a person reads of each alert, rendered by the template engine of a real Prometheus.

Grafana's engine is built on it: the templates use the same functions, which a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import yaml

from tests.testbed.dashboard_queries import CHART, DASHBOARDS, key_of
from tests.testbed.ports import LOOPBACK
from tests.testbed.process import wait_until
from tests.testbed.prometheus import Prometheus

#: Labels of every alert; each rule takes those that it names.
LABELS: Final = {
    "cluster_id": "Zk1nb1ctUxKfp2cVhPqb2g",
    "client_id": 'orders "1"',
    "principal": "User:orders",
    "group_id": "warehouse",
    "software": "apache-kafka-java",
    "version": "3.9.1",
    "reason": "limit",
    "job": "receivers",
    "instance": "sidecar:8080",
    "listener": "CLIENT",
    "kind": "bypass",
    "plugin": "otlp",
    "client_software_name": "librdkafka",
}
RULES: Final[dict[str, dict[str, Any]]] = {
    str(rule.get("alert") or rule["title"]): rule
    for name in ("grafana-rules", "prometheus-rules")
    for group in yaml.safe_load((CHART / "alerts" / f"{name}.yaml").read_text())["groups"]
    for rule in group["rules"]
}
SUMMARIES: Final = {
    "Clients are throttled": (
        'Client id orders "1" of User:orders is throttled by brokers for up to 12 ms (cluster {c})'
    ),
    "A group rebalances too often": (
        "Group warehouse rebalances too often: 12 times in the window (cluster {c})"
    ),
    "A client opens connections all the time": (
        'Client id orders "1" of User:orders opens connections all the time: 12 in the window (cluster {c})'
    ),
    "A client is slower than its peers": (
        'Client id orders "1" of User:orders waits 12 ms for responses, far longer than its peers '
        "(cluster {c})"
    ),
    "Consumers are bound by their application": (
        "Group warehouse is limited by its application: 12 of its members hardly wait for records "
        "(cluster {c})"
    ),
    "A consumer without a group is bound by its application": (
        'Client id orders "1" of User:orders is limited by its application: 12 instances hardly wait for '
        "records (cluster {c})"
    ),
    "A group falls behind": "Group warehouse falls behind: 12 records in a partition (cluster {c})",
    "A consumer without a group falls behind": (
        'Client id orders "1" of User:orders falls behind: 12 records in a partition (cluster {c})'
    ),
    "Several processes use one client instance id": (
        'Client id orders "1" of User:orders has about 12 processes with one client instance id (cluster {c})'
    ),
    "A version is known to be bad": (
        "apache-kafka-java 3.9.1 has a serious bug, in 12 clients (cluster {c})"
    ),
    "The roll-up stands still": "The roll-up has read no pushes for 15 minutes",
    "No pushes arrive": "No pushes arrive from cluster {c}",
    "The roll-up's database can't be read": "Grafana can't read the roll-up's database",
    "Pushes that can't be read": "The roll-up could not read pushes: limit",
    "KafkaTelemetryNotReady": "Receiver sidecar:8080 accepts no clients",
    "KafkaTelemetryDown": "Receiver sidecar:8080 does not answer",
    "KafkaTelemetryConnectionsRefused": (
        "Receiver sidecar:8080 refuses more than 12 connections a minute (limit)"
    ),
    "KafkaTelemetryConnectionStorm": (
        "Clients open far more connections to sidecar:8080 than the day before"
    ),
    "KafkaTelemetryTrafficJumps": "The traffic of User:orders is five times that of the day before",
    "KafkaTelemetryCredentialUnused": "Nobody has used User:orders for 30 days",
    "KafkaTelemetryCredentialFromNewNetwork": "User:orders is used from a new network",
    "KafkaTelemetryInternalError": "Receiver sidecar:8080 closed connections after an internal error",
    "KafkaTelemetryClosesForMemory": "Receiver sidecar:8080 closed connections because too many bytes wait",
    "KafkaTelemetryProtocolErrors": "Listener CLIENT of sidecar:8080 receives other protocols than Kafka",
    "KafkaTelemetryInvalidPushes": "librdkafka pushes what is no OTLP",
    "KafkaTelemetryPushesTooLarge": "librdkafka pushes more than telemetry.max_bytes",
    "KafkaTelemetryPushesDropped": "Plugin otlp of sidecar:8080 loses pushes (limit)",
    "KafkaTelemetryCircuitOpen": "The destination of plugin otlp of sidecar:8080 takes no pushes",
    "KafkaTelemetryDeliveryLags": "Plugin otlp of sidecar:8080 has not delivered for minutes",
    "KafkaTelemetrySpoolNearlyFull": "The spool of plugin otlp of sidecar:8080 is nearly full",
    "KafkaTelemetrySpoolProblem": "Plugin otlp of sidecar:8080 can't use its spool",
    "KafkaTelemetryPluginHangs": "Plugin otlp of sidecar:8080 hangs",
    "KafkaTelemetryPushesNotStored": "Receiver sidecar:8080 refuses pushes that it can't store",
    "KafkaTelemetryOverBudget": "Clients of receiver sidecar:8080 exceed a series budget",
    "KafkaTelemetryInstancesEvicted": "Receiver sidecar:8080 evicts client instances at its bound",
    "KafkaTelemetryCertificateEnds": (
        "A certificate of listener CLIENT of sidecar:8080 expires within two weeks"
    ),
    "KafkaTelemetrySubscriptionsStale": (
        "Receiver sidecar:8080 can't follow the changes of its subscriptions"
    ),
    "KafkaTelemetryWarns": "Receiver sidecar:8080 works, and warns of: bypass",
    "KafkaTelemetryReloadRefused": "Receiver sidecar:8080 refused a changed configuration",
    "KafkaTelemetryRollupDown": "Roll-up sidecar:8080 does not answer",
    "KafkaTelemetryRollupBatchesFail": "Roll-up sidecar:8080 can't commit a batch",
    "KafkaTelemetryFindings": "Clients have findings of kind bypass",
    "KafkaTelemetryRollupLags": "Roll-up sidecar:8080 is minutes behind",
    "KafkaTelemetryRollupMaintenanceLate": "Roll-up sidecar:8080 completes no maintenance",
    "KafkaTelemetryRollupPackingLags": "Roll-up sidecar:8080 packs hours more slowly than they pass",
    "KafkaTelemetryRollupDeadLetters": "Roll-up sidecar:8080 could not read some pushes",
}


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    """The annotations of each alert, by its name."""
    folder = tmp_path_factory.mktemp("texts")
    rules = []
    for name, rule in RULES.items():
        text = " ".join(rule["annotations"].values())
        # Grafana names the value of each query.
        expression = "vector(12)" if "data" in rule else "vector(1)"
        for label in sorted(set(re.findall(r"\.Labels\.(\w+)", text))):
            value = LABELS[label].replace('"', '\\"')
            expression = f'label_replace({expression}, "{label}", "{value}", "", "")'
        annotations = {
            key: text.replace(".Values.A.Value", ".Value") for key, text in rule["annotations"].items()
        }
        rules.append(
            {"alert": name, "expr": expression, "annotations": annotations, "labels": rule["labels"]}
        )
    (folder / "rules.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "texts", "interval": "1s", "rules": rules}]})
    )
    config = folder / "prometheus.yaml"
    config.write_text(yaml.safe_dump({"rule_files": [str(folder / "rules.yaml")]}))
    with Prometheus(config=config) as prometheus, httpx.Client(trust_env=False, timeout=60) as http:
        url = f"http://{LOOPBACK}:{prometheus.port}/api/v1/alerts"
        found: dict[str, dict[str, str]] = {}

        def all_fire() -> bool:
            alerts = http.get(url).raise_for_status().json()["data"]["alerts"]
            found.update({alert["labels"]["alertname"]: alert["annotations"] for alert in alerts})
            return found.keys() == RULES.keys()

        wait_until(all_fire, timeout_s=60, what="all alerts")
        yield found


def test_every_alert_has_an_expected_text() -> None:
    assert SUMMARIES.keys() == RULES.keys()


@pytest.mark.parametrize("name", RULES)
def test_a_summary_is_a_sentence_without_gaps(read: dict[str, dict[str, str]], name: str) -> None:
    assert read[name]["summary"] == SUMMARIES[name].format(c=LABELS["cluster_id"])
    for text in read[name].values():
        assert "no value" not in text
        assert "<error" not in text
        assert "{{" not in text


@pytest.mark.parametrize("name", RULES)
def test_an_alert_leads_to_a_dashboard_that_chooses_its_subject(
    read: dict[str, dict[str, str]], name: str
) -> None:
    annotations = read[name]
    address = urlsplit(annotations.get("dashboard_url") or annotations["dashboard_path"])
    _, _, uid = address.path.rpartition("/d/")
    (dashboard,) = (item for item in DASHBOARDS.values() if item["uid"] == uid)
    variables = {item["name"] for item in dashboard["templating"]["list"]}
    chosen = {key: value for key, (value,) in parse_qs(address.query).items() if key.startswith("var-")}
    assert {key.removeprefix("var-") for key in chosen} <= variables
    labels = {"var-client": "client_id", "var-group": "group_id", "var-software": "software"}
    for key, value in chosen.items():
        if key in labels:
            assert value == key_of(LABELS[labels[key]])
        else:
            assert value == LABELS[key.removeprefix("var-")]
    if RULES[name].get("data") and re.search(r"\.Labels\.(client_id|group_id|version)", str(RULES[name])):
        assert chosen


def test_templates_use_only_functions_that_grafana_has_too() -> None:
    text = " ".join(str(rule["annotations"]) for rule in RULES.values() if "data" in rule)
    functions = set(re.findall(r"\{\{ (\w+)", text)) | set(re.findall(r"\(\s*(\w+) ", text))
    # printf is Go's; the others are in Grafana's "Alert rule template functions".
    assert functions & {"printf", "reReplaceAll", "externalURL", "query", "first", "urlquery"} <= {
        "printf",
        "reReplaceAll",
        "externalURL",
    }
