"""Findings over a real PostgreSQL with the store's schema: found, just not found, resolved, and why."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from psycopg.rows import dict_row

from spark_streaming.findings import FindingCounts, FindingSettings, find
from spark_streaming.postgres import Retention, Store
from tests.testbed.postgres import Postgres

NOW: Final = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
INTERVAL_MS: Final = 300_000
SETTINGS: Final = FindingSettings()
_keys = itertools.count(1)


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


class Fleet:
    """Clients and what they told, as the store keeps them; ``look`` is the job's tick."""

    def __init__(self, connection: psycopg.Connection[dict[str, Any]]) -> None:
        self.connection = connection

    def client(
        self,
        name: str,
        *,
        first_seen: datetime = NOW - timedelta(hours=5),
        last_seen: datetime = NOW - timedelta(minutes=1),
        terminated: bool = False,
        interval_ms: int = INTERVAL_MS,
        pushes: int = 9,
        **values: Any,
    ) -> int:
        """Add a client that pushed each interval until it was seen last, saying the same each time."""
        labels = {
            "cluster_id": "c1",
            "client_id": name,
            "client_software_name": "apache-kafka-java",
            "client_software_version": "4.4.0",
            "principal": "User:app",
            "group_id": None,
        }
        labels.update({key: values.pop(key) for key in tuple(values) if key in labels})
        key = next(_keys)
        self.connection.execute(
            "INSERT INTO telemetry.client_state (client_key, client_instance_id, first_seen, last_seen,"
            " push_interval_ms, terminated, terminated_at, cluster_id, client_id, client_software_name,"
            " client_software_version, principal, group_id)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                key,
                name,
                first_seen,
                last_seen,
                interval_ms,
                terminated,
                last_seen if terminated else None,
                *labels.values(),
            ),
        )
        self.says(key, last_seen, pushes=pushes, interval_ms=interval_ms, **values)
        return key

    def says(
        self, key: int, last: datetime, *, pushes: int = 9, interval_ms: int = INTERVAL_MS, **values: Any
    ) -> None:
        """Add what a client told in so many pushes."""
        columns = "".join(f", {name}" for name in values)
        with self.connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO telemetry.client_rollup_1m"
                f" (client_key, bucket, pushes, points, terminating{columns})"
                f" VALUES (%s, date_trunc('minute', %s), 1, 10, false{', %s' * len(values)})",
                [
                    (key, last - push * timedelta(milliseconds=interval_ms), *values.values())
                    for push in range(pushes)
                ],
            )

    def went_on(self, key: int, now: datetime, **values: Any) -> None:
        """Let a client push until shortly before then, now saying something else."""
        self.connection.execute("DELETE FROM telemetry.client_rollup_1m WHERE client_key = %s", (key,))
        self.connection.execute(
            "UPDATE telemetry.client_state SET last_seen = %s WHERE client_key = %s", (now - minutes(1), key)
        )
        self.says(key, now - minutes(1), **values)

    def look(self, now: datetime = NOW, settings: FindingSettings = SETTINGS) -> FindingCounts:
        with self.connection.transaction():
            return find(self.connection, settings, now)

    def findings(self, kind: str | None = None) -> list[dict[str, Any]]:
        return self.connection.execute(
            "SELECT * FROM telemetry.finding WHERE %s::text IS NULL OR kind = %s ORDER BY finding_id",
            (kind, kind),
        ).fetchall()

    def open(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in self.findings(kind) if row["resolved_at"] is None]

    def one(self, kind: str) -> dict[str, Any]:
        (finding,) = self.open(kind)
        return finding


@contextmanager
def fleet_of(url: str) -> Iterator[Fleet]:
    with Store(url, retention=Retention()) as store:
        store.migrate()
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        connection.execute(
            "CREATE TABLE telemetry.everything PARTITION OF telemetry.client_rollup_1m DEFAULT"
        )
        yield Fleet(connection)


