"""Owns the list of metrics that are kept by client instance, because a finding or a panel asks for them.

Everything else is rolled up over the instances of a client id: an instance's series would be most of the
store. Each entry is a column of ``telemetry.client_1m``, and a slot of the decoder's ``watched`` array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["WATCHED", "Watched"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What one slot keeps of an instance's points in a minute.

    Attributes:
        column: The column's name.
        keeps: ``sum`` of the values, their ``max``, or how many ``points`` there were (for a mean, beside
            a ``sum`` of the same metrics).
        metrics: The metrics whose points count, at their first level only.
    """

    column: str
    keeps: Literal["sum", "max", "points"]
    metrics: tuple[str, ...]


def _both(name: str) -> tuple[str, ...]:
    return (f"org.apache.kafka.producer.{name}", f"org.apache.kafka.consumer.{name}")


_LATENCY: Final = _both("node.request.latency.avg")
_IDLE: Final = ("org.apache.kafka.consumer.poll.idle.ratio.avg",)
_COORDINATOR: Final = "org.apache.kafka.consumer.coordinator."
_FETCH_MANAGER: Final = "org.apache.kafka.consumer.fetch.manager."

#: In the order of the decoder's slots; a new one goes to the end, with a migration.
WATCHED: Final = (
    Watched(column="connections_created", keeps="sum", metrics=_both("connection.creation.total")),
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
    Watched(column="request_latency_ms_max", keeps="max", metrics=_both("node.request.latency.max")),
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
