"""Rates and counts that dashboards show of fleets whose clients come, go and push at any pace.

The clients are made up, and each keeps a ledger: its lives, and what it did a second. The truth of
a rate is then what the clients that have the metric did in the range, divided by the time in which
any of them was there. The truth of a count is what the pushes of the range told. A life ends with
its last push, because nobody can know what a client did after it. The job, the tables and the
queries are real.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from pyspark.sql import SparkSession

from spark_streaming.job import Job
from spark_streaming.load import load
from spark_streaming.postgres import Store
from spark_streaming.settings import RetentionSettings
from tests.integration.rollup.pushes import SECOND_NS, Client, Spooled, Values, otlp, spool
from tests.integration.rollup.test_shown_numbers import (
    CONSUMED,
    END_NS,
    FAILED,
    FETCH_NODES,
    IDLE,
    KAFKA,
    LAG_MAX,
    LATENCY,
    REBALANCES,
    SENT,
    SENT_BYTES,
    rows,
)
from tests.testbed.dashboard_queries import DASHBOARDS, asked, chosen
from tests.testbed.grafana_sql import TimeRange
from tests.testbed.postgres import Postgres

TOPIC_SENT: Final = f"{KAFKA}producer.topic.record.send.total"
JAVA: Final = ("apache-kafka-java", "4.4.0")
LIBRDKAFKA: Final = ("librdkafka", "2.11.1")
#: Minutes.
RANGES: Final = (15, 20, 30, 60, 120, 180, 360, 7 * 24 * 60)
#: The gate has one of each way to read a range: minutes, hours and days.
GATE: Final = tuple(
    minutes if minutes in (15, 180, RANGES[-1]) else pytest.param(minutes, marks=pytest.mark.full)
    for minutes in RANGES
)
WEEK: Final = 7 * 24 * 60 + 30
BOARDS: Final = ("producers", "consumers", "topics-and-groups", "one-client")
NUMBERS: Final = {
    "Records sent, Java only": SENT,
    "Bytes sent, Java only": SENT_BYTES,
    "Records read, Java only": CONSUMED,
}
COUNTS: Final = {"Records failed, Java only": FAILED, "Rebalances, Java only": REBALANCES}
PRODUCERS: Final = "Producers, those with problems first"
CONSUMERS: Final = "Consumers, those with problems first"
EVERY_METRIC: Final = "Every metric of the client id"
SHOWN: Final = {*NUMBERS, *COUNTS, PRODUCERS, CONSUMERS, EVERY_METRIC, "Groups", "Topics"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What one client id did.

    Attributes:
        name: The client id.
        lives: The begin and end of each instance, in minutes before the end. 0: it goes on.
        interval_s: Between two pushes.
        late_s: How long after a minute it begins.
        per_second: Totals, for each second.
        by_topic: The same for each second of each topic, of :data:`TOPIC_SENT`.
        gauges: What it measures.
        lag: Its largest lag at the end, and by how much that grows in a minute.
        group: Its group.
        software: Name and version.
    """

    name: str
    lives: Sequence[tuple[float, float]]
    interval_s: int
    late_s: int = 0
    per_second: Mapping[str, float] = field(default_factory=dict)
    by_topic: Mapping[str, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    lag: tuple[float, float] | None = None
    group: str = ""
    software: tuple[str, str] = JAVA

    def pushed_at(self) -> Iterator[tuple[int, int]]:
        """The number of the life and the time of each push, in seconds."""
        for number, (began, ended) in enumerate(self.lives):
            at = END_NS // SECOND_NS - round(began * 60) + self.late_s + self.interval_s
            while at < END_NS // SECOND_NS + 60 - ended * 60:
                yield number, at
                at += self.interval_s

    def spans(self) -> list[tuple[int, float]]:
        """The begin and end of each life that pushed."""
        pushed: dict[int, list[int]] = {}
        for number, at in self.pushed_at():
            pushed.setdefault(number, []).append(at)
        return [
            (times[0] - self.interval_s, times[-1] if self.lives[number][1] else float("inf"))
            for number, times in pushed.items()
        ]

    def pushes(self) -> Iterator[Spooled]:
        sums = {name: rate * self.interval_s for name, rate in self.per_second.items()}
        for number, at in self.pushed_at():
            client = Client(
                instance=f"{self.name}{number}".ljust(22, "A"),
                client_id=self.name,
                name=self.software[0],
                version=self.software[1],
            )
            gauges = dict(self.gauges)
            if self.lag is not None:
                gauges[LAG_MAX] = self.lag[0] - self.lag[1] * (END_NS / SECOND_NS - at) / 60
            data = MetricsData.FromString(otlp(at * SECOND_NS, {client: Values(sums=sums, gauges=gauges)}))
            resource = data.resource_metrics[0]
            for topic, rate in self.by_topic.items():
                added = MetricsData.FromString(
                    otlp(at * SECOND_NS, {client: Values(sums={TOPIC_SENT: rate * self.interval_s})})
                )
                metric = added.resource_metrics[0].scope_metrics[0].metrics[0]
                metric.sum.data_points[0].attributes.add(key="topic").value.string_value = topic
                resource.scope_metrics[0].metrics.append(metric)
            if self.group:
                resource.resource.attributes.add(key="group_id").value.string_value = self.group
            yield Spooled(
                client=client,
                received_at_ns=at * SECOND_NS,
                otlp=data.SerializeToString(),
                push_interval_ms=self.interval_s * 1000,
            )


def producer(
    name: str, per_second: float, interval_s: int, *lives: tuple[float, float], **more: Any
) -> Ledger:
    topics = more.pop("topics", {"orders": per_second})
    totals = {SENT: per_second, SENT_BYTES: per_second * 1024, FAILED: per_second / 1000}
    return Ledger(
        name=name, lives=lives, interval_s=interval_s, per_second=totals, by_topic=topics,
        gauges={LATENCY: 5.0}, **more,
    )  # fmt: skip


def consumer(
    name: str, per_second: float, interval_s: int, *lives: tuple[float, float], **more: Any
) -> Ledger:
    totals = {CONSUMED: per_second, REBALANCES: 1 / 600}
    return Ledger(
        name=name, lives=lives, interval_s=interval_s, per_second=totals,
        gauges={FETCH_NODES: 100.0, IDLE: more.pop("idle", 0.9)},
        group=more.pop("group", "readers"), **more,
    )  # fmt: skip


#: One of each kind: all intervals, and clients that start, die and come back, and that don't send
#: most metrics.
MIXED: Final = (
    producer("steady", 100, 300, (WEEK, WEEK - 600), (600, 0), late_s=17),
    producer("quick", 300, 5, (22, 0), topics={"orders": 200, "exports": 100}),
    producer("dies", 500, 60, (400, 9), late_s=31),
    producer("returns", 40, 30, (100, 70), (40, 0), topics={"exports": 40}),
    consumer("reads", 70, 300, (390, 0), late_s=100, lag=(60_000, 210), idle=0.01),
    consumer("joins", 30, 60, (27, 0), late_s=5, lag=(500, -10)),
    consumer("recovers", 30, 60, (200, 0), late_s=5, lag=(12_000, -400), group="behind"),
    consumer("left", 200, 120, (500, 130), group="gone"),
    consumer("alone", 10, 15, (26, 6), group="short"),
    Ledger(
        name="librdkafka",
        software=LIBRDKAFKA,
        lives=((420, 0),),
        interval_s=60,
        late_s=44,
        gauges={LATENCY: 9.0},
    ),
)


def many() -> tuple[Ledger, ...]:
    """Clients of each interval, each with each way to live."""
    lives: tuple[tuple[tuple[float, float], ...], ...] = (
        ((500, 0),), ((170, 0),), ((33, 0),), ((450, 12),), ((200, 150),), ((300, 100), (90, 40), (18, 0)),
    )  # fmt: skip
    found: list[Ledger] = []
    for interval_s in (30, 60, 120, 240, 300):
        for number, way in enumerate(lives):
            late_s = (37 * len(found)) % min(interval_s, 60)
            name, rate = f"{interval_s}-{number}", 10.0 + 7 * len(found)
            found += [
                producer(f"p{name}", rate, interval_s, *way, late_s=late_s, topics={f"t{number}": rate}),
                consumer(f"c{name}", rate, interval_s, *way, late_s=late_s, group=f"g{number % 3}"),
            ]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Truth:
    """What clients did in a range, which is in seconds."""

    begin: float
    end: float

    def rate(self, ledgers: Sequence[Ledger], metric: str, topic: str = "") -> float | None:
        """The rate a second, None if no client with the metric was there."""
        done, lives = 0.0, []
        for ledger in ledgers:
            rate = ledger.by_topic.get(topic) if topic else ledger.per_second.get(metric)
            if rate is None:
                continue
            for began, ended in ledger.spans():
                begin, end = max(began, self.begin), min(ended, self.end)
                if end > begin:
                    done += rate * (end - begin)
                    lives.append((begin, end))
        there, until = 0.0, self.begin
        for begin, end in sorted(lives):
            there += max(0.0, end - max(begin, until))
            until = max(until, end)
        return done / there if there else None

    def count(self, ledgers: Sequence[Ledger], metric: str) -> float:
        """How many the pushes of the range told."""
        return sum(
            ledger.per_second.get(metric, 0.0) * ledger.interval_s
            for ledger in ledgers
            for _, at in ledger.pushed_at()
            if self.begin <= at < self.end
        )


@dataclass(frozen=True, slots=True)
class Fleet:
    """A database that the job filled with the pushes of ledgers."""

    ledgers: tuple[Ledger, ...]
    connection: psycopg.Connection[Any]

    def panels(self, minutes: int) -> tuple[Mapping[str, list[dict[str, Any]]], Truth]:
        """The rows of each panel by title, and the truth, of a range up to the end."""
        end = datetime.fromtimestamp(END_NS / 1e9, UTC) + timedelta(minutes=1)
        window = TimeRange(start=end - timedelta(minutes=minutes), end=end)
        ((until,),) = self.connection.execute("SELECT whole_until FROM telemetry.progress").fetchall()
        whole = min(end.timestamp() + 60, until.timestamp() // 60 * 60)
        found = {}
        for name in BOARDS:
            variables = chosen(DASHBOARDS[name], self.connection, window, {"client": self.ledgers[0].name})
            for query in asked(DASHBOARDS[name], variables, window):
                if query.title in SHOWN and not query.over_time:
                    found[query.title] = rows(self.connection, query.sql)
        return found, Truth(window.start.timestamp(), whole)


def filled(
    spark: SparkSession, postgres: Postgres, folder: Any, ledgers: tuple[Ledger, ...]
) -> Iterator[Fleet]:
    spool(folder / "telemetry", "known", (push for ledger in ledgers for push in ledger.pushes()))
    settings = load(
        None, {"spool_files": {"path": str(folder / "telemetry")}, "checkpoint": str(folder / "checkpoint")}
    )
    with postgres.database() as url:
        with Store(url, retention=RetentionSettings()) as store:
            store.migrate()
            Job(spark, store, settings, threading.Event()).run_once()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET timezone = 'UTC'")
            yield Fleet(ledgers, connection)


@pytest.fixture(scope="module")
def mixed(
    spark: SparkSession, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    yield from filled(spark, postgres, tmp_path_factory.mktemp("mixed"), MIXED)


@pytest.fixture(scope="module")
def crowd(
    spark: SparkSession, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    yield from filled(spark, postgres, tmp_path_factory.mktemp("crowd"), many())


#: The cells of tables: the column of names, and the metric of each rate and count.
TABLES: Final = (
    (PRODUCERS, "client_id", {"records": SENT, "bytes": SENT_BYTES}, {"failed": FAILED}),
    (CONSUMERS, "client_id", {"records": CONSUMED}, {"rebalances": REBALANCES}),
    ("Groups", "group_id", {"consumed": CONSUMED}, {"rebalances": REBALANCES}),
)


def pairs(
    panels: Mapping[str, list[dict[str, Any]]], truth: Truth, ledgers: Sequence[Ledger]
) -> Iterator[tuple[str, Any, float | None]]:
    """The name, shown value and truth of every stat and cell of a rate or count."""
    for title, metric in NUMBERS.items():
        yield title, panels[title][0]["value"], truth.rate(ledgers, metric)
    for title, metric in COUNTS.items():
        yield title, panels[title][0]["value"], truth.count(ledgers, metric)
    for title, column, rates, counts in TABLES:
        for row in panels[title]:
            name = row[column]
            own = [ledger for ledger in ledgers if name in (ledger.name, ledger.group)]
            for cell, metric in {**rates, **counts}.items():
                # Neither without data nor of a software that lacks the metric.
                if row[cell] is not None and str(row[cell]) != "nan":
                    true = truth.rate(own, metric) if cell in rates else truth.count(own, metric)
                    if title == "Groups" and metric == REBALANCES:
                        # Each member counts its group's.
                        true = max(truth.count([ledger], metric) for ledger in own)
                    yield f"{title}, {name}, {cell}", row[cell], true
    for row in panels["Topics"]:
        yield f"topic {row['topic']}", row["sent"], truth.rate(ledgers, TOPIC_SENT, row["topic"])
    (text,) = (row["value"] for row in panels[EVERY_METRIC] if row["metric"] == SENT)
    yield EVERY_METRIC, float(text.split()[0]), truth.rate(ledgers[:1], SENT)


def compare(fleet: Fleet, minutes: int) -> Mapping[str, list[dict[str, Any]]]:
    """Compare what is shown with the truth, and return the panels."""
    panels, truth = fleet.panels(minutes)
    found = list(pairs(panels, truth, fleet.ledgers))
    assert {name: shown for name, shown, _ in found} == {
        name: None if true is None else pytest.approx(true, rel=0.01) for name, _, true in found
    }
    # Every producer that pushed in the range has its row, with its rate.
    pushing = {ledger.name for ledger in fleet.ledgers if truth.count([ledger], SENT)}
    rated = [row for row in panels[PRODUCERS] if row["records"] and str(row["records"]) != "nan"]
    assert pushing == {row["client_id"] for row in rated}
    return panels


@pytest.mark.parametrize("minutes", GATE)
def test_rates_counts_and_lag_are_those_of_the_ledgers(mixed: Fleet, minutes: int) -> None:
    panels = compare(mixed, minutes)
    # A group whose lag grows comes first, and has no time to catch up.
    groups = {row["group_id"]: row["catch_up"] for row in panels["Groups"]}
    assert next(iter(groups)) == "readers"
    assert (groups["readers"], groups["behind"]) == ("grows by 210/min", "30 min")
    # A finding of a group is at the member that it names.
    kinds = {row["client_id"]: row["kinds"] or "" for row in panels[CONSUMERS]}
    assert {name for name, of_client in kinds.items() if "poll_bound" in of_client} == {"reads"}


@pytest.mark.full
@pytest.mark.parametrize("minutes", RANGES)
def test_rates_and_counts_of_sixty_clients_are_those_of_the_ledgers(crowd: Fleet, minutes: int) -> None:
    compare(crowd, minutes)
