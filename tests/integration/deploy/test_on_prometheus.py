"""What the dashboards on Prometheus alone show of a fleet whose clients' doings are known.

Prometheus is real and evaluates the recording rules. The series are named as the plugin
`prometheus` names them, which its own tests compare with Prometheus's OTLP endpoint. Clients push
every five minutes, so counters grow in steps.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import yaml

from deploy.dashboards.series import series
from plugins.prometheus.config import RemoteWriteConfig
from plugins.prometheus.lines import LabelSet
from plugins.prometheus.messages import Sample, number_sample, time_field
from plugins.prometheus.names import MetricName, MetricType
from plugins.prometheus.remote_write import RemoteWriter
from tests.testbed.clicks import clicks, link_of
from tests.testbed.dashboard_queries import CHART, DASHBOARDS
from tests.testbed.grafana_sql import TimeRange, built_in, substitute
from tests.testbed.process import wait_until
from tests.testbed.prometheus import Prometheus

BOARDS: Final = tuple(name for name in DASHBOARDS if name.startswith("prometheus-"))
MINUTES: Final = 60
SCRAPE_S: Final = 15
INTERVAL_S: Final = 300
#: Rules are evaluated at the time of the test, so samples go on after the end.
AFTER_S: Final = 420
FETCH: Final = "consumer.fetch.manager"
COORDINATOR: Final = "consumer.coordinator"
CONSUMED: Final = f"{FETCH}.records.consumed.total"
REBALANCES: Final = f"{COORDINATOR}.rebalance.total"
LATENCY: Final = "node.request.latency.avg"
RULES: Final = yaml.safe_load((CHART / "alerts" / "prometheus-recording-rules.yaml").read_text())

LOGS: Final = "https://logs.example.com/?q=${KAFKA_CLIENT_ID}&instance=${KAFKA_CLIENT_INSTANCE_ID}"


@cache
def end_s() -> float:
    """Return the end of the range, which is when it is first asked for.

    Tests are collected long before they run.
    """
    return time.time() // 60 * 60


def window() -> TimeRange:
    """Return the range of the dashboards."""
    end = datetime.fromtimestamp(end_s(), UTC)
    return TimeRange(start=end - timedelta(minutes=MINUTES), end=end)


#: Labels of a metric's series beside its client's.
More = tuple[tuple[str, str], ...]
#: The total after a number of pushes.
Total = Callable[[int], float]


def steady(per_second: float) -> Total:
    return lambda pushes: per_second * INTERVAL_S * pushes


def once_at(*pushes_with: int, each: int = 1) -> Total:
    """So many events before each of some pushes, which are counted from the first sample on."""
    return lambda pushes: float(sum(each for item in pushes_with if pushes >= item))


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What a client does: totals after each push, and gauges, by metric and further labels."""

    name: str
    late: int
    totals: Mapping[tuple[str, More], Total] = field(default_factory=dict)
    gauges: Mapping[tuple[str, More], float] = field(default_factory=dict)
    group: str = ""
    version: str = "4.4.0"

    def labels(self, more: More) -> LabelSet:
        labels = {
            "job": "kafka_clients",
            "instance": f"instance-{self.name}",
            "client_instance_id": f"instance-{self.name}",
            "client_id": self.name,
            "client_software_name": "apache-kafka-java",
            "client_software_version": self.version,
            "cluster_id": "c1",
            "principal": "User:app",
            **dict(more),
        } | ({"group_id": self.group} if self.group else {})
        return LabelSet(tuple(sorted(labels.items())))


def by_node(role: str, *latencies: float) -> dict[tuple[str, More], float]:
    return {
        (f"{role}.{LATENCY}", (("node_id", str(node)),)): value
        for node, value in enumerate(latencies, start=1)
    }


def producer(**gauges: float) -> dict[tuple[str, More], float]:
    found = {"producer.node.request.latency.max": 20.0, "producer.produce.throttle.time.max": 0.0} | gauges
    return {(name, ()): value for name, value in found.items()} | by_node("producer", 4, 6, 50)


