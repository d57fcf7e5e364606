"""What numbers and tables show of a fleet whose clients' doings are known.

The clients are made up. The job, the tables and the queries are real. Each client pushes every five
minutes, at its own time, for four hours.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from pyspark.sql import SparkSession

from spark_streaming.job import Job
from spark_streaming.load import load
from spark_streaming.postgres import Store
from spark_streaming.settings import RetentionSettings
from tests.integration.rollup.pushes import MINUTE_NS, Client, Spooled, Values, otlp, spool
from tests.testbed.dashboard_queries import DASHBOARDS, asked, chosen
from tests.testbed.grafana_sql import TimeRange
from tests.testbed.postgres import Postgres

KAFKA: Final = "org.apache.kafka."
SENT: Final = f"{KAFKA}producer.record.send.total"
SENT_BYTES: Final = f"{KAFKA}producer.outgoing.byte.total"
FAILED: Final = f"{KAFKA}producer.record.error.total"
OPENED: Final = f"{KAFKA}producer.connection.creation.total"
LATENCY: Final = f"{KAFKA}producer.node.request.latency.avg"
LATENCY_MAX: Final = f"{KAFKA}producer.node.request.latency.max"
THROTTLE_MAX: Final = f"{KAFKA}producer.produce.throttle.time.max"
CONSUMED: Final = f"{KAFKA}consumer.fetch.manager.records.consumed.total"
LAG_MAX: Final = f"{KAFKA}consumer.fetch.manager.records.lag.max"
IDLE: Final = f"{KAFKA}consumer.poll.idle.ratio.avg"
ASSIGNED: Final = f"{KAFKA}consumer.coordinator.assigned.partitions"
REBALANCES: Final = f"{KAFKA}consumer.coordinator.rebalance.total"
REBALANCE_MS: Final = f"{KAFKA}consumer.coordinator.rebalance.latency.total"
FETCH_NODES: Final = f"{KAFKA}consumer.node.request.latency.avg"
STARTED: Final = f"{KAFKA}app.info.start.time.ms"

INTERVAL_S: Final = 300
#: The end of all clients, on a minute that is not the end of an hour or of an interval.
END_NS: Final = (time.time_ns() // MINUTE_NS - 7) * MINUTE_NS
HOURS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What a client does.

    Attributes:
        name: Its client id.
        late_s: How long after the others it pushes.
        began: How many minutes before the end it began.
        per_second: Totals, for each second.
        gauges: What it measures.
        by_node: What it measures of brokers 1, 2 and so on.
        group: Its group.
        version: Of the Java client.
    """

    name: str
    late_s: int
    began: int = HOURS * 60
    per_second: Mapping[str, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    by_node: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    group: str = ""
    version: str = "4.4.0"

    def pushes(self) -> Iterator[Spooled]:
        """Its pushes until the end."""
        client = Client(instance=self.name.ljust(22, "A"), client_id=self.name, version=self.version)
        # What was done since the push before it.
        sums = {name: rate * INTERVAL_S for name, rate in self.per_second.items()}
        first = self.began * 60 // INTERVAL_S
        for number in range(first, 0, -1):
            at_ns = END_NS - (number * INTERVAL_S - INTERVAL_S + self.late_s) * 1_000_000_000
            data = MetricsData.FromString(otlp(at_ns, {client: Values(sums=sums, gauges=self.gauges)}))
            metrics = data.resource_metrics[0].scope_metrics[0].metrics
            for name, values in self.by_node.items():
                points = metrics.add(name=name).gauge.data_points
                for node, measured in enumerate(values, start=1):
                    point = points.add(time_unix_nano=at_ns, as_double=measured)
                    point.attributes.add(key="node_id").value.string_value = str(node)
            if self.group:
                added = data.resource_metrics[0].resource.attributes.add(key="group_id")
                added.value.string_value = self.group
            yield Spooled(
                client=client,
                received_at_ns=at_ns,
                otlp=data.SerializeToString(),
                push_interval_ms=INTERVAL_S * 1000,
            )


PRODUCER: Final = {LATENCY: 5.0, LATENCY_MAX: 20.0, THROTTLE_MAX: 0.0, STARTED: 1.78e12}
CONSUMER: Final = {LAG_MAX: 10.0, IDLE: 0.5, ASSIGNED: 3.0}
SLOW_THIRD: Final = {FETCH_NODES: (100.0, 110.0, 300.0)}
LOGS: Final = "https://logs.example.com/?q=${KAFKA_CLIENT_ID}&group=${KAFKA_GROUP_ID}"
DOINGS: Final = (
    Doing(
        name="steady",
        late_s=0,
        per_second={SENT: 20, SENT_BYTES: 20_480, FAILED: 0, OPENED: 0},
        gauges=PRODUCER,
    ),
    Doing(
        name="failing",
        late_s=130,
        per_second={SENT: 40, SENT_BYTES: 40_960, FAILED: 0.02, OPENED: 0.01},
        gauges=PRODUCER,
    ),
    Doing(
        name="throttled",
        late_s=200,
        per_second={SENT: 1, SENT_BYTES: 1024, FAILED: 0, OPENED: 0},
        gauges=PRODUCER | {THROTTLE_MAX: 1500.0, LATENCY: 50.0, LATENCY_MAX: 90.0},
    ),
    Doing(
        name="keeps-up",
        late_s=60,
        by_node=SLOW_THIRD,
        group="well",
        per_second={CONSUMED: 50, REBALANCES: 0, REBALANCE_MS: 0},
        gauges=CONSUMER,
    ),
    Doing(
        name="lags",
        late_s=250,
        by_node={FETCH_NODES: (120.0, 130.0, 400.0)},
        group="behind",
        per_second={CONSUMED: 10, REBALANCES: 1 / 600, REBALANCE_MS: 2},
        gauges=CONSUMER | {LAG_MAX: 50_000.0, IDLE: 0.02},
    ),
)
#: It began 25 minutes before the end.
YOUNG: Final = Doing(
    name="young", late_s=90, began=25, per_second={SENT: 20, SENT_BYTES: 1024, FAILED: 0}, gauges=PRODUCER
)

Shown = Mapping[str, list[dict[str, Any]]]


def shown(
    spark: SparkSession,
    postgres: Postgres,
    folder: Any,
    doings: tuple[Doing, ...],
    hours: float,
    also: Mapping[str, Mapping[str, str]] | None = None,
    **wanted: str,
) -> Iterator[dict[str, Shown]]:
    """The rows of each panel by dashboard and title.

    ``also`` has further choices, by the dashboard's name with a colon and a word.
    """
    spool(folder / "telemetry", "known", (push for doing in doings for push in doing.pushes()))
    settings = load(
        None, {"spool_files": {"path": str(folder / "telemetry")}, "checkpoint": str(folder / "checkpoint")}
    )
    end = datetime.fromtimestamp(END_NS / 1e9, UTC) + timedelta(minutes=1)
    window = TimeRange(start=end - timedelta(hours=hours), end=end)
    with postgres.database() as url:
        with Store(url, retention=RetentionSettings()) as store:
            store.migrate()
            Job(spark, store, settings, threading.Event()).run_once()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET timezone = 'UTC'")
            found: dict[str, Shown] = {}
            boards = dict.fromkeys(("producers", "consumers", "topics-and-groups", "one-client"), wanted)
            for name, choice in {**boards, **(also or {})}.items():
                dashboard = DASHBOARDS[name.partition(":")[0]]
                variables = chosen(dashboard, connection, window, choice)
                panels: dict[str, list[dict[str, Any]]] = {}
                for query in asked(dashboard, variables, window):
                    # A number may have the title of the lines below it.
                    title = f"{query.title}, lines" if query.over_time else query.title
                    panels[title] = rows(connection, query.sql)
                found[name] = panels
            yield found


def rows(connection: psycopg.Connection[Any], sql: str) -> list[dict[str, Any]]:
    cursor = psycopg.RawCursor(connection).execute(sql.encode())
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@pytest.fixture(scope="module")
def three_hours(
    spark: SparkSession, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Shown]]:
    also = {
        "one-client: lags": {"client": "lags", "logs": LOGS},
        "topics-and-groups: lags": {"group": "behind"},
    }
    yield from shown(
        spark, postgres, tmp_path_factory.mktemp("known"), DOINGS, 3, also, client="steady", metric=SENT
    )


