"""Dashboards of clients on Prometheus alone, without the roll-up.

They answer the questions of *Fleet*, *Producers*, *Consumers*, *One client* and *Topics and groups*
from the series of the plugin `prometheus`, or of a collector's remote write.
"""

from __future__ import annotations

from typing import Final

from deploy.dashboards.addresses import ADDRESSES, Address, logs_and_traces_on_prometheus
from deploy.dashboards.grafana import Dashboard
from deploy.dashboards.members import OF_MEMBER
from deploy.dashboards.panels import Panel, column, rows
from deploy.dashboards.prometheus_panels import (
    BY_CLIENT,
    COORDINATOR,
    FETCH,
    IDLE,
    LAG_NOW,
    ONE_CLIENT,
    RATE_OVER,
    TOP,
    board,
    by_broker,
    instances,
    link_to,
    merged,
    most_of_members,
    now,
    of_instances,
    oldest_first,
    over_time,
    rebalances_of_members,
    recorded,
    spread,
    total,
    with_order,
    worst,
)
from deploy.dashboards.queries import PROMETHEUS, promql
from deploy.dashboards.ranked import LAG
from deploy.dashboards.recording_rules import GROUPS, TOPICS
from deploy.dashboards.series import EVERY_CLIENT, SELECTED, WINDOW, by_topic, rate, selected, series, whole

#: That of consumers contains the broker's wait for data.
SLOWEST: Final = "producer.node.request.latency.max"
#: How many members are listed.
_ROWS: Final = 200
_ONLY_JAVA: Final = "Java clients alone tell topics apart."
_GROUPED: Final = 'group_id!=""'
#: A series of each client with a group.
_MEMBERS: Final = EVERY_CLIENT.replace("}", f",{_GROUPED}}}")


def fleet_on_prometheus() -> Dashboard:
    """Build the dashboard of all clients: who is in trouble."""
    built = board("kct-prom-fleet", "fleet", "Which clients push, and which of them are in trouble now.")
    built.row(
        "Now",
        now("Live clients", "Client instances that push.", instances("")),
        now("Client ids", "Different client ids among them.",
             f"count(count by (client_id) ({EVERY_CLIENT}))"),
        now("Versions", "Different versions of client software.",
             f"count(count by (client_software_name, client_software_version) ({EVERY_CLIENT}))"),
        now("Throttled clients", "Client ids that brokers delay by 100 ms or more.",
             f"count({_worst_throttling()} >= 100)", warn=True),
        now("Groups behind", "Groups with a partition that is 10,000 records behind or more.",
             f"count(max by (group_id) ({selected(LAG)}) >= 10000)", warn=True),
        now("Poll-bound groups", "Groups with a member that waits for records less than 10 % of its time.",
             f"count(min by (group_id) ({selected(IDLE)}) < 0.1)", warn=True),
    )  # fmt: skip
    built.row(
        "Worst ten, now",
        worst("Lag by group", LAG, f"max by (group_id) ({selected(LAG)}) > 0", "group_id"),
        worst("Throttling", "producer.produce.throttle.time.max", f"{_worst_throttling()} > 0"),
        worst("Produce latency", SLOWEST, f"max by ({BY_CLIENT}) ({selected(SLOWEST)}) > 0"),
        worst("Failed records an hour", "producer.record.error.total",
               f"3600 * sum by ({BY_CLIENT}) ({rate('producer.record.error.total')}) > 0"),
        worst("Rebalances an hour", f"{COORDINATOR}.rebalance.total",
               f"3600 * {most_of_members(rate(f'{COORDINATOR}.rebalance.total'))} > 0", "group_id",
               advice=OF_MEMBER),
        worst("Poll idle ratio, least", IDLE, f"min by ({BY_CLIENT}) ({selected(IDLE)})", lowest=True),
        worst("Connections opened an hour", "producer.connection.creation.total",
               f"3600 * sum by ({BY_CLIENT}) ({_opened()}) > 0"),
        over_time("Records lag by group", f"`{LAG}`: of the worst partition of any member.", "short", {
            "{{group_id}}": f"topk({TOP}, max by (group_id) ({selected(LAG)}))"}, lag=True, width=16),
    )  # fmt: skip
    built.row(
        "Clients",
        _versions(),
        over_time("Clients by software and version", "Client instances that push.", "short", {
            "{{client_software_name}} {{client_software_version}}":
            instances("client_software_name, client_software_version")}, stacked=True, width=16),
    )  # fmt: skip
    return built


