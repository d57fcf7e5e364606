"""Panels and variables of the dashboards on Prometheus alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from grafana_foundation_sdk.builders.dashboard import CustomVariable, QueryVariable
from grafana_foundation_sdk.models import dashboard as models

from deploy.dashboards.grafana import Dashboard
from deploy.dashboards.members import MEMBERS, REBALANCE_COLOURS, REBALANCED
from deploy.dashboards.metrics import MANY, WAITS, standard, waits
from deploy.dashboards.panels import NOTHING_FOUND, Panel, cells, column, lines, number, rows, states
from deploy.dashboards.queries import PROMETHEUS, promql, promql_by_legend
from deploy.dashboards.ranked import LAG, LAG_WARNINGS
from deploy.dashboards.recording_rules import RECORDED, Recorded, peers
from deploy.dashboards.series import EVERY_CLIENT, SELECTED, WINDOW, of_instance, rate, selected, series
from deploy.dashboards.units import unit_of

FETCH: Final = "consumer.fetch.manager"
COORDINATOR: Final = "consumer.coordinator"
IDLE: Final = "consumer.poll.idle.ratio.avg"
BY_CLIENT: Final = "client_id, client_software_name"
ONE_CLIENT: Final = "kct-prom-one-client"
RATE_OVER: Final = f"Over the time of *Rate over*, `{WINDOW}`: it should have several push intervals."
#: The heading of a column of lag.
LAG_NOW: Final = "Largest lag now"
#: How many topics, groups or clients have a line.
TOP: Final = 10
_ROLES: Final = ("producer", "consumer")
_NO_RULES: Final = "no data: Prometheus needs prometheus-recording-rules.yaml"


def board(uid: str, title: str, description: str) -> Dashboard:
    """Build a dashboard without panels, with the variables that all of them share."""
    built = Dashboard(uid, f"Kafka clients on Prometheus: {title}", description, start="now-1h")
    anyone = "|".join(
        series(f"{role}.{name}")
        for role in _ROLES
        for name in ("connection.creation.total", "node.request.latency.avg")
    )
    built.sources(postgres=False, prometheus=True)
    above: list[str] = []
    for name, label, of in (
        ("cluster", "Cluster", "cluster_id"),
        ("software", "Software", "client_software_name"),
        ("principal", "Principal", "principal"),
        ("group", "Group", "group_id"),
        ("client_id", "Client id", "client_id"),
    ):
        matchers = ",".join([f'__name__=~"{anyone}"', *above])
        built.variables(
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
    return built.variables(
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


def instances(by: str) -> str:
    """Return the number of client instances, by some labels."""
    labels = ", ".join(filter(None, (by, "client_instance_id")))
    every = f"group by ({labels}) ({EVERY_CLIENT})"
    return f"count by ({by}) ({every})" if by else f"count({every})"


#: A label that orders rows by software, and by the numbers of its versions.
_ORDER: Final = "order"


def with_order(expression: str) -> str:
    """Return an expression by software and version with the label of :func:`oldest_first`.

    Prometheus and Grafana sort versions as texts, so that 10 comes before 9. So the label has three
    numbers of four digits each.
    """
    version = "client_software_version"
    parts = r"v?(\\d+)(?:\\.(\\d+))?(?:\\.(\\d+))?.*"
    padded = f'label_replace({expression}, "{_ORDER}", "0000$1.0000$2.0000$3", "{version}", "{parts}")'
    digits = r"\\.".join([r"\\d*(\\d{4})"] * 3)
    numbers = f'label_replace({padded}, "{_ORDER}", "$1.$2.$3", "{_ORDER}", "{digits}")'
    return f'label_join({numbers}, "{_ORDER}", " ", "client_software_name", "{_ORDER}")'


def oldest_first() -> list[models.DataTransformerConfig]:
    """Return transformations of a query of :func:`with_order`, which leave out its label."""
    # Grafana can't sort a table by a hidden column.
    sort = models.DataTransformerConfig(id_val="sortBy", options={"sort": [{"field": _ORDER, "desc": False}]})
    return [sort, without_time(also=_ORDER)]


def most_of_members(expression: str) -> str:
    """Return the sum of each group's client id with the most."""
    return f"max by (group_id) (sum by (group_id, client_id) ({expression}))"


def link_to(uid: str, variable: str, label: str) -> list[dict[str, object]]:
    """Return the link from a table's cell to a dashboard that selects the cell's label."""
    url = (
        f"/d/{uid}?${{__url_time_range}}&${{prometheus:queryparam}}&${{cluster:queryparam}}"
        f"&var-{variable}=${{__data.fields.{label}:percentencode}}"
    )
    return [{"title": "Show this one", "url": url, "targetBlank": False}]


