"""Tests the plugin against a real HTTP server; install this folder and pytest to run it."""
# ruff: noqa: D101, D102, D103 # tests say what by their names

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from kafka_client_telemetry import plugin
from kafka_telemetry_webhook import WebhookConfig, WebhookReceiver
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData


class Destination(HTTPServer):
    """Answers with ``status``, and keeps what it was sent."""

    status = 204
    received: list[tuple[str | None, list[dict[str, Any]]]]


class Handler(BaseHTTPRequestHandler):
    server: Destination

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        lines = [json.loads(line) for line in body.splitlines()]
        self.server.received.append((self.headers["authorization"], lines))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # http.server's own name
        pass


@pytest.fixture
def destination() -> Iterator[Destination]:
    server = Destination(("127.0.0.1", 0), Handler)
    server.received = []
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def webhook(destination: Destination) -> Iterator[WebhookReceiver]:
    url = f"http://127.0.0.1:{destination.server_port}/telemetry"
    one = WebhookReceiver(WebhookConfig.model_validate({"url": url, "token": "secret"}))
    one.start()
    yield one
    one.stop()


def push() -> plugin.Push:
    metrics = MetricsData()
    metric = metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="a.rate")
    point = metric.gauge.data_points.add(as_double=2.5)
    point.attributes.add(key="topic").value.string_value = "orders"
    point.attributes.add(key="node").value.int_value = 2
    metric.gauge.data_points.add(as_double=math.nan)
    latency = metrics.resource_metrics[0].scope_metrics[0].metrics.add(name="a.latency")
    latency.histogram.data_points.add(count=3, sum=7.5, explicit_bounds=[1.0], bucket_counts=[1, 2])
    return plugin.Push(
        context=plugin.ClientTelemetryContext(
            connection_id="1",
            listener="CLIENT",
            security_protocol="PLAINTEXT",
            source_address="127.0.0.1",
            source_port=40000,
            principal="User:alice",
            client_id="producer-1",
            client_software_name="apache-kafka-java",
            client_software_version="4.4.0",
            broker_id=1,
            cluster_id=None,
            subscription_id=7,
            push_interval_ms=1000,
            received_at_ns=1_700_000_000_500_000_000,
        ),
        payload=plugin.ClientTelemetryPayload(
            client_instance_id="AAAAAAAAAAAAAAAAAAAAAQ",
            terminating=False,
            data=metrics.SerializeToString(),
            sequence=3,
            push_id="0" * 32,
        ),
    )


def test_each_push_is_a_line(webhook: WebhookReceiver, destination: Destination) -> None:
    webhook.export_batch([push(), push()])
    ((authorization, lines),) = destination.received
    assert authorization == "Bearer secret"
    assert len(lines) == 2
    assert lines[0]["id"] == "AAAAAAAAAAAAAAAAAAAAAQ-1700000000500000000-3"
    assert (lines[0]["client_id"], lines[0]["principal"]) == ("producer-1", "User:alice")
    assert lines[0]["values"] == [
        {"name": "a.rate", "attributes": {"topic": "orders", "node": 2}, "value": 2.5},
        {"name": "a.latency", "attributes": {}, "count": 3, "bounds": [1.0], "buckets": [1, 2]},
    ]


@pytest.mark.parametrize(
    ("status", "error"),
    [(503, plugin.RetryableError), (413, plugin.BatchRefusedError), (403, plugin.RetryableError)],
)
def test_a_refusal_says_who_must_act(
    webhook: WebhookReceiver, destination: Destination, status: int, error: type[plugin.ExportError]
) -> None:
    destination.status = status
    with pytest.raises(error, match=f"^HTTP {status}$") as caught:
        webhook.export_batch([push()])
    assert type(caught.value) is error


def test_it_goes_on_after_a_crash(webhook: WebhookReceiver, destination: Destination) -> None:
    webhook.stop()
    webhook.start()
    webhook.export_batch([push()])
    assert len(destination.received) == 1


def test_a_destination_that_is_away_is_retryable() -> None:
    one = WebhookReceiver(WebhookConfig(url="http://127.0.0.1:1/"))
    one.start()
    with pytest.raises(plugin.RetryableError, match="ConnectError"):
        one.export_batch([push()])
    one.stop()