def _versions() -> Panel:
    """Build the table of versions, whose link lists the instances of the software."""
    by = "client_software_name, client_software_version"
    return rows(
        "Versions now",
        "Software of clients that push now, with the oldest version of each first. A name leads to the "
        "instances.",
        [promql(with_order(instances(by)), "", instant=True)],
        {
            "client_software_name": column(
                "Software", links=link_to(ONE_CLIENT, "software", "client_software_name")
            ),
            "client_software_version": column("Version"),
            "Value": column("Instances", "short", width=140),
        },
        width=8,
        source=PROMETHEUS,
        transformations=oldest_first(),
    )


def producers_on_prometheus() -> Dashboard:
    """Build the dashboard of producers."""
    built = board("kct-prom-producers", "producers", "What producers send, and what holds them up.")
    built.row(
        "Throughput",
        total("Records sent", "producer.record.send.total"),
        total("Bytes sent", "producer.outgoing.byte.total"),
        total("Records that failed", "producer.record.error.total"),
        total("Retries", "producer.record.retry.total"),
    )
    built.row(
        "Time",
        spread("Wait before sending", "producer.record.queue.time.avg", "producer.record.queue.time.max"),
        spread("Request latency", "producer.node.request.latency.avg", "producer.node.request.latency.max"),
        spread("Throttling", "producer.produce.throttle.time.avg", "producer.produce.throttle.time.max"),
        total("Connections opened", "producer.connection.creation.total"),
        by_broker("Request latency by broker", ["producer"], width=24),
    )
    return built


def consumers_on_prometheus() -> Dashboard:
    """Build the dashboard of consumers and groups."""
    built = board("kct-prom-consumers", "consumers", "Whether consumers and groups keep up.")
    consumed = f"{FETCH}.records.consumed.total"
    built.row(
        "Keeping up",
        over_time("Records lag by group", f"`{LAG}`: of the worst partition of any member.", "short", {
            "{{group_id}}": f"topk({TOP}, max by (group_id) ({selected(LAG)}))"}, lag=True),
        over_time("Records consumed by group", f"`{consumed}`. {RATE_OVER}", "count:records/s", {
            "{{group_id}}": f"topk({TOP}, sum by (group_id) ({rate(consumed)}))"}),
        spread("Poll idle ratio", IDLE, None, low=True),
        spread("Time between polls", "consumer.time.between.poll.avg", "consumer.time.between.poll.max"),
        spread("Fetch latency", f"{FETCH}.fetch.latency.avg", f"{FETCH}.fetch.latency.max"),
        spread("Throttling", f"{FETCH}.fetch.throttle.time.avg", f"{FETCH}.fetch.throttle.time.max"),
    )  # fmt: skip
    assigned = f"{COORDINATOR}.assigned.partitions"
    rebalances = f"{COORDINATOR}.rebalance.total"
    built.row(
        "Groups",
        over_time("Partitions assigned by group", f"`{assigned}`", "short", {
            "{{group_id}}": f"sum by (group_id) ({selected(assigned)})"}),
        over_time("Rebalances by group", f"`{rebalances}`. {OF_MEMBER} {RATE_OVER}",
               "count:rebalances/h", {"{{group_id}}": f"3600 * {most_of_members(rate(rebalances))}"}),
        spread("Commit latency", f"{COORDINATOR}.commit.latency.avg", f"{COORDINATOR}.commit.latency.max"),
        total("Connections opened", "consumer.connection.creation.total"),
        by_broker("Request latency by broker", ["consumer"]),
        rebalances_of_members("Rebalances of each member"),
    )  # fmt: skip
    return built