@pytest.fixture(scope="module")
def young(
    spark: SparkSession, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Shown]]:
    yield from shown(spark, postgres, tmp_path_factory.mktemp("young"), (YOUNG,), 3)


def value(panels: Shown, title: str) -> float:
    (row,) = panels[title]
    return float(row["value"])


def test_numbers_are_within_one_percent_of_what_clients_did(three_hours: dict[str, Shown]) -> None:
    producers, consumers = three_hours["producers"], three_hours["consumers"]
    assert value(producers, "Records sent, Java only") == pytest.approx(61, rel=0.01)
    assert value(producers, "Bytes sent, Java only") == pytest.approx(61 * 1024, rel=0.01)
    assert value(consumers, "Records read, Java only") == pytest.approx(60, rel=0.01)
    # Counts in three hours, in which one client's pushes lie: one push more or less.
    assert value(producers, "Records failed, Java only") == pytest.approx(0.02 * 3 * 3600, abs=0.02 * 300)
    assert value(consumers, "Rebalances, Java only") == pytest.approx(3 * 6, abs=0.5)


def test_numbers_of_gauges_are_the_newest(three_hours: dict[str, Shown]) -> None:
    assert value(three_hours["consumers"], "Partitions assigned") == 6
    assert value(three_hours["consumers"], "Largest lag, Java only") == 50_000
    assert value(three_hours["producers"], "Longest throttling") == 1500
    assert value(three_hours["producers"], "Longest request") == 90


