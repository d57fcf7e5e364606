"""The subscriptions example: its README's commands change the metrics that real clients push."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from receiver.telemetry.control.offenders import STANDARD_METRICS
from tests.examples.compose import EXAMPLES
from tests.testbed.broker import KafkaBroker
from tests.testbed.clients import JavaClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector
from tests.testbed.process import wait_until
from tests.testbed.sidecar import Sidecar

EXAMPLE = EXAMPLES / "subscriptions"
#: Metrics that the sidecar adds to the client's own.
OWN = "kafka.client.telemetry."


def curl(sidecar: Sidecar, what: str) -> str:
    """Run the one command of README.md that has ``what`` in it."""
    commands = re.findall(r"^    (curl .+)$", (EXAMPLE / "README.md").read_text(), re.MULTILINE)
    (command,) = [command for command in commands if what in command]
    assert "http://127.0.0.1:8642" in command
    done = subprocess.run(
        ["bash", "-c", command.replace("http://127.0.0.1:8642", sidecar.url)],
        cwd=EXAMPLE,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout


def client(sidecar: Sidecar, client_id: str) -> dict[str, Any]:
    """Return the sidecar's document of a client; empty before its first request."""
    items = json.loads(curl(sidecar, "/v1/clients"))["items"]
    return next((item for item in items if item["client_id"] == client_id), {})


@pytest.mark.timeout(600)
def test_the_workflows_of_kip_714(broker: KafkaBroker, sidecar: Sidecar, collector: Collector) -> None:
    broker.create_topic("workflows")
    curl(sidecar, "@proactive.json")
    curl(sidecar, "@reactive.json")
    with (
        JavaClient(Mode.PRODUCER, bootstrap=sidecar.bootstrap(), topic="workflows", client_id="orders"),
        LibrdkafkaClient(
            Mode.PRODUCER, bootstrap=sidecar.bootstrap(), topic="workflows", client_id="payments"
        ),
    ):
        for client_id in ("orders", "payments"):
            wait_until(lambda: bool(client(sidecar, client_id)), timeout_s=30, what=client_id)  # noqa: B023
        assert client(sidecar, "payments")["push_interval_ms"] == 60_000
        assert client(sidecar, "orders")["push_interval_ms"] == 5_000
        # The first push comes after half an interval to one and a half, then one every interval.
        collector.wait_for(lambda _: len(times(collector, "orders")) >= 2, timeout_s=30, what="two pushes")
        first, second = times(collector, "orders")[:2]
        assert 4.0 <= (second - first) / 1e9 <= 8.0
        assert names(collector, "orders") - set(STANDARD_METRICS)

        curl(sidecar, "DELETE")
        wait_until(
            lambda: client(sidecar, "orders")["push_interval_ms"] == 60_000,
            timeout_s=20,
            what="orders to ask",
        )
        collector.forget()
    # Each pushes a last time as it closes.
    collector.wait_for(lambda _: bool(names(collector, "payments")), what="the last push of payments")
    assert names(collector, "payments") <= set(STANDARD_METRICS)
    assert names(collector, "orders") <= set(STANDARD_METRICS)


def names(collector: Collector, client_id: str) -> set[str]:
    return {
        metric.name
        for metric in collector.exports()
        if metric.resource.get("client_id") == client_id and not metric.name.startswith(OWN)
    }


def times(collector: Collector, client_id: str) -> list[int]:
    """Return a client's push times in ns; points within a second are one push."""
    found = sorted(
        {
            point.time_ns
            for metric in collector.exports()
            if metric.resource.get("client_id") == client_id
            for point in metric.points
        }
    )
    return [time for before, time in zip([0, *found], found, strict=False) if time - before > 1e9]