@pytest.fixture(scope="module")
def shared(postgres: Postgres) -> Iterator[Fleet]:
    with postgres.database() as url, fleet_of(url) as fleet:
        yield fleet


@pytest.fixture
def fleet(shared: Fleet) -> Fleet:
    shared.connection.execute(
        "TRUNCATE telemetry.client_state, telemetry.client_rollup_1m, telemetry.finding RESTART IDENTITY"
    )
    return shared


def peers(fleet: Fleet, count: int = 5, **values: Any) -> list[int]:
    return [fleet.client(f"peer-{number}", **values) for number in range(count)]


def test_nothing_is_found_where_there_is_nothing(fleet: Fleet) -> None:
    assert fleet.look() == FindingCounts(opened={}, resolved={}, left_out={})
    peers(fleet)
    assert fleet.look() == FindingCounts(opened={}, resolved={}, left_out={})


def test_throttled_by_user_and_client_id(fleet: Fleet) -> None:
    fleet.client("one", client_id="app", throttle_ms_max=100.0)
    fleet.client("two", client_id="app", throttle_ms_max=1500.0)
    fleet.client("just-under", throttle_ms_max=99.9)
    fleet.client("not-supported", throttle_ms_max=None)
    assert fleet.look().opened == {"throttled": 1}
    finding = fleet.one("throttled")
    assert (finding["cluster_id"], finding["principal"], finding["client_id"]) == ("c1", "User:app", "app")
    assert finding["client_instance_id"] is None
    assert finding["severity"] == "warning"
    assert finding["evidence"] == {
        "window_minutes": 15,
        "throttle_ms_max": 1500,
        "throttled_minutes": 6,
        "instances_throttled": 2,
        "instances": 2,
        "threshold_ms": 100,
        "threshold_minutes": 2,
    }
    assert finding["summary"] == (
        "Client id app of User:app was throttled for up to 1500 ms, in 6 minutes of the last 15 "
        "(2 of 2 instances)"
    )


def test_a_single_burst_is_no_throttling(fleet: Fleet) -> None:
    key = fleet.client("burst", throttle_ms_max=0.0)
    fleet.says(key, NOW - minutes(3), pushes=1, throttle_ms_max=5000.0)
    assert fleet.look().opened == {}
    fleet.says(key, NOW - minutes(4), pushes=1, throttle_ms_max=150.0)
    assert fleet.look().opened == {"throttled": 1}


def test_a_little_throttling_is_worth_less(fleet: Fleet) -> None:
    fleet.client("app", throttle_ms_max=999.0)
    fleet.look()
    assert fleet.one("throttled")["severity"] == "info"


def test_rebalance_storm_by_number(fleet: Fleet) -> None:
    # Six pushes are in half an hour.
    for member, rebalances in (("a", 10 / 6), ("b", 1.0)):
        fleet.client(f"storm-{member}", group_id="storm", rebalances=rebalances, rebalance_ms=100.0)
    fleet.client("calm", group_id="calm", rebalances=9.9 / 6, rebalance_ms=100.0)
    assert fleet.look().opened == {"rebalance_storm": 1}
    finding = fleet.one("rebalance_storm")
    assert (finding["cluster_id"], finding["group_id"], finding["client_id"]) == ("c1", "storm", None)
    assert finding["severity"] == "warning"
    assert finding["evidence"]["rebalances"] == pytest.approx(10)
    assert {key: value for key, value in finding["evidence"].items() if key != "rebalances"} == {
        "window_minutes": 30,
        "rebalance_ms": 600,
        "time_share": 0.0003,
        "members": 2,
        "threshold_rebalances": 10,
        "threshold_time_share": 0.2,
    }


def test_a_rolling_restart_is_no_storm(fleet: Fleet) -> None:
    for number in range(8):
        fleet.client(f"old-{number}", group_id="g", terminated=True, rebalances=0.0)
    for number in range(7):
        fleet.client(f"new-{number}", group_id="g", rebalances=2.0)
    fleet.client("last", group_id="g", rebalances=16 / 6)
    assert fleet.look().opened == {}
    fleet.client("other-cluster", cluster_id="c2", group_id="g", rebalances=16 / 6)
    assert fleet.look().opened == {"rebalance_storm": 1}
    assert fleet.one("rebalance_storm")["cluster_id"] == "c2"


