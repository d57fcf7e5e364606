"""The dashboard *Traffic and owners*: who moves what, from the receivers' own metrics.

It shows all clients, also those that push no metrics.
"""

from __future__ import annotations

from typing import Final

from deploy.dashboards.grafana import Dashboard
from deploy.dashboards.panels import Panel, column, rows
from deploy.dashboards.prometheus_panels import merged, without_time
from deploy.dashboards.queries import PROMETHEUS, promql
from deploy.dashboards.receiver_panels import WHERE, ZERO, graph, none, now, receivers

#: Receivers add their counters up once a minute.
_OVER: Final = "5m"
_TOP: Final = 10
_ROWS: Final = 100
_UNUSED_S: Final = 30 * 86_400
_LAST_USED: Final = f"max by (principal) (kafka_telemetry_principal_last_used_timestamp_seconds{{{WHERE}}})"


def traffic() -> Dashboard:
    """Build it."""
    board = receivers(
        "kct-traffic",
        "Kafka clients: traffic and owners",
        "What owners and principals move, also those whose clients push no metrics.",
    )
    board.row(
        "Now",
        now("From clients", "Bytes of Kafka's protocol a second.", _rate("from_clients"), unit="binBps"),
        now("To clients", "Bytes of Kafka's protocol a second.", _rate("to_clients"), unit="binBps"),
        now("Requests", "Requests a second.",
             f"sum(rate(kafka_telemetry_traffic_requests_total{{{WHERE}}}[{_OVER}])) or {ZERO}",
             unit="reqps"),
        now("Open connections", "Of clients.", f"sum(kafka_telemetry_connections{{{WHERE}}})"),
        now("Undeclared", "Share of the bytes of clients without an owner, of the last hour.",
             _undeclared(), unit="percentunit", nothing="no owners or no traffic"),
        now("Unused principals", "Principals that were not used for 30 days.",
             f"count({_LAST_USED} < time() - {_UNUSED_S}) or {ZERO}", warnings={1: "orange"}),
    )  # fmt: skip
    board.row("Owners", *_moved("owner", "kafka_telemetry_owner_traffic", "Owner"))
    board.row("Principals", *_moved("principal", "kafka_telemetry_traffic", "Principal"))
    board.row("Credentials", _unused(), _networks())
    return board


def _rate(direction: str) -> str:
    counter = f'kafka_telemetry_traffic_bytes_total{{{WHERE}, direction="{direction}"}}'
    return f"sum(rate({counter}[{_OVER}])) or {ZERO}"


def _undeclared() -> str:
    counter = "kafka_telemetry_owner_traffic_bytes_total"
    undeclared = f'sum(increase({counter}{{{WHERE}, owner="undeclared"}}[1h]))'
    return f"({undeclared} or {ZERO}) / (sum(increase({counter}{{{WHERE}}}[1h])) > 0)"


def _moved(by: str, prefix: str, heading: str) -> list[Panel]:
    """Build lines of the ten with most bytes, and a table of what all moved in the time shown."""
    found = f"`{prefix}_bytes_total`: the ten with most, over {_OVER}."
    panels = [
        graph(f"{words} by {by}", found, "binBps", {
            f"{{{{{by}}}}}": f"topk({_TOP}, {_sum(by, prefix, direction, f'rate(%s[{_OVER}])')})"
            f" or on () {none(by)}"})
        for direction, words in (("from_clients", "From clients"), ("to_clients", "To clients"))
    ]  # fmt: skip
    requests = f"sum by ({by}) (rate({prefix}_requests_total{{{WHERE}}}[{_OVER}]))"
    panels.append(
        graph(f"Requests by {by}", f"`{prefix}_requests_total`: the ten with most.", "reqps", {
            f"{{{{{by}}}}}": f"topk({_TOP}, {requests}) or on () {none(by)}"}),
    )  # fmt: skip
    whole = "increase(%s[$__range])"
    asked = f"sum by ({by}) (increase({prefix}_requests_total{{{WHERE}}}[$__range]))"
    table = merged(
        f"Moved by {by}",
        "In the time shown, by the growth of counters. `GET /v1/usage` has exact days.",
        {by: column(heading)},
        {
            "From clients": (_sum(by, prefix, "from_clients", whole), "bytes"),
            "To clients": (_sum(by, prefix, "to_clients", whole), "bytes"),
            "Requests": (asked, "short"),
        },
    )
    return [*panels, table]


def _sum(by: str, prefix: str, direction: str, of: str) -> str:
    counter = f'{prefix}_bytes_total{{{WHERE}, direction="{direction}"}}'
    return f"sum by ({by}) ({of % counter})"


def _unused() -> Panel:
    return rows(
        "Unused for longest",
        f"When principals were last used: the {_ROWS} that were not for longest.",
        [promql(f"sort(bottomk({_ROWS}, 1000 * {_LAST_USED}))", "", instant=True)],
        {"principal": column("Principal"), "Value": column("Last used", "dateTimeFromNow")},
        width=12,
        source=PROMETHEUS,
        transformations=[without_time()],
    )


def _networks() -> Panel:
    counter = f"kafka_telemetry_principal_new_networks_total{{{WHERE}}}"
    return rows(
        "Used from new networks",
        "Principals by the networks of the time shown from which they had not been used before.",
        # A counter begins with its first event, which increase does not see.
        [
            promql(
                f"sort_desc(sum by (principal) (increase({counter}[$__range])) > 0"
                f" or sum by (principal) ({counter} unless {counter} offset $__range) > 0)",
                "",
                instant=True,
            )
        ],
        {"principal": column("Principal"), "Value": column("Networks", "short")},
        width=12,
        source=PROMETHEUS,
        transformations=[without_time()],
        nothing="none",
    )
