"""The recipes of the page of vendors, against the vendors' own programs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from receiver.host.discovery import load_plugins
from receiver.host.host import PluginHost
from tests.testbed.victoria_metrics import VictoriaMetrics
from tests.unit.host.support import wait_for
from tests.unit.plugins._shared.cumulative.support import counter, number, push

pytestmark = pytest.mark.full

PAGE: Final = Path(__file__).parents[2] / "docs" / "vendors.md"
SENT: Final = "org.apache.kafka.producer.record.send.total"
CLIENT: Final[dict[str, str | int]] = {"client_id": "orders", "principal": "User:alice"}


@pytest.fixture(scope="module")
def victoria_metrics() -> Iterator[VictoriaMetrics]:
    with VictoriaMetrics() as started:
        yield started


def recipes(section: str, address: str) -> dict[str, dict[str, Any]]:
    """Return the page's plugins for a vendor, by type, with another address."""
    (_, text) = PAGE.read_text().split(f"\n## {section}\n")
    found = {}
    for block in re.findall(r"^```yaml\n(.*?)^```$", text.split("\n## ")[0], re.MULTILINE | re.DOTALL):
        (entry,) = yaml.safe_load(block.replace("victoria-metrics:8428", address))["plugins"]
        found[entry["type"]] = entry
    return found


def deliver(entry: dict[str, Any], client_id: str) -> None:
    """Deliver three pushes with deltas of 3, 4 and 5 records, one after the other."""
    loaded = load_plugins([entry])
    host = PluginHost(loaded)
    host.start()
    try:
        assert loaded[0].plugin.check_destination(60)
        for number_of, delta in enumerate((3, 4, 5), start=1):
            sent = counter(SENT, number(delta, at=10.0 * number_of, since=10.0 * (number_of - 1)))
            host.offer(push(sent, at=10.0 * number_of, resource=CLIENT | {"client_id": client_id}))
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
    entry = recipes("VictoriaMetrics", victoria_metrics.address)[recipe]
    deliver(entry, client_id=recipe)
    ((labels, values),) = victoria_metrics.series(f'{{client_id="{recipe}"}}')
    assert labels["__name__"] == name
    assert labels["principal"] == "User:alice"
    assert values[-3:] == [3, 7, 12]


def test_victoria_metrics_takes_deltas_for_totals(victoria_metrics: VictoriaMetrics) -> None:
    """Therefore the recipe asks the plugin for totals."""
    entry = recipes("VictoriaMetrics", victoria_metrics.address)["otlp"]
    del entry["temporality"]
    deliver(entry, client_id="deltas")
    ((_, values),) = victoria_metrics.series('{client_id="deltas"}')
    assert values == [3, 4, 5]