def test_rebalance_storm_by_time_of_clients_that_count_no_rebalances(fleet: Fleet) -> None:
    share_ms = 30 * 60_000 / 6
    fleet.client("fifth", group_id="fifth", rebalance_ms=0.2 * share_ms)
    fleet.client("under", group_id="under", rebalance_ms=0.199 * share_ms)
    fleet.client("half", group_id="half", rebalance_ms=0.5 * share_ms)
    fleet.look()
    found = {row["group_id"]: row for row in fleet.open("rebalance_storm")}
    assert {group: row["severity"] for group, row in found.items()} == {
        "fifth": "warning",
        "half": "critical",
    }
    assert found["half"]["evidence"]["rebalances"] is None
    assert found["half"]["evidence"]["time_share"] == 0.5
    assert "an unknown number" in found["half"]["summary"]
    assert "50 % of its time" in found["half"]["summary"]


def test_connection_churn_within_a_group(fleet: Fleet) -> None:
    peers(fleet, group_id="g", connections_created=2.0)
    fleet.client("churner", group_id="g", connections_created=10.0)
    fleet.client("elsewhere", group_id="alone", connections_created=500.0)
    assert fleet.look().opened == {"connection_churn": 1}
    finding = fleet.one("connection_churn")
    assert (finding["client_instance_id"], finding["group_id"]) == ("churner", "g")
    assert finding["evidence"] == {
        "window_minutes": 15,
        "connections": 30,
        "instances": 1,
        "peers": 5,
        "peers_median": 6,
        "peers_are": "of the same group",
        "threshold": 30,
    }


@pytest.mark.parametrize(("connections", "others"), [(9.9, 2.0), (20.0, 4.1)])
def test_no_churn_below_the_floor_or_the_factor(fleet: Fleet, connections: float, others: float) -> None:
    peers(fleet, group_id="g", connections_created=others)
    fleet.client("busy", group_id="g", connections_created=connections)
    assert fleet.look().opened == {}


def test_connection_churn_of_a_producer_beside_its_principals_others(fleet: Fleet) -> None:
    peers(fleet, connections_created=0.0)
    peers_of_another: dict[str, Any] = {"principal": "User:other", "connections_created": 100.0}
    for number in range(5):
        fleet.client(f"other-{number}", **peers_of_another)
    fleet.client("churner", connections_created=40.0)
    assert fleet.look().opened == {"connection_churn": 1}
    finding = fleet.one("connection_churn")
    assert finding["client_instance_id"] == "churner"
    assert finding["evidence"]["peers_median"] == 0
    assert finding["evidence"]["peers_are"] == "of the same principal and software"


def test_connection_churn_of_instances_that_live_shortly(fleet: Fleet) -> None:
    for number in range(5):
        fleet.client(f"steady-{number}", group_id="g", connections_created=1.0)
    for number in range(10):
        began = NOW - minutes(number + 1)
        fleet.client(
            f"brief-{number}",
            client_id="crasher",
            group_id="g",
            first_seen=began,
            last_seen=began,
            pushes=1,
            terminated=True,
            connections_created=4.0,
        )
    assert fleet.look().opened == {"connection_churn": 1}
    finding = fleet.one("connection_churn")
    assert (finding["client_id"], finding["client_instance_id"]) == ("crasher", None)
    assert finding["evidence"]["instances"] == 10
    assert finding["evidence"]["connections"] == 40


def test_a_client_id_is_not_found_beside_the_instance_that_explains_it(fleet: Fleet) -> None:
    for number in range(5):
        fleet.client(f"steady-{number}", group_id="g", connections_created=1.0)
    fleet.client("churner-1", client_id="churner", group_id="g", connections_created=50.0)
    fleet.client("churner-2", client_id="churner", group_id="g", connections_created=1.0)
    fleet.look()
    assert fleet.one("connection_churn")["client_instance_id"] == "churner-1"