def test_the_number_and_the_line_agree(three_hours: dict[str, Shown]) -> None:
    producers = three_hours["producers"]
    line = [row["value"] for row in producers["Records sent, lines"] if row["value"] is not None]
    assert sum(line) / len(line) == pytest.approx(value(producers, "Records sent, Java only"), rel=0.02)


@pytest.mark.full
def test_a_young_fleet_is_not_diluted_over_hours(young: dict[str, Shown]) -> None:
    producers = young["producers"]
    assert value(producers, "Records sent, Java only") == pytest.approx(20, rel=0.01)
    (row,) = producers["Producers, those with problems first"]
    assert row["records"] == pytest.approx(20, rel=0.01)
    line = [row["value"] for row in producers["Records sent, lines"] if row["value"] is not None]
    assert max(line) == pytest.approx(20, rel=0.01)


def test_clients_with_problems_come_first(three_hours: dict[str, Shown]) -> None:
    producers = three_hours["producers"]["Producers, those with problems first"]
    assert [row["client_id"] for row in producers] == [
        "throttled", "failing", "steady",
    ]  # fmt: skip
    by_name = {row["client_id"]: row for row in producers}
    assert {name: round(by_name[name]["records"], 1) for name in ("steady", "failing", "throttled")} == {
        "steady": pytest.approx(20, rel=0.01),
        "failing": pytest.approx(40, rel=0.01),
        "throttled": pytest.approx(1, rel=0.1),
    }
    consumers = three_hours["consumers"]["Consumers, those with problems first"]
    assert [row["client_id"] for row in consumers] == ["lags", "keeps-up"]
    (lags,) = (row for row in consumers if row["client_id"] == "lags")
    assert lags["lag_max"] == 50_000
    assert lags["poll_idle_min"] == pytest.approx(0.02)


def test_lag_is_shown_by_group(three_hours: dict[str, Shown]) -> None:
    lines = three_hours["consumers"]["Records lag by group, lines"]
    newest = {row["metric"]: row["value"] for row in lines if row["value"] is not None}
    assert newest == {"behind": 50_000, "well": 10}
    groups = three_hours["topics-and-groups"]["Groups"]
    assert [(row["group_id"], row["lag_max"], row["partitions"]) for row in groups] == [
        ("behind", 50_000, 3),
        ("well", 10, 3),
    ]
    # Lag that stays as it is has no time in which it is gone.
    assert [row["catch_up"] for row in groups] == ["steady", "steady"]
    assert [row["consumed"] for row in groups] == [
        pytest.approx(10, rel=0.01),
        pytest.approx(50, rel=0.01),
    ]


def test_the_poll_idle_ratio_shows_its_low_end(three_hours: dict[str, Shown]) -> None:
    # The last step may have a push of one client alone.
    idle = lines(three_hours["consumers"], "Poll idle ratio")
    assert min(idle["minimum"][-2:]) == pytest.approx(0.02)
    # A quantile of two clients is one of them.
    assert idle.keys() == {"mean", "minimum"}


