"""The recipes of the page of vendors, against the vendors' own programs."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from receiver.host.discovery import load_plugins
from receiver.host.host import PluginHost
from tests.testbed.mimir import Mimir
from tests.testbed.victoria_metrics import VictoriaMetrics
from tests.unit.host.support import wait_for
from tests.unit.plugins._shared.cumulative.support import BEGIN, SECOND, counter, number, push

pytestmark = pytest.mark.full

PAGE: Final = Path(__file__).parents[2] / "docs" / "vendors.md"
SENT: Final = "org.apache.kafka.producer.record.send.total"
CLIENT: Final[dict[str, str | int]] = {"client_id": "orders", "principal": "User:alice"}


@pytest.fixture(scope="module")
def victoria_metrics() -> Iterator[VictoriaMetrics]:
    with VictoriaMetrics() as started:
        yield started


@pytest.fixture(scope="module")
def mimir() -> Iterator[Mimir]:
    with Mimir() as started:
        yield started


def recipes(section: str, ours: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the page's plugins for a vendor, by type, with ours for its addresses and files."""
    (_, text) = PAGE.read_text().split(f"\n## {section}\n")
    found = {}
    for block in re.findall(r"^```yaml\n(.*?)^```$", text.split("\n## ")[0], re.MULTILINE | re.DOTALL):
        for theirs, own in ours.items():
            block = block.replace(theirs, own)
        (entry,) = yaml.safe_load(block)["plugins"]
        found[entry["type"]] = entry
    return found


def deliver(entry: dict[str, Any], client_id: str, *, since: float = 0.0) -> None:
    """Deliver pushes with deltas of 3, 4 and 5 records, 10 s each; ``since`` is after BEGIN."""
    loaded = load_plugins([entry])
    host = PluginHost(loaded)
    host.start()
    try:
        assert loaded[0].plugin.check_destination(60)
        for number_of, delta in enumerate((3, 4, 5), start=1):
            at = since + 10.0 * number_of
            sent = counter(SENT, number(delta, at=at, since=at - 10.0))
            host.offer(push(sent, at=at, resource=CLIENT | {"client_id": client_id}))
            wait_for(lambda count=number_of: host.statistics()[0].exported_pushes == count)  # type: ignore[misc]
        assert sum(host.statistics()[0].dropped.values()) == 0
    finally:
        host.stop(20)


@pytest.mark.parametrize(
    ("recipe", "name"), [("prometheus", SENT.replace(".", "_")), ("otlp", SENT)], ids=["remote write", "OTLP"]
)
def test_victoria_metrics_has_totals_by_client(
    victoria_metrics: VictoriaMetrics, recipe: str, name: str
) -> None:
    entry = recipes("VictoriaMetrics", {"victoria-metrics:8428": victoria_metrics.address})[recipe]
    deliver(entry, client_id=recipe)
    ((labels, values),) = victoria_metrics.series(f'{{client_id="{recipe}"}}')
    assert labels["__name__"] == name
    assert labels["principal"] == "User:alice"
    assert values[-3:] == [3, 7, 12]


def test_victoria_metrics_takes_deltas_for_totals(victoria_metrics: VictoriaMetrics) -> None:
    """Therefore the recipe asks the plugin for totals."""
    entry = recipes("VictoriaMetrics", {"victoria-metrics:8428": victoria_metrics.address})["otlp"]
    del entry["temporality"]
    deliver(entry, client_id="deltas")
    ((_, values),) = victoria_metrics.series('{client_id="deltas"}')
    assert values == [3, 4, 5]


def test_grafana_clouds_mimir_has_totals_by_client(mimir: Mimir, tmp_path: Path) -> None:
    """A gateway of Grafana Cloud's, in front of Mimir, checks the login and has the page's path."""
    login = tmp_path / "login"
    login.write_text(f"Basic {base64.b64encode(b'123:glc_token').decode()}")
    theirs = "https://prometheus-prod-01-eu-west-0.grafana.net/api/prom/push"
    ours = {theirs: f"http://{mimir.address}/api/v1/push", "/run/secrets/grafana-cloud": str(login)}
    # Its head of series takes samples of the present.
    deliver(
        recipes("Grafana Cloud", ours)["prometheus"],
        client_id="orders",
        since=time.time() - 60 - BEGIN / SECOND,
    )
    name = SENT.replace(".", "_")
    ((labels, values),) = mimir.series(f'{name}{{client_id="orders"}}')
    assert labels["principal"] == "User:alice"
    assert values[-3:] == [3, 7, 12]
