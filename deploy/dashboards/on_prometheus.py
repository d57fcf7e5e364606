"""Dashboards of clients on Prometheus alone, without the roll-up.

They answer the questions of *Fleet*, *Producers*, *Consumers* and *One client* from the series of
the plugin `prometheus`, or of a collector's remote write.
"""

from __future__ import annotations

from typing import Final, Literal

from grafana_foundation_sdk.builders.dashboard import CustomVariable, QueryVariable
from grafana_foundation_sdk.models import dashboard as models

from deploy.dashboards.grafana import Dashboard
from deploy.dashboards.metrics import standard
from deploy.dashboards.panels import NOTHING_FOUND, Panel, column, lines, number, rows
from deploy.dashboards.queries import PROMETHEUS, promql
from deploy.dashboards.ranked import LAG_WARNINGS
from deploy.dashboards.series import EVERY_CLIENT, SELECTED, WINDOW, rate, selected, series
from deploy.dashboards.units import unit_of

__all__ = [
    "consumers_on_prometheus",
    "fleet_on_prometheus",
    "one_client_on_prometheus",
    "producers_on_prometheus",
]

_FETCH: Final = "consumer.fetch.manager"
_COORDINATOR: Final = "consumer.coordinator"
_LAG: Final = f"{_FETCH}.records.lag.max"
_IDLE: Final = "consumer.poll.idle.ratio.avg"
_BY_CLIENT: Final = "client_id, client_software_name"
_TOP: Final = 10
_ROLES: Final = ("producer", "consumer")
_ONE: Final = "kct-prom-one-client"
_NO_RATE: Final = f"Over the time of *Rate over*, `{WINDOW}`: it should have several push intervals."


def fleet_on_prometheus() -> Dashboard:
    """Build the dashboard of all clients: who is in trouble."""
    board = _board("kct-prom-fleet", "fleet", "Which clients push, and which of them are in trouble now.")
    board.row(
        "Now",
        _now("Live clients", "Client instances that push.", _instances("")),
        _now("Client ids", "Different client ids among them.",
             f"count(count by (client_id) ({EVERY_CLIENT}))"),
        _now("Versions", "Different versions of client software.",
             f"count(count by (client_software_name, client_software_version) ({EVERY_CLIENT}))"),
        _now("Throttled clients", "Client ids that brokers delay by 100 ms or more.",
             f"count({_worst_throttling()} >= 100)", warn=True),
        _now("Groups behind", "Groups with a partition that is 10,000 records behind or more.",
             f"count(max by (group_id) ({selected(_LAG)}) >= 10000)", warn=True),
        _now("Poll-bound groups", "Groups with a member that waits for records less than 10 % of its time.",
             f"count(min by (group_id) ({selected(_IDLE)}) < 0.1)", warn=True),
    )  # fmt: skip
    board.row(
        "Worst ten, now",
        _worst("Lag by group", _LAG, f"max by (group_id) ({selected(_LAG)}) > 0", "group_id"),
        _worst("Throttling", "producer.produce.throttle.time.max", f"{_worst_throttling()} > 0"),
        _worst("Slowest requests", "producer.node.request.latency.max", _of_both("node.request.latency.max")),
        _worst("Failed records an hour", "producer.record.error.total",
               f"3600 * sum by ({_BY_CLIENT}) ({rate('producer.record.error.total')}) > 0"),
        _worst("Rebalances an hour, of the member with the most", f"{_COORDINATOR}.rebalance.total",
               f"3600 * max by (group_id) ({rate(f'{_COORDINATOR}.rebalance.total')}) > 0", "group_id"),
        _worst("Poll idle ratio, least", _IDLE, f"min by ({_BY_CLIENT}) ({selected(_IDLE)})", lowest=True),
    )  # fmt: skip
    board.row(
        "Clients over time",
        _lines("Clients by software and version", "Client instances that push.", "short", {
            "{{client_software_name}} {{client_software_version}}":
            _instances("client_software_name, client_software_version")}, stacked=True),
        _lines("Records lag by group", f"`{_LAG}`: of the worst partition of any member.", "short", {
            "{{group_id}}": f"topk({_TOP}, max by (group_id) ({selected(_LAG)}))"}, lag=True),
    )  # fmt: skip
    return board


