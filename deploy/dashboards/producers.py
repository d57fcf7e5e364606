"""The dashboard *Producers*: what they send, what holds them up, and which have problems."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.brokers import EVERY_BROKER, latency_by_broker
from deploy.dashboards.choices import client_variables, sending
from deploy.dashboards.findings import OF_CHOSEN_CLIENTS, marks
from deploy.dashboards.grafana import Dashboard
from deploy.dashboards.metrics import metric_lines, spread_lines, standard, support, total
from deploy.dashboards.sql import BY_CLIENT, BY_FLEET, chosen
from deploy.dashboards.status import status
from deploy.dashboards.tops import Cell, clients_by_problem

_EVERY_PRODUCER: Final = tuple(
    standard(f"producer.{name}").name for name in ("connection.creation.total", "node.request.latency.avg")
)
_METRICS: Final = tuple(
    f"producer.{name}"
    for name in (
        "record.send.total", "outgoing.byte.total", "record.error.total", "record.retry.total",
        "batch.size.avg", "compression.rate.avg", "record.queue.time.avg", "record.queue.time.max",
        "node.request.latency.avg", "node.request.latency.max", "produce.throttle.time.avg",
        "produce.throttle.time.max", "buffer.exhausted.total", "bufferpool.wait.time.ns.total",
        "connection.creation.total", "connection.count",
    )
)  # fmt: skip


def producers() -> Dashboard:
    """Build it."""
    board = Dashboard(
        "kct-producers",
        "Kafka clients: producers",
        "What producers send, how long records wait and requests take, errors, retries, throttling.",
        start="now-3h",
    )
    board.sources().variables(*client_variables(), sending(_EVERY_PRODUCER, "producers")).resolution()
    board.marks(*marks(OF_CHOSEN_CLIENTS, clients=chosen(BY_FLEET | BY_CLIENT))).panel(status())
    board.row(
        "In this time",
        total("Records sent", "producer.record.send.total"),
        total("Bytes sent", "producer.outgoing.byte.total"),
        total("Records failed", "producer.record.error.total", warnings={1: "orange"}, counted=True),
        total("Longest request", "producer.node.request.latency.max"),
        total("Longest throttling", "producer.produce.throttle.time.max", warnings={1: "orange"}),
        total("Connections opened", "producer.connection.creation.total", counted=True),
    )
    board.row(
        "Throughput",
        metric_lines("Records sent", "producer.record.send.total"),
        metric_lines("Bytes sent", "producer.outgoing.byte.total"),
        metric_lines("Records that failed", "producer.record.error.total"),
        metric_lines("Retries", "producer.record.retry.total"),
        spread_lines("Batch size", "producer.batch.size.avg", "producer.batch.size.max"),
        spread_lines("Compression", "producer.compression.rate.avg", None),
    )
    board.row(
        "Time",
        spread_lines(
            "Wait before sending",
            "producer.record.queue.time.avg",
            "producer.record.queue.time.max",
            advice="It includes `linger.ms`. Where it grows beyond, brokers or the network are the limit.",
        ),
        spread_lines(
            "Request latency", "producer.node.request.latency.avg", "producer.node.request.latency.max"
        ),
        spread_lines(
            "Throttling",
            "producer.produce.throttle.time.avg",
            "producer.produce.throttle.time.max",
            advice="Above zero a quota of the brokers slows the client down.",
        ),
        metric_lines(
            "Senders waiting for memory",
            "producer.bufferpool.wait.time.ns.total",
            advice="How many were waiting at a time, on the average over the step: `buffer.memory` is full.",
            decimals=2,
        ),
        metric_lines(
            "Connections opened",
            "producer.connection.creation.total",
            advice="A steady client opens hardly any: many mean restarts, idle closes, or failed logins.",
        ),
        metric_lines("Open connections", "producer.connection.count"),
        latency_by_broker("Request latency by broker", EVERY_BROKER, ["producer"], width=24),
    )
    board.row(
        "Clients",
        clients_by_problem(
            "Producers, those with problems first",
            {
                "throttle_max": Cell("producer.produce.throttle.time.max", "most", "largest"),
                "failed": Cell("producer.record.error.total", "counted", "largest"),
                "latency_max": Cell("producer.node.request.latency.max", "most", "largest"),
                "latency_avg": Cell("producer.node.request.latency.avg"),
                "records": Cell("producer.record.send.total"),
                "bytes": Cell("producer.outgoing.byte.total"),
                "connections": Cell("producer.connection.creation.total", "counted"),
            },
        ),
        support(_METRICS),
    )
    return board