def test_quantiles_lie_between_minimum_and_maximum(three_hours: dict[str, Shown]) -> None:
    """The spread's buckets are wider than the values of one bucket."""
    for row in three_hours["producers"]["Request latency, lines"]:
        if row["value"] is not None:
            assert 5 <= row["value"] <= 90, row
    for row in three_hours["consumers"]["Poll idle ratio, lines"]:
        if row["value"] is not None:
            assert 0.02 <= row["value"] <= 0.5, row


def test_every_metric_has_a_value_with_its_unit(three_hours: dict[str, Shown]) -> None:
    metrics = {
        row["metric"].removeprefix(KAFKA): row["value"]
        for row in three_hours["one-client"]["Every metric of the client id"]
    }
    assert metrics["producer.record.send.total"] == "20 records/s"
    assert metrics["producer.outgoing.byte.total"] == "20 KiB/s"
    assert metrics["producer.node.request.latency.avg"] == "5 ms"
    assert metrics["app.info.start.time.ms"] == "2026-05-28 20:26 UTC"


def lines(panels: Shown, title: str) -> dict[str, list[float]]:
    """The values of each series over time."""
    found: dict[str, list[float]] = {}
    for row in panels[f"{title}, lines"]:
        if row["value"] is not None:
            found.setdefault(row["metric"], []).append(float(row["value"]))
    return found


def test_rebalances_are_shown_at_the_member_that_had_them(three_hours: dict[str, Shown]) -> None:
    """One in ten minutes, pushed every five: a half in each step."""
    for board, title in (
        ("topics-and-groups: lags", "Rebalances of each member"),
        ("one-client: lags", "Rebalances"),
    ):
        ((_, counts),) = lines(three_hours[board], title).items()
        assert set(counts) == {0.5}, board
        assert sum(counts) == pytest.approx(3 * 6, abs=0.5)
    everyone = lines(three_hours["topics-and-groups"], "Rebalances of each member")
    # For all groups a step is an hour, and the first and last one are cut.
    assert set(everyone) == {"lags", "keeps-up"}
    assert max(everyone["lags"]) == pytest.approx(6, rel=0.01)
    assert max(everyone["keeps-up"]) == 0


def test_the_heatmap_has_the_mean_latency_of_each_broker(three_hours: dict[str, Shown]) -> None:
    everyone = lines(three_hours["consumers"], "Request latency by broker")
    # Of a whole hour: in a part of it, some clients have pushed more often than others.
    assert {broker: values[len(values) // 2] for broker, values in everyone.items()} == {
        "broker 1": pytest.approx(110, rel=0.01),
        "broker 2": pytest.approx(120, rel=0.01),
        "broker 3": pytest.approx(350, rel=0.01),
    }
    one = lines(three_hours["one-client: lags"], "Request latency by broker")
    assert {broker: set(values) for broker, values in one.items()} == {
        "broker 1": {120.0}, "broker 2": {130.0}, "broker 3": {400.0},
    }  # fmt: skip


def test_one_client_is_beside_the_middle_half_of_its_peers(three_hours: dict[str, Shown]) -> None:
    """Two consumers have an idle ratio of 0.02 and 0.5, three producers a latency of 5, 5, 50."""
    idle = lines(three_hours["one-client: lags"], "Poll idle ratio, mean")
    assert idle["this client id"] == pytest.approx([0.02] * len(idle["this client id"]))
    assert min(idle["25 % of peers below"]) == pytest.approx(0.02, rel=0.05)
    assert max(idle["75 % of peers below"]) == pytest.approx(0.5, rel=0.05)
    latency = lines(three_hours["one-client"], "Produce latency")
    assert set(latency["this client id"]) == {5.0}
    assert latency["median of peers"][-2] == pytest.approx(5, rel=0.05)
    # It sends no such metric, so its peers are none of its own.
    assert lines(three_hours["one-client: lags"], "Produce latency") == {}


def test_instances_lead_to_their_logs_where_an_address_is_set(three_hours: dict[str, Shown]) -> None:
    assert three_hours["one-client"]["Logs and traces"] == []
    (row,) = three_hours["one-client: lags"]["Logs and traces"]
    assert row["what"] == "Logs"
    address = urlsplit(row["what_key"])
    assert address.netloc == "logs.example.com"
    assert parse_qs(address.query) == {"q": ["lags"], "group": ["behind"]}