def producers_on_prometheus() -> Dashboard:
    """Build the dashboard of producers."""
    board = _board("kct-prom-producers", "producers", "What producers send, and what holds them up.")
    board.row(
        "Throughput",
        _total("Records sent", "producer.record.send.total"),
        _total("Bytes sent", "producer.outgoing.byte.total"),
        _total("Records that failed", "producer.record.error.total"),
        _total("Retries", "producer.record.retry.total"),
    )
    board.row(
        "Time",
        _spread("Wait before sending", "producer.record.queue.time.avg", "producer.record.queue.time.max"),
        _spread("Request latency", "producer.node.request.latency.avg", "producer.node.request.latency.max"),
        _spread("Throttling", "producer.produce.throttle.time.avg", "producer.produce.throttle.time.max"),
        _total("Connections opened", "producer.connection.creation.total"),
    )
    return board


def consumers_on_prometheus() -> Dashboard:
    """Build the dashboard of consumers and groups."""
    board = _board("kct-prom-consumers", "consumers", "Whether consumers and groups keep up.")
    consumed = f"{_FETCH}.records.consumed.total"
    board.row(
        "Keeping up",
        _lines("Records lag by group", f"`{_LAG}`: of the worst partition of any member.", "short", {
            "{{group_id}}": f"topk({_TOP}, max by (group_id) ({selected(_LAG)}))"}, lag=True),
        _lines("Records consumed by group", f"`{consumed}`. {_NO_RATE}", "count:records/s", {
            "{{group_id}}": f"topk({_TOP}, sum by (group_id) ({rate(consumed)}))"}),
        _spread("Poll idle ratio", _IDLE, None, low=True),
        _spread("Time between polls", "consumer.time.between.poll.avg", "consumer.time.between.poll.max"),
        _spread("Fetch latency", f"{_FETCH}.fetch.latency.avg", f"{_FETCH}.fetch.latency.max"),
        _spread("Throttling", f"{_FETCH}.fetch.throttle.time.avg", f"{_FETCH}.fetch.throttle.time.max"),
    )  # fmt: skip
    assigned = f"{_COORDINATOR}.assigned.partitions"
    rebalances = f"{_COORDINATOR}.rebalance.total"
    board.row(
        "Groups",
        _lines("Partitions assigned by group", f"`{assigned}`", "short", {
            "{{group_id}}": f"sum by (group_id) ({selected(assigned)})"}),
        _lines("Rebalances by group", f"`{rebalances}`: of the member with the most. {_NO_RATE}",
               "count:rebalances/h", {"{{group_id}}": f"3600 * max by (group_id) ({rate(rebalances)})"}),
        _spread("Commit latency", f"{_COORDINATOR}.commit.latency.avg", f"{_COORDINATOR}.commit.latency.max"),
        _total("Connections opened", "consumer.connection.creation.total"),
    )  # fmt: skip
    return board


def one_client_on_prometheus() -> Dashboard:
    """Build the dashboard of one client id, each instance beside the median of its software."""
    board = _board(
        _ONE, "one client", "A client id: each of its instances beside the median of its software."
    )
    board.row(
        "Who it is",
        rows(
            "Instances",
            "Instances that push now.",
            [promql(
                f"group by ({_BY_CLIENT}, client_software_version, principal, group_id, client_instance_id)"
                f" ({EVERY_CLIENT})", "", instant=True)],
            {
                "client_id": column("Client id"),
                "client_software_name": column("Software"),
                "client_software_version": column("Version"),
                "principal": column("Principal"),
                "group_id": column("Group"),
                "client_instance_id": column("Instance"),
                "Value": column("Value", hidden=True),
            },
            height=6,
            source=PROMETHEUS,
            transformations=[_organized()],
        ),
    )  # fmt: skip
    board.row(
        "What it does",
        _of_instances("Records sent", "producer.record.send.total"),
        _of_instances("Records consumed", f"{_FETCH}.records.consumed.total"),
        _of_instances("Records that failed", "producer.record.error.total"),
        _of_instances("Records lag", _LAG),
        _of_instances("Poll idle ratio", _IDLE),
        _of_instances("Time between polls", "consumer.time.between.poll.max"),
        _of_instances("Produce latency", "producer.node.request.latency.max"),
        _of_instances("Fetch latency", f"{_FETCH}.fetch.latency.max"),
        _of_instances("Produce throttling", "producer.produce.throttle.time.max"),
        _of_instances("Fetch throttling", f"{_FETCH}.fetch.throttle.time.max"),
        _of_instances("Rebalances", f"{_COORDINATOR}.rebalance.total"),
        _of_instances("Partitions assigned", f"{_COORDINATOR}.assigned.partitions"),
    )
    return board