def now(title: str, description: str, expression: str, *, warn: bool = False) -> Panel:
    """Build a number of the present; no series means zero, if any client pushes."""
    query = promql(f"{expression} or on () 0 * count({EVERY_CLIENT})", "", instant=True)
    return number(
        title, description, "short", query, source=PROMETHEUS, warnings={1: "orange"} if warn else None,
        nothing="no client pushes",
    )  # fmt: skip


def worst(
    title: str,
    name: str,
    expression: str,
    by: Literal["client_id", "group_id"] = "client_id",
    *,
    lowest: bool = False,
    advice: str = "",
) -> Panel:
    """Build the table of the ten client ids or groups with the worst values, with links."""
    metric = standard(name)
    best = "bottomk" if lowest else "topk"
    sort = "sort" if lowest else "sort_desc"
    links = (
        link_to(ONE_CLIENT, "client_id", by) if by == "client_id" else
        link_to("kct-prom-topics-and-groups", "group", by)
    )  # fmt: skip
    return rows(
        title,
        f"`{metric.name}`: {metric.description} {advice}".rstrip(),
        [promql(f"{sort}({best}({TOP}, {expression}))", "", instant=True)],
        {
            "client_id": column("Client id", links=links if by == "client_id" else ()),
            "group_id": column("Group", links=links if by == "group_id" else ()),
            "client_software_name": column("Software"),
            "Value": column(
                "Value", unit_of(metric)[0], width=140, warnings=LAG_WARNINGS if name == LAG else None
            ),
        },
        width=8,
        height=8,
        source=PROMETHEUS,
        transformations=[without_time()],
        nothing=NOTHING_FOUND,
    )


def merged(
    title: str,
    description: str,
    by: Mapping[str, list[models.DynamicConfigValue]],
    values: Mapping[str, tuple[str, str | None]],
) -> Panel:
    """Build a table of several instant queries with the same labels, one column for each.

    ``by`` has the labels' columns. ``values`` has an expression and Grafana's unit by heading, or
    no unit for a query whose labels alone are shown. The first column with a unit orders the rows.
    """
    queries = []
    shown = dict(by)
    for index, (heading, (expression, unit)) in enumerate(values.items()):
        ref_id = chr(ord("A") + index)
        queries.append(promql(expression, "", ref_id=ref_id, instant=True))
        warnings = LAG_WARNINGS if heading == LAG_NOW else None
        shown[f"Value #{ref_id}"] = column(heading, unit, hidden=unit is None, warnings=warnings)
    order = {label: index for index, label in enumerate(shown)}
    return rows(
        title,
        description,
        queries,
        shown,
        source=PROMETHEUS,
        transformations=[models.DataTransformerConfig(id_val="merge", options={}), without_time(order)],
        order=(next(heading for heading, (_, unit) in values.items() if unit is not None), "descending"),
    )


def over_time(
    title: str,
    description: str,
    unit: str,
    expressions: Mapping[str, str],
    *,
    stacked: bool = False,
    width: int = 12,
    lag: bool = False,
    low: bool = False,
    band: tuple[str, str] | None = None,
    nothing: str = "no data",
) -> Panel:
    """Build lines of expressions by legend; ``low``: their small values are the problem."""
    queries = promql_by_legend(expressions)
    return lines(
        title, description, unit, queries, source=PROMETHEUS, stacked=stacked, width=width,
        warnings=LAG_WARNINGS if lag else None, smallest_first=low, band=band, nothing=nothing,
    )  # fmt: skip


def recorded(title: str, one: Recorded, by: str, advice: str = "", *, largest: bool = False) -> Panel:
    """Build lines of the ten groups or topics with the most of a recorded series."""
    unit, factor = unit_of(one.metric)
    combine = "max" if largest else "sum"
    scale = "" if factor == 1.0 else f"{factor:g} * "
    return over_time(
        title,
        f"`{one.metric.name}`, recorded as `{one.name}`. {advice} The {TOP} with the most.",
        unit,
        {f"{{{{{by}}}}}": f"topk({TOP}, {scale}{combine} by ({by}) ({one.name}{{{RECORDED}}}))"},
        lag=one.metric is standard(LAG),
        nothing=_NO_RULES,
    )