def one_client_on_prometheus() -> Dashboard:
    """Build the dashboard of one client id, each instance beside its peers."""
    built = board(
        ONE_CLIENT,
        "one client",
        "A client id: each of its instances beside its peers, the clients of its software.",
    ).variables(*(Address(name) for name in ADDRESSES))
    built.row(
        "Who it is",
        rows(
            "Instances",
            "Instances that push now, those of the oldest version of a software first.",
            [promql(with_order(
                f"group by ({BY_CLIENT}, client_software_version, principal, group_id, client_instance_id)"
                f" ({EVERY_CLIENT})"), "", instant=True)],
            {
                "client_id": column("Client id"),
                "client_software_name": column("Software"),
                "client_software_version": column("Version"),
                "principal": column("Principal"),
                "group_id": column("Group"),
                "client_instance_id": column("Instance"),
                "Value": column("Value", hidden=True),
            },
            width=16,
            height=6,
            source=PROMETHEUS,
            transformations=oldest_first(),
        ),
        logs_and_traces_on_prometheus(width=8),
    )  # fmt: skip
    built.row(
        "What it does",
        of_instances("Records sent", "producer.record.send.total"),
        of_instances("Records consumed", f"{FETCH}.records.consumed.total"),
        of_instances("Records that failed", "producer.record.error.total"),
        of_instances("Records lag", LAG),
        of_instances("Poll idle ratio", IDLE),
        of_instances("Time between polls", "consumer.time.between.poll.max"),
        of_instances("Produce latency", "producer.node.request.latency.max"),
        of_instances("Fetch latency", f"{FETCH}.fetch.latency.max"),
        of_instances("Produce throttling", "producer.produce.throttle.time.max"),
        of_instances("Fetch throttling", f"{FETCH}.fetch.throttle.time.max"),
        of_instances("Partitions assigned", f"{COORDINATOR}.assigned.partitions"),
        over_time(
            "Connections opened",
            f"`connection.creation.total`. {RATE_OVER}",
            "count:connections/h",
            {"{{client_instance_id}}": f"3600 * sum by (client_instance_id) ({_opened()})"},
            width=8,
        ),
        rebalances_of_members("Rebalances of each instance", width=8),
        by_broker("Request latency by broker", width=16),
    )
    return built


def topics_and_groups_on_prometheus() -> Dashboard:
    """Build the dashboard of topics and consumer groups."""
    built = board(
        "kct-prom-topics-and-groups",
        "topics and groups",
        "What clients write to and read from topics, and how consumer groups get on.",
    )
    built.row(
        "Topics",
        _topics(),
        recorded("Records sent by topic", TOPICS["sent"], "topic", _ONLY_JAVA),
        recorded("Records consumed by topic", TOPICS["consumed"], "topic", _ONLY_JAVA),
        recorded("Records that failed by topic", TOPICS["failed"], "topic", _ONLY_JAVA),
        recorded(
            "Records lag by topic",
            TOPICS["lag"],
            "topic",
            f"Of the worst partition. {_ONLY_JAVA}",
            largest=True,
        ),
    )
    built.row(
        "Groups",
        _groups(),
        recorded(
            "Records consumed by group", GROUPS["consumed"], "group_id", "Java clients alone count records."
        ),
        recorded(
            "Records lag by group",
            GROUPS["lag"],
            "group_id",
            "Of the worst partition of any member.",
            largest=True,
        ),
        recorded(
            "Rebalances by group",
            GROUPS["rebalances"],
            "group_id",
            OF_MEMBER,
            largest=True,
        ),
        rebalances_of_members("Rebalances of each member"),
        _members(),
    )
    return built