@pytest.mark.parametrize("consumer", [False, True])
def test_slow_client(fleet: Fleet, consumer: bool) -> None:
    group, floor = ("g", 1000.0) if consumer else (None, 200.0)
    latency: dict[str, Any] = {"request_latency_points": 3.0, "group_id": group}
    for number in range(5):
        fleet.client(f"peer-{number}", request_latency_ms_sum=3 * (8.0 + number), **latency)
    fleet.client("slow", request_latency_ms_sum=3 * floor, **latency)
    fleet.client("bearable", request_latency_ms_sum=3 * (floor - 1), **latency)
    assert fleet.look().opened == {"slow_client": 1}
    finding = fleet.one("slow_client")
    assert finding["client_instance_id"] == "slow"
    assert finding["evidence"] == {
        "window_minutes": 15,
        "latency_ms": floor,
        "peers": 6,
        "peers_median_ms": 11,
        "peers_deviation_ms": pytest.approx(2.965, abs=0.001),
        "peers_are": "of the same group" if consumer else "producers of the same cluster",
        "threshold_ms": floor,
    }


def test_slow_by_factor_and_by_deviations(fleet: Fleet) -> None:
    def producer(name: str, latency: float) -> None:
        fleet.client(name, request_latency_ms_sum=latency, request_latency_points=1.0)

    for number in range(7):
        producer(f"even-{number}", 100.0)
    producer("under-factor", 499.0)
    assert fleet.look().opened == {}
    for number in range(8):
        # The median is 300 now, and peers differ so much that six deviations are some 2,070.
        producer(f"high-{number}", 300.0)
    producer("wide", 2000.0)
    assert fleet.look().opened == {}
    producer("very-slow", 3000.0)
    assert fleet.look().opened == {"slow_client": 1}


def test_few_peers_are_no_measure(fleet: Fleet) -> None:
    for number in range(3):
        fleet.client(
            f"peer-{number}",
            group_id="g",
            connections_created=0.0,
            request_latency_ms_sum=1.0,
            request_latency_points=1.0,
        )
    fleet.client(
        "odd",
        group_id="g",
        connections_created=1000.0,
        request_latency_ms_sum=1e6,
        request_latency_points=1.0,
    )
    assert fleet.look().opened == {}


def test_poll_bound_group(fleet: Fleet) -> None:
    def member(name: str, group: str | None, ratio: float) -> None:
        fleet.client(name, group_id=group, poll_idle_ratio_sum=ratio, poll_idle_ratio_points=1.0)

    member("busy", "g", 0.02)
    member("waiting", "g", 0.48)
    member("at-threshold", "fine", 0.1)
    member("ungrouped", None, 0.01)
    member("third-1", "third", 0.09)
    member("third-2", "third", 0.4)
    member("third-3", "third", 0.4)
    fleet.client("not-supported", group_id="other")
    assert fleet.look().opened == {"poll_bound": 3}
    found = {(row["group_id"], row["client_id"]): row for row in fleet.open("poll_bound")}
    assert {subject: row["severity"] for subject, row in found.items()} == {
        ("g", None): "warning",
        (None, "ungrouped"): "warning",
        ("third", None): "info",
    }
    assert found["g", None]["evidence"] == {
        "window_minutes": 15,
        "members_bound": 1,
        "members": 2,
        "poll_idle_ratio_min": 0.02,
        "poll_idle_ratio_mean": 0.25,
        "worst_instance": "busy",
        "threshold": 0.1,
    }
    assert "1 of 2 members of group g" in found["g", None]["summary"]


