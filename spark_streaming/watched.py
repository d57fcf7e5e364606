"""Metrics that are stored by client instance, for findings and dashboards.

All other metrics are rolled up over the instances of a client id, because series by instance would
be most of the store. Each entry is a column of ``telemetry.client_1m`` and a slot of the decoder's
``watched`` array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One value by instance and minute."""

    column: str
    keeps: Literal["sum", "max", "points"]
    """``sum`` or ``max`` of the values, or number of ``points`` (for a mean, with a ``sum``)."""
    metrics: tuple[str, ...]
    """Metrics whose points count, at their first level of detail only."""


def _clients(name: str) -> tuple[str, ...]:
    return (f"org.apache.kafka.producer.{name}", f"org.apache.kafka.consumer.{name}")


_LATENCY: Final = _clients("node.request.latency.avg")
_IDLE: Final = ("org.apache.kafka.consumer.poll.idle.ratio.avg",)
_COORDINATOR: Final = "org.apache.kafka.consumer.coordinator."
_FETCH_MANAGER: Final = "org.apache.kafka.consumer.fetch.manager."

#: In the order of the decoder's slots. Append new ones, with a migration.
WATCHED: Final = (
    Watched(column="connections_created", keeps="sum", metrics=_clients("connection.creation.total")),
    Watched(
        column="throttle_ms_max",
        keeps="max",
        metrics=(
            "org.apache.kafka.producer.produce.throttle.time.max",
            f"{_FETCH_MANAGER}fetch.throttle.time.max",
        ),
    ),
    Watched(column="request_latency_ms_sum", keeps="sum", metrics=_LATENCY),
    Watched(column="request_latency_points", keeps="points", metrics=_LATENCY),
    Watched(
        column="request_latency_ms_max",
        keeps="max",
        metrics=_clients("node.request.latency.max"),
    ),
    Watched(column="poll_idle_ratio_sum", keeps="sum", metrics=_IDLE),
    Watched(column="poll_idle_ratio_points", keeps="points", metrics=_IDLE),
    Watched(column="rebalances", keeps="sum", metrics=(f"{_COORDINATOR}rebalance.total",)),
    Watched(column="rebalance_ms", keeps="sum", metrics=(f"{_COORDINATOR}rebalance.latency.total",)),
    Watched(column="assigned_partitions", keeps="max", metrics=(f"{_COORDINATOR}assigned.partitions",)),
    Watched(
        column="records",
        keeps="sum",
        metrics=("org.apache.kafka.producer.record.send.total", f"{_FETCH_MANAGER}records.consumed.total"),
    ),
    Watched(
        column="bytes",
        keeps="sum",
        metrics=("org.apache.kafka.producer.outgoing.byte.total", f"{_FETCH_MANAGER}bytes.consumed.total"),
    ),
    Watched(column="record_errors", keeps="sum", metrics=("org.apache.kafka.producer.record.error.total",)),
)