def consumer(**gauges: float) -> dict[tuple[str, More], float]:
    found = {
        f"{FETCH}.records.lag.max": 10.0,
        f"{FETCH}.fetch.throttle.time.max": 0.0,
        "consumer.poll.idle.ratio.avg": 0.5,
        "consumer.node.request.latency.max": 500.0,
        f"{COORDINATOR}.assigned.partitions": 3.0,
    } | gauges
    lag = found[f"{FETCH}.records.lag.max"]
    partition = (("partition", "0"), ("topic", "orders"))
    return (
        {(name, ()): value for name, value in found.items()}
        | {(f"{FETCH}.records.lag.max", partition): lag}
        | by_node("consumer", 100, 100, 300)
    )


def sends(per_second: float, failed: float) -> dict[tuple[str, More], Total]:
    topic = (("topic", "orders"),)
    return {
        ("producer.record.send.total", ()): steady(per_second),
        ("producer.topic.record.send.total", topic): steady(per_second),
        ("producer.record.error.total", ()): steady(failed),
        ("producer.topic.record.error.total", topic): steady(failed),
        ("producer.connection.creation.total", ()): steady(0),
    }


def reads(per_second: float, rebalances: Total, opened: float = 0) -> dict[tuple[str, More], Total]:
    """A Java consumer counts its records once for itself, and once for each topic."""
    return {
        (CONSUMED, ()): steady(per_second),
        (CONSUMED, (("topic", "orders"),)): steady(per_second * 0.75),
        (CONSUMED, (("topic", "clicks"),)): steady(per_second * 0.25),
        (REBALANCES, ()): rebalances,
        ("consumer.connection.creation.total", ()): steady(opened),
    }


DOINGS: Final = (
    Doing(name="steady", late=20, totals=sends(20, 0), gauges=producer()),
    Doing(
        name="throttled",
        late=130,
        totals=sends(40, 0.01),
        gauges=producer(**{"producer.produce.throttle.time.max": 1500.0}),
        version="3.9.1",
    ),
    Doing(
        name="keeps-up",
        late=70,
        totals=reads(50, once_at()),
        gauges=consumer(),
        group="well",
        version="3.10.2",
    ),
    Doing(
        name="lags",
        late=190,
        # A storm before pushes 4 and 5, and one rebalance in the last half hour.
        totals=reads(10, lambda pushes: once_at(4, 5, each=4)(pushes) + once_at(9)(pushes)),
        gauges=consumer(**{f"{FETCH}.records.lag.max": 50_000.0}),
        group="behind",
    ),
    Doing(
        name="poll-bound",
        late=250,
        totals=reads(5, once_at(), opened=0.1),
        gauges=consumer(**{"consumer.poll.idle.ratio.avg": 0.02}),
        group="bound",
    ),
)


def samples() -> Iterator[Sample]:
    """A sample of each series at each scrape; counters have what was pushed until then."""
    unit = MetricName(name="", type=MetricType.GAUGE, unit="")
    for after_s in range(0, 60 * MINUTES + AFTER_S + 1, SCRAPE_S):
        at = time_field(round(1000 * (end_s() - 60 * MINUTES + after_s)))
        for doing in DOINGS:
            pushes = (after_s + INTERVAL_S - doing.late) // INTERVAL_S
            for (name, more), total in doing.totals.items():
                yield (series(name), doing.labels(more), unit, ""), number_sample(total(pushes), at)
            for (name, more), value in doing.gauges.items():
                yield (series(name), doing.labels(more), unit, ""), number_sample(value, at)


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of Prometheus's API."""
    folder = tmp_path_factory.mktemp("prometheus")
    groups = [{**group, "interval": "1s"} for group in RULES["groups"]]
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    config = folder / "prometheus.yaml"
    config.write_text(yaml.safe_dump({"rule_files": [str(folder / "rules.yaml")]}))
    with Prometheus(config=config) as prometheus:
        writer = RemoteWriter(RemoteWriteConfig(url=prometheus.write_url, version="1.0"))
        writer.open()
        assert writer.write(list(samples())) is None
        writer.close()
        with httpx.Client(base_url=prometheus.url, trust_env=False, timeout=120) as http:
            yield http