def _board(uid: str, title: str, description: str) -> Dashboard:
    board = Dashboard(uid, f"Kafka clients on Prometheus: {title}", description, start="now-1h")
    anyone = "|".join(
        series(f"{role}.{name}")
        for role in _ROLES
        for name in ("connection.creation.total", "node.request.latency.avg")
    )
    board.sources(postgres=False, prometheus=True)
    above: list[str] = []
    for name, label, of in (
        ("cluster", "Cluster", "cluster_id"),
        ("software", "Software", "client_software_name"),
        ("principal", "Principal", "principal"),
        ("group", "Group", "group_id"),
        ("client_id", "Client id", "client_id"),
    ):
        matchers = ",".join([f'__name__=~"{anyone}"', *above])
        board.variables(
            QueryVariable(name)
            .label(label)
            .description(f"Values of the label {of}")
            .datasource(PROMETHEUS)
            .query({"query": f"label_values({{{matchers}}}, {of})", "refId": name})
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.ALPHABETICAL_ASC)
            .multi(multi=True)
            .include_all(include_all=True)
            .all_value(".*")
            .current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
        )
        above.append(f'{of}=~"${name}"')
    words = ["5m", "15m", "30m", "1h"]
    return board.variables(
        CustomVariable("window")
        .label("Rate over")
        .description(
            "The time of rates: three push intervals or more. Clients push totals once in an interval."
        )
        .values(",".join(words))
        .multi(multi=False)
        .include_all(include_all=False)
        .options([models.VariableOption(selected=word == "15m", text=word, value=word) for word in words])
        .current(models.VariableOption(selected=True, text="15m", value="15m"))
    )


def _instances(by: str) -> str:
    """Return the number of client instances, by some labels."""
    labels = ", ".join(filter(None, (by, "client_instance_id")))
    return (
        f"count by ({by}) (group by ({labels}) ({EVERY_CLIENT}))"
        if by
        else (f"count(group by ({labels}) ({EVERY_CLIENT}))")
    )


def _of_both(name: str) -> str:
    """Return the largest value by client id, of producers and consumers."""
    names = "|".join(series(f"{role}.{name}") for role in _ROLES)
    return f'max by ({_BY_CLIENT}) ({{__name__=~"{names}",{SELECTED}}})'


def _worst_throttling() -> str:
    names = "|".join(
        series(name) for name in ("producer.produce.throttle.time.max", f"{_FETCH}.fetch.throttle.time.max")
    )
    return f'max by ({_BY_CLIENT}) ({{__name__=~"{names}",{SELECTED}}})'


def _now(title: str, description: str, expression: str, *, warn: bool = False) -> Panel:
    # No series means none, if any client pushes.
    zero = f"0 * count({EVERY_CLIENT})"
    query = promql(f"{expression} or on () {zero}", "", instant=True)
    return number(
        title, description, "short", query, source=PROMETHEUS, warn_from=1 if warn else None,
        nothing="no client pushes",
    )  # fmt: skip


def _organized() -> models.DataTransformerConfig:
    return models.DataTransformerConfig(id_val="organize", options={"excludeByName": {"Time": True}})