def total(title: str, name: str) -> Panel:
    """Build the rate of a counter over time by client software."""
    metric = standard(name)
    unit, factor = unit_of(metric)
    scale = "" if factor == 1.0 else f"{factor:g} * "
    return over_time(
        title,
        f"`{metric.name}`: {metric.description} {RATE_OVER} Sent by {', '.join(metric.clients)}.",
        unit,
        {"{{client_software_name}}": f"{scale}sum by (client_software_name) ({rate(name)})"},
        stacked=True,
    )


def spread(title: str, average: str, maximum: str | None, *, low: bool = False) -> Panel:
    """Build quantiles over client instances of an average; ``low``: those of small values."""
    metric = standard(average)
    shares = {"median client": 0.5, "95 % of clients below": 0.95, "99 % of clients below": 0.99}
    if low:
        shares = {"median client": 0.5, "5 % of clients below": 0.05, "1 % of clients below": 0.01}
    of_each = f"avg by (client_instance_id) ({selected(average)})"
    # A quantile of a few clients is one of them.
    are_many = f"and on () (count({of_each}) >= {MANY})"
    expressions = {name: f"quantile({share:g}, {of_each}) {are_many}" for name, share in shares.items()}
    expressions["mean"] = f"avg({of_each})"
    if low:
        expressions["minimum"] = f"min({selected(average)})"
    else:
        expressions["maximum"] = f"max({selected(maximum or average)})"
    return over_time(
        title,
        f"`{metric.name}`: {metric.description} Sent by {', '.join(metric.clients)}.{waits(average)} "
        f"Quantiles of at least {MANY} clients.",
        unit_of(metric)[0],
        expressions,
        low=low,
    )


def of_instances(title: str, name: str) -> Panel:
    """Build a line for each instance, beside the median and the middle half of its peers.

    Peers are the cluster's clients of the same software.
    """
    metric = standard(name)
    own = of_instance(name, selected(name), WINDOW)
    legends = {"p25": "25 % of peers below", "p50": "median of peers", "p75": "75 % of peers below"}
    expressions = {"{{client_instance_id}}": f"topk({TOP}, {own})"}
    for word, peer in peers(name).items():
        mine = f"group by (cluster_id, client_software_name) ({selected(name)})"
        expressions[legends[word]] = f"avg({peer.name} and on (cluster_id, client_software_name) {mine})"
    return over_time(
        title,
        f"`{metric.name}`: {metric.description} Sent by {', '.join(metric.clients)}. Peers are all "
        f"clients of the same software and cluster; their lines need the recording rules.{waits(name)}",
        unit_of(metric)[0],
        expressions,
        width=8,
        lag=name == LAG,
        band=(legends["p25"], legends["p75"]),
    )


def by_broker(title: str, roles: Sequence[str] = _ROLES, *, width: int = 12) -> Panel:
    """Build the heatmap of the mean request latency by broker."""
    names = "|".join(series(f"{role}.node.request.latency.avg") for role in roles)
    return cells(
        title,
        "`node.request.latency.avg` by broker: the mean over clients. A red row is a slow broker, a red "
        "column is a slow time of all brokers." + (f" Of consumers: {WAITS}" if "consumer" in roles else ""),
        "ms",
        [promql(f'avg by (node_id) ({{__name__=~"{names}",{SELECTED}}})', "broker {{node_id}}")],
        width=width,
        source=PROMETHEUS,
    )


def rebalances_of_members(title: str, *, width: int = 12) -> Panel:
    """Build the timeline of rebalances, of the members with the most of them."""
    name = f"{COORDINATOR}.rebalance.total"
    by = "client_id, client_instance_id"
    most = f"topk({MEMBERS}, sum by (client_instance_id) (increase({selected(name)}[$__range] @ end())))"
    counted = f"round(sum by ({by}) (increase({selected(name)}[$__rate_interval])))"
    return states(
        title,
        f"`{standard(name).name}`: rebalances in each step, of the {MEMBERS} members with the most. "
        f"{REBALANCED}",
        [
            promql(
                f"{counted} and on (client_instance_id) {most}",
                "{{client_id}} {{client_instance_id}}",
            )
        ],
        REBALANCE_COLOURS,
        width=width,
        source=PROMETHEUS,
    )


def without_time(
    order: Mapping[str, int] | None = None, *, also: str | None = None
) -> models.DataTransformerConfig:
    """Return the transformation that leaves out the time and puts columns in an order.

    ``also`` is left out too.
    """
    options: dict[str, object] = {"excludeByName": {"Time": True} | ({also: True} if also else {})}
    if order:
        options["indexByName"] = dict(order)
    return models.DataTransformerConfig(id_val="organize", options=options)