def test_silent_client(fleet: Fleet) -> None:
    peers(fleet)
    fleet.client("silent", last_seen=NOW - minutes(17))
    fleet.client("late", last_seen=NOW - minutes(13))
    fleet.client("left", last_seen=NOW - minutes(17), terminated=True)
    fleet.client("gone", last_seen=NOW - minutes(76))
    assert fleet.look().opened == {"silent": 1}
    finding = fleet.one("silent")
    assert (finding["client_instance_id"], finding["severity"]) == ("silent", "info")
    assert finding["evidence"]["silent_s"] == 17 * 60
    assert finding["evidence"]["push_interval_ms"] == INTERVAL_MS
    assert finding["evidence"]["threshold_s"] == 900
    assert datetime.fromisoformat(finding["evidence"]["last_push"]) == NOW - minutes(17)
    assert datetime.fromisoformat(finding["evidence"]["cluster_newest_push"]) == NOW - minutes(1)


def test_a_cluster_that_is_silent_as_a_whole_is_not_its_clients_fault(fleet: Fleet) -> None:
    peers(fleet, cluster_id="up")
    for number in range(5):
        fleet.client(f"cut-off-{number}", cluster_id="down", last_seen=NOW - minutes(17))
    assert fleet.look().opened == {}


def test_versions(fleet: Fleet) -> None:
    librdkafka: dict[str, Any] = {"client_software_name": "confluent-kafka-python"}
    fleet.client("python-1", client_id="app", client_software_version="2.5.0", **librdkafka)
    fleet.client("python-2", client_id="app", client_software_version="2.5.0", **librdkafka)
    fleet.client("java", client_software_version="4.2.0")
    fleet.client("left", client_software_version="3.7.0", terminated=True)
    assert fleet.look().opened == {"known_bad_version": 1, "old_version": 1}
    finding = fleet.one("known_bad_version")
    assert (finding["client_software_name"], finding["client_software_version"]) == (
        "confluent-kafka-python",
        "2.5.0",
    )
    assert finding["severity"] == "warning"
    assert finding["evidence"]["clients"] == 2
    assert finding["evidence"]["client_ids"] == 1
    assert finding["evidence"]["some_client_ids"] == ["app"]
    assert "#4833" in finding["evidence"]["reasons"][0]
    assert len(finding["evidence"]["sources"]) == len(finding["evidence"]["reasons"])
    assert fleet.one("old_version")["severity"] == "info"


def test_versions_of_ones_own(fleet: Fleet) -> None:
    fleet.client("java", client_software_version="4.4.0")
    ours = {
        "client_software_name": "apache-kafka-java",
        "at_least": "4.4",
        "before": "4.4.1",
        "severity": "critical",
        "reason": "it lost our orders",
        "source": "incident 12",
    }
    settings = FindingSettings.model_validate({"known_bad_version": {"further": [ours]}})
    assert fleet.look(settings=settings).opened == {"known_bad_version": 1}
    finding = fleet.one("known_bad_version")
    assert finding["severity"] == "critical"
    assert finding["summary"].endswith("it lost our orders")


def test_a_finding_moves_on_and_is_resolved_when_it_was_untrue_for_long_enough(fleet: Fleet) -> None:
    key = fleet.client("app", throttle_ms_max=500.0)
    fleet.look()
    fleet.went_on(key, NOW + minutes(5), throttle_ms_max=1200.0)
    assert fleet.look(NOW + minutes(5)).opened == {}
    finding = fleet.one("throttled")
    assert (finding["first_seen"], finding["last_seen"]) == (NOW, NOW + minutes(5))
    assert finding["severity"] == "warning"
    assert finding["evidence"]["throttle_ms_max"] == 1200

    for minute in (10, 24):
        fleet.went_on(key, NOW + minutes(minute), throttle_ms_max=0.0)
        assert fleet.look(NOW + minutes(minute)).resolved == {}
    finding = fleet.one("throttled")
    assert finding["last_seen"] == NOW + minutes(5)
    assert datetime.fromisoformat(finding["evidence"]["untrue_since"]) == NOW + minutes(10)

    fleet.went_on(key, NOW + minutes(25), throttle_ms_max=0.0)
    assert fleet.look(NOW + minutes(25)).resolved == {"throttled": 1}
    (finding,) = fleet.findings("throttled")
    assert finding["resolved_at"] == NOW + minutes(25)

    fleet.went_on(key, NOW + minutes(30), throttle_ms_max=500.0)
    assert fleet.look(NOW + minutes(30)).opened == {"throttled": 1}
    assert len(fleet.findings("throttled")) == 2