def _worst(
    title: str,
    name: str,
    expression: str,
    by: Literal["client_id", "group_id"] = "client_id",
    *,
    lowest: bool = False,
) -> Panel:
    """Build the table of the ten client ids or groups with the worst values, with links."""
    metric = standard(name)
    unit = unit_of(metric)[0]
    best = "bottomk" if lowest else "topk"
    sort = "sort" if lowest else "sort_desc"
    uid, variable = (_ONE, "client_id") if by == "client_id" else ("kct-prom-consumers", "group")
    url = (
        f"/d/{uid}?${{__url_time_range}}&${{prometheus:queryparam}}&${{cluster:queryparam}}"
        f"&var-{variable}=${{__data.fields.{by}:percentencode}}"
    )
    links: list[dict[str, object]] = [{"title": "Show this one", "url": url, "targetBlank": False}]
    return rows(
        title,
        f"`{metric.name}`: {metric.description}",
        [promql(f"{sort}({best}({_TOP}, {expression}))", "", instant=True)],
        {
            "client_id": column("Client id", links=links if by == "client_id" else ()),
            "group_id": column("Group", links=links if by == "group_id" else ()),
            "client_software_name": column("Software"),
            "Value": column("Value", unit, width=140),
        },
        width=8,
        height=8,
        source=PROMETHEUS,
        transformations=[_organized()],
        nothing=NOTHING_FOUND,
    )


def _lines(
    title: str,
    description: str,
    unit: str,
    expressions: dict[str, str],
    *,
    stacked: bool = False,
    width: int = 12,
    lag: bool = False,
    low: bool = False,
) -> Panel:
    queries = [
        promql(expression, legend, ref_id=chr(ord("A") + index))
        for index, (legend, expression) in enumerate(expressions.items())
    ]
    return lines(
        title, description, unit, queries, source=PROMETHEUS, stacked=stacked, width=width,
        warnings=LAG_WARNINGS if lag else None, smallest_first=low,
    )  # fmt: skip


def _total(title: str, name: str) -> Panel:
    metric = standard(name)
    unit, factor = unit_of(metric)
    scale = "" if factor == 1.0 else f"{factor:g} * "
    return _lines(
        title,
        f"`{metric.name}`: {metric.description} {_NO_RATE} Sent by {', '.join(metric.clients)}.",
        unit,
        {"{{client_software_name}}": f"{scale}sum by (client_software_name) ({rate(name)})"},
        stacked=True,
    )


def _spread(title: str, average: str, maximum: str | None, *, low: bool = False) -> Panel:
    """Build quantiles over client instances of an average; ``low``: those of small values."""
    metric = standard(average)
    shares = {"median client": 0.5, "95 % of clients below": 0.95, "99 % of clients below": 0.99}
    if low:
        shares = {"median client": 0.5, "5 % of clients below": 0.05, "1 % of clients below": 0.01}
    of_instance = f"avg by (client_instance_id) ({selected(average)})"
    expressions = {name: f"quantile({share:g}, {of_instance})" for name, share in shares.items()}
    if low:
        expressions["minimum"] = f"min({selected(average)})"
    else:
        expressions["maximum"] = f"max({selected(maximum or average)})"
    return _lines(
        title,
        f"`{metric.name}`: {metric.description} Sent by {', '.join(metric.clients)}.",
        unit_of(metric)[0],
        expressions,
        low=low,
    )


def _of_instances(title: str, name: str) -> Panel:
    """Build a line for each instance, and the median of all clients of its software."""
    metric = standard(name)
    unit, factor = unit_of(metric)
    peers = f'{series(name)}{{cluster_id=~"$cluster"}}'
    own = selected(name)
    if factor != 1.0 or name.endswith(".total"):
        scale = "" if factor == 1.0 else f"{factor:g} * "
        own, peers = f"{scale}rate({own}[{WINDOW}])", f"{scale}rate({peers}[{WINDOW}])"
        combine = "sum"
    else:
        combine = "min" if name == _IDLE else "max"
    by = "client_instance_id, client_software_name"
    median = f"quantile by (client_software_name) (0.5, {combine} by ({by}) ({peers}))"
    return _lines(
        title,
        f"`{metric.name}`: {metric.description} Sent by {', '.join(metric.clients)}.",
        unit,
        {
            "{{client_instance_id}}": f"topk({_TOP}, {combine} by (client_instance_id) ({own}))",
            "median of {{client_software_name}}": (
                f"{median} and on (client_software_name) group by (client_software_name) ({selected(name)})"
            ),
        },
        width=8,
        lag=name == _LAG,
    )
