"""Runs examples/kubernetes by its own commands, in place of the other tests' brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.examples.compose import EXAMPLES
from tests.kubernetes.pods import pages
from tests.kubernetes.pods.clients import clients
from tests.kubernetes.pods.cluster import BOOTSTRAP, MONITORING, NAMESPACE, SELECTOR, BrokerCluster
from tests.kubernetes.pods.figures import note
from tests.kubernetes.pods.postgres import HOST, PASSWORD, Postgres
from tests.testbed.clients import Mode

pytestmark = pytest.mark.timeout(5400)

FOLDER: Final = EXAMPLES / "kubernetes"
PAGE: Final = FOLDER / "README.md"
DATABASE: Final = "example"
#: What the page leaves to its reader, and what a node of two busy cores can't have.
_PLACES: Final = {
    "rollup:PASSWORD@postgres.example.com/telemetry": f"rollup:{PASSWORD}@{HOST}/{DATABASE}",
    "--wait": "--wait --timeout=25m --set=rollup.resources.requests.cpu=100m",
}
#: As in the example's telemetry.sql, in a server that has other roll-ups too.
_SQL: Final = (
    f"CREATE ROLE rollup LOGIN PASSWORD '{PASSWORD}'",
    "CREATE ROLE grafana_reader",
    f"CREATE DATABASE {DATABASE} OWNER rollup",
)


@pytest.fixture(scope="module")
def example(
    installed: BrokerCluster, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerCluster]:
    """The example; the cluster of the other tests is there again afterwards."""
    node = installed.node
    installed.remove()
    try:
        for statement in _SQL:
            postgres.query(statement, database="postgres")
        collector = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "otel-collector", "namespace": MONITORING},
            "spec": {"selector": {"app": "collector"}, "ports": [{"name": "otlp", "port": 4317}]},
        }
        node.apply(collector)
        pages.run(filled(pages.script(PAGE, "Install"), _PLACES), installed.helm, FOLDER)
        pages.run(pages.script(PAGE, "Ask for something"), installed.helm, FOLDER)
        yield installed
    finally:
        installed.remove()
        installed.install(tmp_path_factory.mktemp("checkout"))
        installed.subscribe()


def filled(script: str, places: dict[str, str]) -> str:
    """A script with other words in some places, all of which it has.

    Raises:
        LookupError: It lacks one.
    """
    for place, text in places.items():
        if place not in script:
            raise LookupError(f"the page has no {place!r}")
        script = script.replace(place, text)
    return script


def test_pushes_reach_the_collector_and_postgresql(example: BrokerCluster, postgres: Postgres) -> None:
    node = example.node
    wanted = [("java", Mode.PRODUCER), ("librdkafka", Mode.CONSUMER)]
    with clients(node, *wanted, bootstrap=BOOTSTRAP, topic="orders") as running:
        names = {client.name for client in running}
        node.wait_until(
            lambda: names <= example.collector.client_ids(),
            what="metrics of both clients",
            timeout_s=900.0,
            every_s=0.5,
        )
        rows = "SELECT count(DISTINCT client_id) FROM telemetry.metric_1m WHERE client_id LIKE 'orders-%'"
        waited = node.wait_until(
            lambda: int(postgres.query(rows, database=DATABASE)) == len(names),
            what="both clients in PostgreSQL",
            timeout_s=900.0,
            every_s=2.0,
        )
        note(f"examples/kubernetes: the roll-up has both clients {waited.seconds:.0f} s after the collector")
        assert [client.errors for client in running] == [[]] * len(running)
    reader = "SELECT has_schema_privilege('grafana_reader', 'telemetry', 'USAGE')"
    assert postgres.query(reader, database=DATABASE) == "t"
    assert node.pods(NAMESPACE, SELECTOR)
