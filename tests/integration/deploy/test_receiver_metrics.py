"""Queries of dashboards and alerts, run on a real Prometheus that scrapes a sidecar."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.deploy.alert_cases import rules
from tests.integration.gateway.support import GatewaySidecar, Raw, config, get_subscriptions, push, read_get
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.dashboard_queries import DASHBOARDS
from tests.testbed.process import wait_until
from tests.testbed.prometheus import Prometheus
from tests.testbed.scripted_broker import ScriptedBroker

ALERTS = {name: rule["expr"] for name, rule in rules("receiver").items()}
PANELS = {
    f"{name}, {panel['title']}, {target['refId']}": target["expr"]
    .replace("$__rate_interval", "1m")
    .replace("$__range", "5m")
    .replace('"$job"', '".+"')
    .replace('"$instance"', '".+"')
    for name, dashboard in DASHBOARDS.items()
    # The others ask for clients' metrics; test_on_prometheus.py tries them.
    if not name.startswith("prometheus-")
    for panel in dashboard["panels"]
    for target in panel.get("targets", ())
    if "expr" in target
}
ASKED = ALERTS | PANELS
#: Labels that Prometheus adds, and that of a histogram's buckets.
ADDED = {"job", "instance", "le"}
#: What has no sample before it happens, at a sidecar to which nothing bad happened.
MAY_BE_EMPTY = re.compile(
    r"refused|closed|protocol_errors|authenticated|limit_exceeded|dropped_points|unnormalized|interval_steps"
    r"|last_used|new_networks|undeclared"
)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("receiver")
    certificate = CertificateAuthority().issue().write(folder)
    with ScriptedBroker() as broker:
        settings = config(
            broker.port, plugins=[{"type": "console", "spool": {"path": str(folder / "spool")}}]
        )
        settings["listeners"][0] |= {
            "security_protocol": "SSL",
            "tls": {"cert_file": str(certificate.chain), "key_file": str(certificate.key)},
        }
        settings["listeners"].append(config(broker.port)["listeners"][0] | {"name": "PLAIN"})
        owners = folder / "owners"
        owners.mkdir()
        (owners / "all.yaml").write_text("match: {}")
        settings["owners"] = {"path": str(owners)}
        with GatewaySidecar(settings) as sidecar, Raw(sidecar.port("PLAIN")) as raw:
            sidecar.http.put("/v1/subscriptions/all", json={"metrics": ["*"]}).raise_for_status()
            _, instance, subscription = read_get(raw.exchange(get_subscriptions()))
            raw.exchange(push(instance, subscription))
            sidecar.http.get("/v1/usage").raise_for_status()  # adds the counters of traffic up
            with Prometheus(scrape=[settings["rest"]["bind"]]) as started:
                wait_until(
                    lambda: (
                        bool(started.query("rate(kafka_telemetry_pushes_total[1m])"))
                        and bool(started.query("rate(kafka_telemetry_owner_traffic_bytes_total[1m])"))
                    ),
                    timeout_s=120,
                    what="two scrapes",
                )
                yield started


def test_what_is_asked_is_exposed_with_these_labels(prometheus: Prometheus) -> None:
    known = prometheus.metadata().keys()
    documented = (Path(__file__).parents[3] / "docs" / "receiver-metrics.md").read_text()
    labels = {
        name: set(row[1].split(", ")) - {""}
        for row in re.findall(r"^\| (`[^|]*`) \| ([^|]*?) ?\|", documented, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row[0])
    }
    for where, expression in ASKED.items():
        names = {re.sub("_bucket$", "", name) for name in re.findall(r"kafka_telemetry_\w+", expression)}
        assert names, where
        # OpenMetrics tells of a counter without its _total.
        assert {name for name in names if not {name, name.removesuffix("_total")} & known} == set(), where
        used = {
            label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")
        } | set(re.findall(r"(\w+)=~?\"", expression))
        assert used - ADDED <= set().union(*(labels[name] for name in names)), where


@pytest.mark.parametrize("where", ASKED)
def test_prometheus_accepts_the_query_and_panels_find_data(prometheus: Prometheus, where: str) -> None:
    found = prometheus.query(ASKED[where])
    assert found or where in ALERTS or MAY_BE_EMPTY.search(ASKED[where])


def test_a_healthy_sidecar_fires_no_alert(prometheus: Prometheus) -> None:
    # Its certificate is made for a day.
    firing = {name for name, expression in ALERTS.items() if prometheus.query(expression)}
    assert firing <= {"KafkaTelemetryCertificateEnds"}
