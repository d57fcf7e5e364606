"""Each kind of finding on a real PostgreSQL: found, and just not found."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from spark_streaming.findings import FindingCounts, FindingSettings
from tests.integration.rollup.findings.fleet import INTERVAL_MS, NOW, Fleet, minutes, peers


def test_nothing_is_found_without_clients(fleet: Fleet) -> None:
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
        "throttled_minutes": 3,
        "instances_throttled": 2,
        "instances": 2,
        "threshold_ms": 100,
        "threshold_minutes": 2,
    }
    assert finding["summary"] == (
        "Client id app of User:app was throttled for up to 1500 ms, in 3 minutes of the last 15 "
        "(2 of 2 instances)"
    )


def test_a_single_burst_is_no_throttling(fleet: Fleet) -> None:
    key = fleet.client("burst", throttle_ms_max=0.0)
    fleet.says(key, NOW - minutes(3), pushes=1, throttle_ms_max=5000.0)
    assert fleet.look().opened == {}
    fleet.says(key, NOW - minutes(4), pushes=1, throttle_ms_max=150.0)
    assert fleet.look().opened == {"throttled": 1}


def test_light_throttling_has_a_lower_severity(fleet: Fleet) -> None:
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


def test_a_rolling_restart_is_not_a_storm(fleet: Fleet) -> None:
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


def test_connection_churn_of_short_lived_instances(fleet: Fleet) -> None:
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


@pytest.mark.parametrize("consumers_open", [1.0, 4.0])
def test_a_client_id_that_produces_and_consumes_is_judged_once(fleet: Fleet, consumers_open: float) -> None:
    began = NOW - minutes(5)
    for consumes, opened in ((False, 4.0), (True, consumers_open)):
        values: dict[str, Any] = {"poll_idle_ratio_sum": 0.5 if consumes else None}
        for number in range(5):
            fleet.client(f"steady-{consumes}-{number}", connections_created=1.0, **values)
        for number in range(10):
            fleet.client(
                f"brief-{consumes}-{number}",
                client_id="crasher",
                first_seen=began,
                last_seen=began,
                pushes=1,
                terminated=True,
                connections_created=opened,
                **values,
            )
    assert fleet.look().opened == {"connection_churn": 1}
    fleet.look()
    finding = fleet.one("connection_churn")
    assert (finding["client_id"], finding["client_instance_id"]) == ("crasher", None)
    assert finding["evidence"]["connections"] == 40
    assert "untrue_since" not in finding["evidence"]


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
    assert (", with the broker's wait for data;" in finding["summary"]) == consumer


def test_a_slow_producer_comes_before_a_consumer_that_waits_for_data(fleet: Fleet) -> None:
    for number in range(5):
        fleet.client(f"p{number}", request_latency_ms_sum=8.0, request_latency_points=1.0)
        fleet.client(f"c{number}", group_id="g", request_latency_ms_sum=8.0, request_latency_points=1.0)
    fleet.client("slow", request_latency_ms_sum=300.0, request_latency_points=1.0)
    fleet.client("waits", group_id="g", request_latency_ms_sum=60_000.0, request_latency_points=1.0)
    counts = fleet.look(settings=FindingSettings(max_open=1))
    assert (counts.opened, counts.left_out) == ({"slow_client": 1}, {"slow_client": 1})
    assert fleet.one("slow_client")["client_instance_id"] == "slow"


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


def reader(
    fleet: Fleet, name: str, lags: list[float], *, group: str | None = "g", a_minute: float = 1000.0
) -> None:
    """Add a client that reads four partitions, each so many records a minute."""
    fleet.client(name, group_id=group, records=5 * 4 * a_minute, assigned_partitions=4.0)
    fleet.lags(name, lags, group_id=group)


def test_a_group_whose_lag_grows_is_lagging(fleet: Fleet) -> None:
    reader(fleet, "behind", [40_000.0 + 210 * minute for minute in range(0, 35, 5)])
    reader(fleet, "keeps-up", [10.0] * 7)
    assert fleet.look().opened == {"lagging": 1}
    finding = fleet.one("lagging")
    assert (finding["cluster_id"], finding["group_id"], finding["client_id"]) == ("c1", "g", None)
    assert finding["severity"] == "warning"
    assert finding["evidence"] == {
        "window_minutes": 30,
        "lag": 46_300,
        "per_minute": 210,
        "behind_minutes": 46.3,
        "worst_instance": "behind",
        "threshold": 10_000,
        "threshold_minutes": 15,
    }
    assert finding["summary"] == (
        "Group g is 46300 records behind in a partition, 46 minutes at its rate, and the lag grows by 210 "
        "a minute: client id behind is the furthest behind"
    )


@pytest.mark.parametrize(
    ("lags", "a_minute", "severity"),
    [
        # Grows.
        ([20_000.0, 21_000.0, 22_000.0, 23_000.0, 24_000.0, 25_000.0], 2000.0, "warning"),
        # Grows, and nobody waits for a minute.
        ([20_000.0, 21_000.0, 22_000.0, 23_000.0, 24_000.0, 25_000.0], 26_000.0, None),
        # Is small, and grows.
        ([1000.0, 3000.0, 5000.0, 7000.0, 9000.0, 9999.0], 10.0, None),
        # Is steady: by the time that it takes.
        ([15_000.0] * 6, 1000.0, "warning"),
        ([14_900.0] * 6, 1000.0, None),
        ([60_000.0] * 6, 1000.0, "critical"),
        ([15_000.0] * 6, 0.0, "critical"),
        # Goes up and down.
        ([20_000.0, 12_000.0, 21_000.0, 11_000.0, 20_000.0, 12_000.0], 1000.0, None),
        # Falls: it needs time only.
        ([90_000.0, 88_000.0, 86_000.0, 84_000.0, 82_000.0, 80_000.0], 1000.0, None),
        # Too few for a trend.
        ([90_000.0, 95_000.0], 1000.0, None),
    ],
)
def test_lagging_by_growth_and_by_time(
    fleet: Fleet, lags: list[float], a_minute: float, severity: str | None
) -> None:
    for group in ("g", None):
        reader(fleet, f"of-{group}", lags, group=group, a_minute=a_minute)
    fleet.look()
    found = {(row["group_id"], row["client_id"]): row["severity"] for row in fleet.open("lagging")}
    assert found == ({} if severity is None else {("g", None): severity, (None, "of-None"): severity})


def test_silent_client(fleet: Fleet) -> None:
    peers(fleet)
    fleet.client("silent", last_seen=NOW - minutes(17))
    fleet.client("late", last_seen=NOW - minutes(13))
    fleet.client("left", last_seen=NOW - minutes(17), terminated=True)
    fleet.client("gone", last_seen=NOW - minutes(76))
    for name, after in (("closed", 0.1), ("back", -1)):
        last_seen = NOW - minutes(17 if after > 0 else 13)
        key = fleet.client(name, last_seen=last_seen)
        fleet.connection.execute(
            "UPDATE telemetry.client_state SET disconnected_at = %s WHERE client_key = %s",
            (last_seen + minutes(after), key),
        )
    assert fleet.look().opened == {"silent": 1}
    finding = fleet.one("silent")
    assert (finding["client_instance_id"], finding["severity"]) == ("silent", "info")
    assert finding["evidence"]["silent_s"] == 17 * 60
    assert finding["evidence"]["push_interval_ms"] == INTERVAL_MS
    assert finding["evidence"]["threshold_s"] == 900
    assert datetime.fromisoformat(finding["evidence"]["last_push"]) == NOW - minutes(17)
    assert datetime.fromisoformat(finding["evidence"]["cluster_newest_push"]) == NOW - minutes(1)


def test_a_client_that_is_silent_since_a_minute_after_the_windows(fleet: Fleet) -> None:
    peers(fleet)
    fleet.client("silent", last_seen=NOW + minutes(1), interval_ms=2_000)
    fleet.client("newest", last_seen=NOW + minutes(2), interval_ms=2_000)
    assert fleet.look().opened == {"silent": 1}
    finding = fleet.one("silent")
    assert finding["evidence"]["silent_s"] == 60
    assert "has not pushed for 60 s" in finding["summary"]


def test_a_cluster_that_is_silent_as_a_whole_has_no_silent_clients(fleet: Fleet) -> None:
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


def test_a_bug_of_producers_is_found_for_producers_alone(fleet: Fleet) -> None:
    java: dict[str, Any] = {"client_software_version": "3.9.1"}
    fleet.client("reader", poll_idle_ratio_sum=0.5, poll_idle_ratio_points=1.0, **java)
    fleet.client("member", group_id="g", **java)
    fleet.look()
    assert {(row["kind"], row["severity"]) for row in fleet.findings()} == {
        ("old_version", "info"),
        ("known_bad_version", "info"),
    }
    fleet.client("writer", record_errors=0.0, **java)
    fleet.look(NOW + minutes(1))
    finding = fleet.one("known_bad_version")
    assert finding["severity"] == "critical"
    assert finding["evidence"]["some_client_ids"] == ["writer"]
    assert fleet.one("old_version")["evidence"]["clients"] == 3


def test_configured_versions(fleet: Fleet) -> None:
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


def test_a_shared_instance(fleet: Fleet) -> None:
    def client(name: str, pushes: int, **other: Any) -> None:
        fleet.client(name, pushes=pushes, **other)

    # Each row is a minute with one push, which the view adds up.
    twice = {"push_interval_ms_sum": 2 * INTERVAL_MS}
    once = {"push_interval_ms_sum": INTERVAL_MS}
    client("two", 12, **twice)
    client("one", 12, **once)
    client("few", 5, **twice)
    client("left", 12, terminated=True, **twice)
    # Asked for more often since its last push but one: the first push had another interval.
    client("unknown", 12)
    assert fleet.look().opened == {"shared_instance": 1}
    finding = fleet.one("shared_instance")
    assert (finding["client_instance_id"], finding["severity"]) == ("two", "warning")
    assert finding["evidence"] == {
        "window_minutes": 30,
        "pushes": 6,
        "span_s": 1740,
        "push_interval_ms": INTERVAL_MS,
        "processes": 1.7,
        "addresses": None,
        "brokers": None,
        "threshold": 1.5,
    }


def test_a_cluster_of_unknown_intervals_shares_no_instance(fleet: Fleet) -> None:
    """The intervals of a Collector's clients are those of a setting, which may be too long."""
    for number in range(4):
        fleet.client(f"client-{number}", pushes=12, push_interval_ms_sum=2 * INTERVAL_MS)
    assert fleet.look().opened == {}
    for number in range(4, 8):
        fleet.client(f"client-{number}", pushes=12, push_interval_ms_sum=INTERVAL_MS)
    assert fleet.look().opened == {"shared_instance": 4}


def test_a_shorter_interval_is_no_second_process(fleet: Fleet) -> None:
    """The last push with the long interval was followed by others much sooner."""
    key = fleet.client("asked-more-often", pushes=0, interval_ms=10_000)
    for minute in range(1, 20):
        fleet.says(key, NOW - minutes(minute), pushes=1, push_interval_ms_sum=60_000)
    fleet.says(key, NOW - minutes(20), pushes=1, push_interval_ms_sum=1_200_000)
    assert fleet.look().opened == {}