@pytest.fixture(scope="module")
def recorded_s(http: httpx.Client) -> float:
    """A time of which all recorded series are, and at which rates count all pushes.

    A rate over 15 minutes begins at its first sample. If that one has a push already, only two of
    three pushes are counted.
    """
    with_push = {-(-doing.late // SCRAPE_S) * SCRAPE_S % INTERVAL_S for doing in DOINGS}
    begins = [
        end_s() + after_s
        for after_s in range(0, AFTER_S, SCRAPE_S)
        if (after_s + SCRAPE_S) % INTERVAL_S not in with_push
    ]
    found: list[float] = []

    def is_recorded() -> bool:
        found.extend(begin for begin in begins if all(_recorded_since(http, begin)))
        return bool(found)

    wait_until(is_recorded, timeout_s=120, what="recorded series", every_s=1)
    return found[0] + SCRAPE_S - 1


def _recorded_since(http: httpx.Client, begin_s: float) -> Iterator[bool]:
    """Yield for each group whether it was evaluated before the scrape after ``begin_s``."""
    for group in RULES["groups"]:
        query = f"timestamp({group['rules'][-1]['record']})"
        parameters = {"query": query, "time": str(begin_s + SCRAPE_S - 1)}
        result = http.get("/api/v1/query", params=parameters).json()["data"]["result"]
        yield bool(result) and all(float(item["value"][1]) >= begin_s for item in result)


def expanded(
    expression: str, step_s: int = INTERVAL_S, chosen: Mapping[str, str] = MappingProxyType({})
) -> str:
    """The expression with rates over 30 minutes; variables without a choice are at All."""
    own = built_in(window(), step_s) | {"window": "30m", "logs": LOGS, "traces": ""} | dict(chosen)
    # Grafana leaves $1 as it is: no variable has that name.
    text = substitute(expression, lambda name, _: own.get(name, None if name.isdigit() else ".*"))
    assert "$" not in re.sub(r"\$\{KAFKA_|\$\d", "", text), text
    return text


def asked(
    http: httpx.Client,
    expression: str,
    at_s: float | None = None,
    chosen: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    return answered(http, "query", expression, {"time": str(end_s() if at_s is None else at_s)}, chosen)


def answered(
    http: httpx.Client,
    kind: str,
    expression: str,
    parameters: Mapping[str, str],
    chosen: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    query = expanded(expression, chosen=chosen or {})
    answer = http.get(f"/api/v1/{kind}", params={"query": query, **parameters})
    assert answer.status_code == httpx.codes.OK, (expression, answer.text)
    found: list[dict[str, Any]] = answer.json()["data"]["result"]
    return found


def panel(board: str, title: str) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = (
        dashboard
        for dashboard in DASHBOARDS[board]["panels"]
        if dashboard["title"] == title and "targets" in dashboard
    )
    return found


def shown(
    http: httpx.Client, board: str, title: str, label: str = "", at_s: float | None = None
) -> list[tuple[str, float]]:
    """The value of each series of a panel's queries, with one of its labels."""
    return [
        (item["metric"].get(label, ""), float(item["value"][1]))
        for target in panel(board, title)["targets"]
        for item in asked(http, target["expr"], at_s)
    ]


def table(
    http: httpx.Client, board: str, title: str, chosen: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """The rows of a table, as Grafana merges and orders them."""
    one = panel(board, title)
    steps = [step["id"] for step in one["transformations"]]
    assert steps[:-1] in ([["merge"]] if len(one["targets"]) > 1 else [[], ["sortBy"]])
    assert steps[-1] == "organize"
    headings = {
        override["matcher"]["options"]: prop["value"]
        for override in one["fieldConfig"]["overrides"]
        for prop in override["properties"]
        if prop["id"] == "displayName"
    }
    rows: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for target in one["targets"]:
        value = f"Value #{target['refId']}" if len(one["targets"]) > 1 else "Value"
        for found in asked(http, target["expr"], chosen=chosen):
            labels = tuple(sorted(found["metric"].items()))
            row = rows.setdefault(labels, dict(found["metric"]))
            row[headings[value]] = float(found["value"][1])
    if steps[0] == "sortBy":
        (by,) = one["transformations"][0]["options"]["sort"]
        assert not by["desc"]
        return sorted(rows.values(), key=lambda row: str(row[by["field"]]))
    for order in one["options"].get("sortBy", ()):
        (name,) = {order["displayName"], *(key for key, words in headings.items()
                                           if words == order["displayName"])} & {
            key for row in rows.values() for key in row
        }  # fmt: skip
        known = sorted((row for row in rows.values() if name in row), key=lambda row: row[name])
        known = known[::-1] if order["desc"] else known
        return [*known, *(row for row in rows.values() if name not in row)]
    return list(rows.values())


def lines(http: httpx.Client, board: str, title: str, label: str) -> dict[str, list[float]]:
    """The values of a panel over the range, by label."""
    step_s = INTERVAL_S
    start_s = window().start.timestamp() + step_s
    parameters = {"start": str(start_s), "end": str(end_s()), "step": str(step_s)}
    (target,) = panel(board, title)["targets"]
    return {
        item["metric"][label]: [float(value) for _, value in item["values"]]
        for item in answered(http, "query_range", target["expr"], parameters)
    }


@pytest.mark.parametrize("board", BOARDS)
def test_every_query_is_answered_and_most_find_something(
    http: httpx.Client, recorded_s: float, board: str
) -> None:
    empty = {
        dashboard["title"]
        for dashboard in DASHBOARDS[board]["panels"]
        for target in dashboard.get("targets", ())
        if not asked(http, target["expr"], recorded_s)
    }
    # These clients do not send all metrics.
    missing = {
        "Bytes sent", "Retries", "Wait before sending", "Time between polls", "Fetch latency",
        "Commit latency", "Connections opened", "Produce latency", "Topics", "Groups",
    }  # fmt: skip
    # Quantiles are of many clients.
    assert empty <= missing | {"Throttling", "Poll idle ratio", "Request latency"}


def test_versions_are_ordered_by_their_numbers(http: httpx.Client) -> None:
    shown = [row["client_software_version"] for row in table(http, "prometheus-fleet", "Versions now")]
    assert shown == ["3.9.1", "3.10.2", "4.4.0"]
    (first, *_) = table(http, "prometheus-one-client", "Instances")
    assert first["client_id"] == "throttled"


def test_numbers_name_how_many_clients_are_in_trouble(http: httpx.Client) -> None:
    board = "prometheus-fleet"
    found = {
        title: shown(http, board, title)[0][1]
        for title in (
            "Live clients", "Client ids", "Versions", "Throttled clients", "Groups behind",
            "Poll-bound groups",
        )
    }  # fmt: skip
    assert found == {
        "Live clients": 5,
        "Client ids": 5,
        "Versions": 3,
        "Throttled clients": 1,
        "Groups behind": 1,
        "Poll-bound groups": 1,
    }


def test_the_worst_come_first_and_lead_to_their_page(http: httpx.Client) -> None:
    board = "prometheus-fleet"
    assert shown(http, board, "Lag by group", "group_id")[0] == ("behind", 50_000)
    assert shown(http, board, "Throttling", "client_id") == [("throttled", 1500)]
    assert shown(http, board, "Poll idle ratio, least", "client_id")[0] == ("poll-bound", 0.02)
    for title, label, expected in (
        ("Failed records an hour", "client_id", ("throttled", 36)),
        ("Rebalances an hour", "group_id", ("behind", 2)),
    ):
        ((name, value),) = shown(http, board, title, label)
        assert name == expected[0]
        assert value == pytest.approx(expected[1], rel=0.01)
    links = str(panel(board, "Throttling")["fieldConfig"]["overrides"])
    assert "/d/kct-prom-one-client?" in links
    assert "var-client_id=${__data.fields.client_id:percentencode}" in links


def test_rates_are_those_of_the_clients(http: httpx.Client) -> None:
    ((_, sent),) = shown(http, "prometheus-producers", "Records sent", "client_software_name")
    assert sent == pytest.approx(60, rel=0.01)
    consumed = dict(shown(http, "prometheus-consumers", "Records consumed by group", "group_id"))
    assert consumed == {
        "well": pytest.approx(50, rel=0.01),
        "behind": pytest.approx(10, rel=0.01),
        "bound": pytest.approx(5, rel=0.01),
    }


def test_groups_are_shown_with_their_time_to_catch_up(http: httpx.Client) -> None:
    rows = table(http, "prometheus-topics-and-groups", "Groups")
    assert rows[0]["group_id"] == "behind"
    groups = {row["group_id"]: row for row in rows}
    behind = groups["behind"]
    assert behind == {
        "group_id": "behind",
        "Largest lag now": 50_000,
        # It stays as it is, so there is no time in which it is gone.
        "Lag grows by": 0,
        "Poll idle, least": 0.5,
        "Rebalances": pytest.approx(2, rel=0.01),
        "Live members": 1,
        "Partitions": 3,
        "Records": pytest.approx(10, rel=0.01),
    }
    assert groups["bound"]["Poll idle, least"] == 0.02
    assert groups["well"]["Records"] == pytest.approx(50, rel=0.01)
    assert groups.keys() == {"behind", "bound", "well"}


def test_members_lead_to_their_page_and_the_one_behind_comes_first(http: httpx.Client) -> None:
    rows = table(http, "prometheus-topics-and-groups", "Members")
    assert rows[0]["client_id"] == "lags"
    assert {row["client_id"]: row["Poll idle"] for row in rows} == {
        "lags": 0.5, "keeps-up": 0.5, "poll-bound": 0.02,
    }  # fmt: skip
    links = str(panel("prometheus-topics-and-groups", "Members")["fieldConfig"]["overrides"])
    assert "/d/kct-prom-one-client?" in links


def test_topics_count_each_record_once(http: httpx.Client) -> None:
    topics = {row["topic"]: row for row in table(http, "prometheus-topics-and-groups", "Topics")}
    assert topics["orders"]["Sent"] == pytest.approx(60, rel=0.01)
    assert topics["orders"]["Consumed"] == pytest.approx(65 * 0.75, rel=0.01)
    assert topics["clicks"]["Consumed"] == pytest.approx(65 * 0.25, rel=0.01)
    assert topics["orders"]["Failed"] == pytest.approx(36, rel=0.01)
    assert topics["orders"]["Largest lag now"] == 50_000


def test_recorded_lines_show_what_groups_and_topics_do(http: httpx.Client, recorded_s: float) -> None:
    """Over 15 minutes Prometheus extrapolates by up to one of 60 scrapes."""

    def recorded(title: str, label: str) -> dict[str, float]:
        return dict(shown(http, "prometheus-topics-and-groups", title, label, recorded_s))

    assert recorded("Records lag by group", "group_id") == {"well": 10, "behind": 50_000, "bound": 10}
    assert recorded("Records consumed by group", "group_id") == {
        "well": pytest.approx(50, rel=0.02),
        "behind": pytest.approx(10, rel=0.02),
        "bound": pytest.approx(5, rel=0.02),
    }
    assert recorded("Records sent by topic", "topic") == {"orders": pytest.approx(60, rel=0.02)}
    assert recorded("Records consumed by topic", "topic") == {
        "orders": pytest.approx(65 * 0.75, rel=0.02),
        "clicks": pytest.approx(65 * 0.25, rel=0.02),
    }
    assert recorded("Records that failed by topic", "topic") == {"orders": pytest.approx(36, rel=0.02)}
    assert recorded("Records lag by topic", "topic") == {"orders": 50_000}


def test_rebalances_are_counted_in_the_step_in_which_they_were_pushed(http: httpx.Client) -> None:
    found = lines(http, "prometheus-topics-and-groups", "Rebalances of each member", "client_id")
    assert found["lags"] == [0, 0, 0, 4, 4, 0, 0, 0, 1, 0, 0, 0]
    assert found["keeps-up"] == found["poll-bound"] == [0] * 12


def test_the_heatmap_has_the_latency_of_each_broker(http: httpx.Client) -> None:
    for board, expected in (
        ("prometheus-producers", {"1": 4, "2": 6, "3": 50}),
        ("prometheus-consumers", {"1": 100, "2": 100, "3": 300}),
    ):
        found = lines(http, board, "Request latency by broker", "node_id")
        assert {node: set(values) for node, values in found.items()} == {
            node: {value} for node, value in expected.items()
        }


def test_one_client_is_beside_the_middle_half_of_its_peers(http: httpx.Client, recorded_s: float) -> None:
    """Three consumers lag by 10, 10 and 50,000 records."""
    found = shown(http, "prometheus-one-client", "Records lag", "client_instance_id", recorded_s)
    instances = {name: value for name, value in found if name}
    assert instances == {"instance-keeps-up": 10, "instance-lags": 50_000, "instance-poll-bound": 10}
    assert [value for name, value in found if not name] == [10, 10, pytest.approx(25_005)]
    sent = shown(http, "prometheus-one-client", "Records sent", "client_instance_id", recorded_s)
    quartiles = [value for name, value in sent if not name]
    assert quartiles == [pytest.approx(value, rel=0.02) for value in (25, 30, 35)]


def test_instances_lead_to_their_logs_where_an_address_is_set(http: httpx.Client) -> None:
    (target,) = panel("prometheus-one-client", "Logs and traces")["targets"]
    found = {item["metric"]["client_id"]: item["metric"] for item in asked(http, target["expr"])}
    assert found.keys() == {doing.name for doing in DOINGS}
    assert {item["what"] for item in found.values()} == {"Logs"}
    assert found["lags"]["url"] == "https://logs.example.com/?q=lags&instance=instance-lags"


#: Who is wrong: the label of the last panel's rows, and its text.
CULPRITS: Final = {
    "the throttled client": ("client_instance_id", "instance-throttled"),
    "the lagging group": ("client_instance_id", "instance-lags"),
    "the poll-bound consumer": ("client_instance_id", "instance-poll-bound"),
    "the outdated library": ("client_id", "throttled"),
    "the client that reconnects": ("client_instance_id", "instance-poll-bound"),
}


@pytest.mark.parametrize("who", CULPRITS)
def test_the_documented_clicks_end_at_the_culprit(http: httpx.Client, recorded_s: float, who: str) -> None:
    steps = clicks("On Prometheus alone")[who]
    boards = {DASHBOARDS[name]["title"].partition(": ")[2]: name for name in BOARDS}
    chosen: dict[str, str] = {}
    opened = "prometheus-fleet"
    for step in steps:
        assert boards[step.dashboard] == opened
        row = table(http, opened, step.panel, chosen)[0]
        address = urlsplit(link_of(panel(opened, step.panel), step.column, row))
        opened = boards[step.leads_to]
        assert address.path == f"/d/{DASHBOARDS[opened]['uid']}"
        chosen = {
            key.removeprefix("var-"): value
            for key, (value,) in parse_qs(address.query).items()
            if key.startswith("var-")
        }
        assert chosen.keys() <= {model["name"] for model in DASHBOARDS[opened]["templating"]["list"]}
    label, text = CULPRITS[who]
    last = panel(opened, steps[-1].shows)
    rows = (
        table(http, opened, steps[-1].shows, chosen)
        if last["type"] == "table"
        else [item["metric"] for item in asked(http, last["targets"][0]["expr"], recorded_s, chosen)]
    )
    assert rows[0][label] == text