def test_what_holds_again_soon_stays_open(fleet: Fleet) -> None:
    key = fleet.client("app", throttle_ms_max=500.0)
    fleet.look()
    for minute, throttled in ((10, 0.0), (20, 500.0), (30, 0.0)):
        fleet.went_on(key, NOW + minutes(minute), throttle_ms_max=throttled)
        assert fleet.look(NOW + minutes(minute)) == FindingCounts(opened={}, resolved={}, left_out={})
    assert datetime.fromisoformat(fleet.one("throttled")["evidence"]["untrue_since"]) == NOW + minutes(30)


def test_each_kind_is_resolved(fleet: Fleet) -> None:
    steady: dict[str, Any] = {
        "group_id": "g",
        "connections_created": 1.0,
        "request_latency_ms_sum": 10.0,
        "request_latency_points": 1.0,
        "throttle_ms_max": 0.0,
        "rebalances": 0.0,
        "rebalance_ms": 0.0,
        "poll_idle_ratio_sum": 0.5,
        "poll_idle_ratio_points": 1.0,
    }
    bad = steady | {
        "connections_created": 100.0,
        "request_latency_ms_sum": 5000.0,
        "throttle_ms_max": 500.0,
        "rebalances": 50.0,
        "poll_idle_ratio_sum": 0.0,
    }
    others = peers(fleet, **steady)
    key = fleet.client("bad", client_software_version="3.7.0", **bad)
    silent = fleet.client("silent", last_seen=NOW - minutes(17))
    kinds = {
        "throttled",
        "rebalance_storm",
        "connection_churn",
        "slow_client",
        "poll_bound",
        "silent",
        "old_version",
        "known_bad_version",
    }
    assert fleet.look().opened == dict.fromkeys(kinds, 1)
    values = {name: value for name, value in steady.items() if name != "group_id"}
    fleet.connection.execute(
        "UPDATE telemetry.client_state SET client_software_version = '4.4.0' WHERE client_key IN (%s, %s)",
        (key, silent),
    )
    resolved: dict[str, int] = {}
    for minute in range(10, 100, 10):
        for each in (*others, key, silent):
            fleet.went_on(each, NOW + minutes(minute), **values)
        counts = fleet.look(NOW + minutes(minute))
        assert counts.opened == {}
        resolved.update(counts.resolved)
    assert resolved == dict.fromkeys(kinds, 1)


def test_missing_data_finds_and_resolves_nothing(fleet: Fleet) -> None:
    key = fleet.client("app", throttle_ms_max=500.0)
    fleet.look()
    before = fleet.findings()
    # Nobody told anything for an hour: the job or the receiver was away.
    for minute in (20, 40, 60):
        assert fleet.look(NOW + minutes(minute)) == FindingCounts(opened={}, resolved={}, left_out={})
    assert fleet.findings() == before
    # The first pushes after it say too little of the window.
    fleet.went_on(key, NOW + minutes(62), pushes=1, throttle_ms_max=0.0)
    fleet.client("new", last_seen=NOW + minutes(61), pushes=1, throttle_ms_max=9000.0)
    assert fleet.look(NOW + minutes(62)).opened == {}
    assert fleet.one("throttled")["resolved_at"] is None


def test_before_a_clusters_first_client_nothing_is_missing(fleet: Fleet) -> None:
    began = NOW - minutes(4)
    fleet.client("app", first_seen=began, last_seen=NOW, pushes=5, interval_ms=60_000, throttle_ms_max=500.0)
    assert fleet.look().opened == {"throttled": 1}