def _topics() -> Panel:
    def of(name: str) -> str:
        return f"sum by (topic) (rate({by_topic(name, SELECTED)}[{WINDOW}]))"

    return merged(
        "Topics",
        f"Topics, those with the largest lag first. Rates are over the time of *Rate over*. {_ONLY_JAVA} An "
        "empty cell means no data.",
        {"topic": column("Topic", width=260)},
        {
            LAG_NOW: (f"max by (topic) ({by_topic(LAG, SELECTED)})", "short"),
            "Sent": (of("producer.topic.record.send.total"), "count:records/s"),
            "Sent bytes": (of("producer.topic.byte.total"), "binBps"),
            "Consumed": (of(f"{FETCH}.records.consumed.total"), "count:records/s"),
            "Consumed bytes": (of(f"{FETCH}.bytes.consumed.total"), "binBps"),
            "Failed": (f"3600 * {of('producer.topic.record.error.total')}", "count:/h"),
            "Retried": (f"3600 * {of('producer.topic.record.retry.total')}", "count:/h"),
        },
    )


def _groups() -> Panel:
    consumed = f"sum by (group_id) (rate({_in_group(f'{FETCH}.records.consumed.total')}[{WINDOW}]))"
    partitions = f"sum by (group_id) ({_in_group(f'{COORDINATOR}.assigned.partitions')})"
    lag = f"max by (group_id) ({_in_group(LAG)})"
    growth = f"max by (group_id) (deriv({_in_group(LAG)}[{WINDOW}]))"
    rebalances = f"rate({_in_group(f'{COORDINATOR}.rebalance.total')}[{WINDOW}])"
    return merged(
        "Groups",
        "Consumer groups, those with the largest lag first. Rates are over the time of *Rate over*. "
        f"*Rebalances*: {OF_MEMBER[0].lower()}{OF_MEMBER[1:]} *Lag grows by*: of the partition whose lag "
        "grows most. *Time to catch up*: how long until the largest lag is gone, as that partition's falls; "
        "empty if it grows. An empty cell means no data.",
        {
            "group_id": column(
                "Group", width=180, links=link_to("kct-prom-topics-and-groups", "group", "group_id")
            )
        },
        {
            LAG_NOW: (lag, "short"),
            "Lag grows by": (f"60 * {growth}", "count:/min"),
            "Time to catch up": (f"{lag} / -({growth} < 0)", "s"),
            "Poll idle, least": (f"min by (group_id) ({_in_group(IDLE)})", "percentunit"),
            "Rebalances": (f"3600 * {most_of_members(rebalances)}", "count:/h"),
            "Live members": (f"count by (group_id) (group by (group_id, client_instance_id) ({_MEMBERS}))",
                             "short"),
            "Partitions": (partitions, "short"),
            "Records": (consumed, "count:records/s"),
            "Bytes": (f"sum by (group_id) (rate({_in_group(f'{FETCH}.bytes.consumed.total')}[{WINDOW}]))",
                      "binBps"),
        },
    )  # fmt: skip


def _members() -> Panel:
    labels = {
        "group_id": column("Group"),
        "client_id": column("Client id", links=link_to(ONE_CLIENT, "client_id", "client_id")),
        "client_instance_id": column("Instance"),
        "client_software_name": column("Software"),
        "client_software_version": column("Version"),
    }
    by = ", ".join(labels)
    some = f"topk({_ROWS}, group by ({by}) ({_MEMBERS}))"

    def of(how: str, name: str) -> str:
        return f"{how} by ({by}) ({_in_group(name)}) and on (client_instance_id) {some}"

    return merged(
        "Members",
        f"Client instances with a group that push now, at most {_ROWS}, those with the largest lag first.",
        labels,
        {
            "Member": (some, None),
            LAG_NOW: (of("max", LAG), "short"),
            "Poll idle": (of("min", IDLE), "percentunit"),
            "Partitions": (of("sum", f"{COORDINATOR}.assigned.partitions"), "short"),
        },
    )


def _in_group(name: str) -> str:
    return whole(name, SELECTED, _GROUPED)


def _opened() -> str:
    names = "|".join(series(f"{role}.connection.creation.total") for role in ("producer", "consumer"))
    return f'rate({{__name__=~"{names}",{SELECTED}}}[{WINDOW}])'


def _worst_throttling() -> str:
    names = "|".join(
        series(name) for name in ("producer.produce.throttle.time.max", f"{FETCH}.fetch.throttle.time.max")
    )
    return f'max by ({BY_CLIENT}) ({{__name__=~"{names}",{SELECTED}}})'
