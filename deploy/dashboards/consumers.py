"""The dashboard *Consumers*: whether they keep up, and what limits them."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.brokers import EVERY_BROKER, latency_by_broker
from deploy.dashboards.choices import client_variables, sending
from deploy.dashboards.findings import OF_CHOSEN_CLIENTS, marks
from deploy.dashboards.grafana import Dashboard
from deploy.dashboards.members import OF_MEMBER
from deploy.dashboards.metrics import WAITS, metric_lines, spread_lines, standard, support, total
from deploy.dashboards.ranked import BY_GROUP, LAG_WARNINGS, largest, most_added
from deploy.dashboards.sql import BY_CLIENT, BY_FLEET, chosen
from deploy.dashboards.status import status
from deploy.dashboards.tops import Cell, clients_by_problem

_EVERY_CONSUMER: Final = tuple(
    standard(f"consumer.{name}").name for name in ("connection.creation.total", "node.request.latency.avg")
)
_FETCH: Final = "consumer.fetch.manager"
_COORDINATOR: Final = "consumer.coordinator"
_METRICS: Final = (
    *(
        f"{_FETCH}.{name}"
        for name in (
            "records.consumed.total", "bytes.consumed.total", "records.lag.max", "fetch.latency.avg",
            "fetch.latency.max", "fetch.throttle.time.avg", "fetch.throttle.time.max",
        )
    ),
    *(
        f"{_COORDINATOR}.{name}"
        for name in (
            "assigned.partitions", "rebalance.total", "rebalance.latency.total", "rebalance.latency.avg",
            "commit.latency.avg", "commit.latency.max", "failed.rebalance.total",
        )
    ),
    *(
        f"consumer.{name}"
        for name in (
            "poll.idle.ratio.avg", "time.between.poll.avg", "time.between.poll.max",
            "node.request.latency.avg", "node.request.latency.max", "connection.creation.total",
        )
    ),
)  # fmt: skip


def consumers() -> Dashboard:
    """Build it."""
    board = Dashboard(
        "kct-consumers",
        "Kafka clients: consumers",
        "What consumers fetch, whether they keep up, and what they wait for: application, group or brokers.",
        start="now-2h",
    )
    board.sources().variables(*client_variables(), sending(_EVERY_CONSUMER, "consumers")).resolution()
    board.marks(*marks(OF_CHOSEN_CLIENTS, clients=chosen(BY_FLEET | BY_CLIENT))).panel(status())
    board.row(
        "In this time",
        total("Records read", f"{_FETCH}.records.consumed.total"),
        total("Bytes read", f"{_FETCH}.bytes.consumed.total"),
        total("Largest lag", f"{_FETCH}.records.lag.max", warnings=LAG_WARNINGS),
        total("Partitions assigned", f"{_COORDINATOR}.assigned.partitions"),
        total("Rebalances", f"{_COORDINATOR}.rebalance.total", counted=True),
        total("Most throttling", f"{_FETCH}.fetch.throttle.time.max", warnings={1: "orange"}),
    )
    board.row(
        "Keeping up",
        metric_lines("Records consumed", f"{_FETCH}.records.consumed.total"),
        metric_lines("Bytes consumed", f"{_FETCH}.bytes.consumed.total"),
        largest(
            "Records lag by group",
            f"{_FETCH}.records.lag.max",
            "group_id",
            BY_GROUP,
            "Of the worst partition of any member. A line that only rises is a group that is too slow.",
            warnings=LAG_WARNINGS,
        ),
        spread_lines(
            "Poll idle ratio",
            "consumer.poll.idle.ratio.avg",
            None,
            advice="Near 0 the application is the limit: it works on records nearly all of the time.",
            low_is_bad=True,
        ),
        spread_lines(
            "Time between polls",
            "consumer.time.between.poll.avg",
            "consumer.time.between.poll.max",
            advice="Beyond `max.poll.interval.ms` the group takes the client's partitions away.",
        ),
        spread_lines(
            "Fetch latency", f"{_FETCH}.fetch.latency.avg", f"{_FETCH}.fetch.latency.max", advice=WAITS
        ),
    )
    board.row(
        "Groups",
        metric_lines("Partitions assigned", f"{_COORDINATOR}.assigned.partitions"),
        most_added(
            "Rebalances by group",
            f"{_COORDINATOR}.rebalance.total",
            "group_id",
            BY_GROUP,
            OF_MEMBER,
            of_member=True,
        ),
        metric_lines(
            "Members rebalancing",
            f"{_COORDINATOR}.rebalance.latency.total",
            advice="How many members were in a rebalance at a time, on the average over the step.",
            decimals=2,
        ),
        spread_lines(
            "Commit latency", f"{_COORDINATOR}.commit.latency.avg", f"{_COORDINATOR}.commit.latency.max"
        ),
    )
    board.row(
        "Brokers",
        spread_lines(
            "Request latency",
            "consumer.node.request.latency.avg",
            "consumer.node.request.latency.max",
            advice=WAITS,
        ),
        spread_lines(
            "Throttling",
            f"{_FETCH}.fetch.throttle.time.avg",
            f"{_FETCH}.fetch.throttle.time.max",
            advice="Above zero a quota of the brokers slows the client down.",
        ),
        metric_lines("Connections opened", "consumer.connection.creation.total"),
        metric_lines("Open connections", "consumer.connection.count"),
        latency_by_broker("Request latency by broker", EVERY_BROKER, ["consumer"], width=24),
    )
    board.row(
        "Clients",
        clients_by_problem(
            "Consumers, those with problems first",
            {
                "lag_max": Cell(f"{_FETCH}.records.lag.max", "newest", "largest"),
                "poll_idle_min": Cell("consumer.poll.idle.ratio.avg", "least", "smallest"),
                "throttle_max": Cell(f"{_FETCH}.fetch.throttle.time.max", "most", "largest"),
                "rebalances": Cell(f"{_COORDINATOR}.rebalance.total", "counted", "largest"),
                "latency_avg": Cell("consumer.node.request.latency.avg"),
                "records": Cell(f"{_FETCH}.records.consumed.total"),
                "bytes": Cell(f"{_FETCH}.bytes.consumed.total"),
                "connections": Cell("consumer.connection.creation.total", "counted"),
            },
        ),
        support(_METRICS),
    )
    return board