def test_a_client_that_left_is_forgotten_while_others_go_on(fleet: Fleet) -> None:
    others = peers(fleet)
    fleet.client("app", throttle_ms_max=500.0)
    fleet.look()
    resolved_at = None
    for minute in range(5, 100, 5):
        for key in others:
            fleet.went_on(key, NOW + minutes(minute))
        if fleet.look(NOW + minutes(minute)).resolved.get("throttled"):
            resolved_at = minute
    # It last held after five minutes, and was forgotten an hour later.
    assert resolved_at == 65


def test_the_worst_are_open_and_the_others_counted(fleet: Fleet) -> None:
    for number in range(7):
        fleet.client(f"app-{number}", throttle_ms_max=100.0 + number)
    settings = FindingSettings(max_open=3)
    counts = fleet.look(settings=settings)
    assert (counts.opened, counts.left_out) == ({"throttled": 3}, {"throttled": 4})
    assert {row["client_id"] for row in fleet.open("throttled")} == {"app-4", "app-5", "app-6"}
    counts = fleet.look(settings=settings)
    assert (counts.opened, counts.left_out) == ({}, {"throttled": 4})


def test_a_kind_that_is_switched_off_is_not_looked_for(fleet: Fleet) -> None:
    fleet.client("app", throttle_ms_max=500.0, client_software_version="3.7.0")
    settings = FindingSettings.model_validate(
        {kind: {"enabled": False} for kind in ("throttled", "old_version")}
    )
    assert fleet.look(settings=settings).opened == {"known_bad_version": 1}


def test_unknown_clusters_are_one_cluster(fleet: Fleet) -> None:
    fleet.client("app", cluster_id=None, throttle_ms_max=500.0)
    assert fleet.look().opened == {"throttled": 1}
    assert fleet.look().opened == {}


_VALUES = st.one_of(st.none(), st.sampled_from([0.0, 0.01, 1.0, 100.0, 1e6]))


@hypothesis_settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    clients=st.lists(
        st.fixed_dictionaries(
            {
                "cluster_id": st.sampled_from(["c1", "c2", None]),
                "client_id": st.sampled_from(["a", "b", None]),
                "group_id": st.sampled_from(["g", None]),
                "principal": st.sampled_from(["User:p", None]),
                "client_software_version": st.sampled_from(["4.4.0", "3.7.0", "", None]),
                "last_seen": st.sampled_from([NOW - minutes(1), NOW - minutes(20)]),
                "first_seen": st.sampled_from([NOW - minutes(3), NOW - minutes(300)]),
                "throttle_ms_max": _VALUES,
                "connections_created": _VALUES,
                "request_latency_ms_sum": _VALUES,
                "request_latency_points": st.sampled_from([None, 0.0, 1.0]),
                "poll_idle_ratio_sum": _VALUES,
                "poll_idle_ratio_points": st.sampled_from([None, 0.0, 1.0]),
                "rebalances": _VALUES,
                "rebalance_ms": _VALUES,
            }
        ),
        max_size=25,
    ),
    max_open=st.integers(min_value=1, max_value=5),
)
def test_looking_twice_changes_nothing(fleet: Fleet, clients: list[dict[str, Any]], max_open: int) -> None:
    fleet.connection.execute(
        "TRUNCATE telemetry.client_state, telemetry.client_rollup_1m, telemetry.finding RESTART IDENTITY"
    )
    settings = FindingSettings(max_open=max_open)
    for number, client in enumerate(clients):
        fleet.client(f"i-{number}", pushes=4, **client)
    first = fleet.look(settings=settings)
    found = fleet.findings()
    with fleet.connection.transaction():
        again = find(fleet.connection, settings, NOW)
        assert find(fleet.connection, settings, NOW) == again
    assert again == FindingCounts(opened={}, resolved={}, left_out=first.left_out)
    assert fleet.findings() == found
    assert sum(first.opened.values()) == len(found)
    assert all(count <= max_open for count in first.opened.values())
