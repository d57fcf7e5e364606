"""The compose example from clients to dashboards, with real programs in the containers' place."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from tests.examples.real.stack import Stack
from tests.testbed.clients import LibrdkafkaClient, Mode
from tests.testbed.dashboard_queries import DASHBOARDS, asked, chosen
from tests.testbed.grafana_sql import TimeRange
from tests.testbed.process import wait_until

#: Nothing to show in the first minutes: nobody fell silent, and nothing was found.
MAY_BE_EMPTY = {"Findings", "Open findings by kind", "Silent clients", "marks: Findings", "marks: Versions"}
#: The worst ten are shown if their value is above zero, and the example's clients have no problem.
MAY_BE_EMPTY |= {"Lag", "Produce throttling", "Fetch throttling", "Failed records"}

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with Stack() as running:
        yield running


def value(stack: Stack, promql: str) -> float | None:
    answer = stack.prometheus.get("/api/v1/query", params={"query": promql}).raise_for_status().json()
    found = answer["data"]["result"]
    return float(found[0]["value"][1]) if found else None


@pytest.mark.parametrize("entrance", ["inside", "outside"])
def test_clients_connect_to_the_sidecar_only(stack: Stack, entrance: str) -> None:
    where = getattr(stack, entrance)
    brokers = AdminClient({"bootstrap.servers": where}).list_topics(timeout=20).brokers
    assert [f"{broker.host}:{broker.port}" for broker in brokers.values()] == [where]


def test_the_broker_logs_to_its_console(stack: Stack) -> None:
    assert " INFO " in stack.processes["kafka"].log_text()


def test_clients_on_the_host_push(stack: Stack) -> None:
    with LibrdkafkaClient(
        Mode.PRODUCER, bootstrap=stack.outside, topic="orders", client_id="outside"
    ) as client:
        client.wait_for_records(20)
        wait_until(
            lambda: "outside" in {item["client_id"] for item in clients(stack)},
            timeout_s=30,
            what="its pushes",
        )


def clients(stack: Stack) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = stack.rest.get("/v1/clients").raise_for_status().json()["items"]
    return items


def test_prometheus_has_clients_and_sidecar(stack: Stack) -> None:
    for job in ("kafka-telemetry", "kafka-clients", "collector"):
        wait_until(lambda: value(stack, f'up{{job="{job}"}}') == 1, timeout_s=60, what=job)  # noqa: B023
    wait_until(
        lambda: (value(stack, 'sum(org_apache_kafka_producer_record_send_total{client_id="shop"})') or 0) > 0,
        timeout_s=90,
        what="the producer's records",
    )
    groups = stack.prometheus.get("/api/v1/rules").raise_for_status().json()["data"]["groups"]
    assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
    for dashboard in (DASHBOARDS["receiver"], DASHBOARDS["versions"]):
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                if "expr" in target:
                    expression = target["expr"].replace("$job", ".+").replace("$instance", ".+")
                    value(stack, expression.replace("$__rate_interval", "1m").replace("$__range", "1h"))


def empty_panels(stack: Stack) -> set[str]:
    now = datetime.now(UTC)
    window = TimeRange(start=now - timedelta(hours=1), end=now)
    password = (stack.secrets / "grafana_postgres_password").read_text()
    empty = set()
    with psycopg.connect(
        f"postgresql://grafana@/telemetry?{stack.database}", password=password, autocommit=True
    ) as connection:
        for name, dashboard in DASHBOARDS.items():
            variables = chosen(dashboard, connection, window, {})
            if "resolution" in variables:
                # Lines end where a step is over, so in the first minutes there are short steps
                # alone.
                variables["resolution"] = replace(variables["resolution"], values=("1m",))
            for query in asked(dashboard, variables, window):
                rows = psycopg.RawCursor(connection).execute(query.sql.encode()).fetchall()
                if name == "fleet" and not any(any(cell is not None for cell in row) for row in rows):
                    empty.add(query.title)
    return empty


def test_dashboards_find_what_clients_pushed(stack: Stack) -> None:
    rollup = stack.processes["rollup"]
    wait_until(
        lambda: "] batch " in rollup.log_text() or not rollup.running,
        timeout_s=240,
        what="a batch",
        every_s=1,
    )
    assert rollup.running, rollup.log_tail()
    deadline = time.monotonic() + 120
    while (empty := empty_panels(stack)) - MAY_BE_EMPTY and time.monotonic() < deadline:
        time.sleep(5)
    assert empty <= MAY_BE_EMPTY
    assert {"shop", "billing"} <= {client["client_id"] for client in clients(stack)}
    for name, process in stack.processes.items():
        assert process.running or name == "subscribe", process.log_tail()
