"""Life cycle of findings on a real PostgreSQL: opened, refreshed, resolved."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from spark_streaming.findings import FindingCounts, FindingSettings, PacedFindings, find
from tests.exploration import examples
from tests.integration.rollup.findings.fleet import NOW, SETTINGS, Fleet, minutes, peers


def test_a_finding_is_refreshed_and_resolved_after_its_condition_ended(fleet: Fleet) -> None:
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


def test_a_finding_that_soon_holds_again_stays_open(fleet: Fleet) -> None:
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
    # It grows until now.
    lags = [20_000.0 + 1000 * push for push in range(7)] + [0.0] * 18
    fleet.lags("bad", lags, group_id="g", last=NOW + minutes(89))
    kinds = {
        "throttled",
        "rebalance_storm",
        "connection_churn",
        "slow_client",
        "poll_bound",
        "lagging",
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


def test_a_severity_rises_at_once_and_falls_after_a_while(fleet: Fleet) -> None:
    key = fleet.client("app", throttle_ms_max=900.0)

    def severity(minute: int, throttle_ms: float) -> str:
        fleet.went_on(key, NOW + minutes(minute), throttle_ms_max=throttle_ms)
        fleet.look(NOW + minutes(minute))
        return str(fleet.one("throttled")["severity"])

    shown = [
        severity(5 * number, throttle_ms)
        # Near 1 s it would go up and down with each look.
        for number, throttle_ms in enumerate((900.0, 1100.0, 900.0, 1100.0, 900.0, 900.0, 900.0, 900.0))
    ]
    assert shown == ["info", *["warning"] * 6, "info"]
    assert "milder_since" not in fleet.one("throttled")["evidence"]


def test_missing_data_finds_and_resolves_nothing(fleet: Fleet) -> None:
    key = fleet.client("app", throttle_ms_max=500.0)
    fleet.look()
    before = fleet.findings()
    # No client pushed for an hour: the job or the receiver was down.
    for minute in (20, 40, 60):
        assert fleet.look(NOW + minutes(minute)) == FindingCounts(opened={}, resolved={}, left_out={})
    assert fleet.findings() == before
    # The first pushes after it say too little of the window.
    fleet.went_on(key, NOW + minutes(62), pushes=1, throttle_ms_max=0.0)
    fleet.client("new", last_seen=NOW + minutes(61), pushes=1, throttle_ms_max=9000.0)
    assert fleet.look(NOW + minutes(62)).opened == {}
    assert fleet.one("throttled")["resolved_at"] is None


def test_no_data_is_missing_before_a_clusters_first_client(fleet: Fleet) -> None:
    began = NOW - minutes(4)
    fleet.client("app", first_seen=began, last_seen=NOW, pushes=5, interval_ms=60_000, throttle_ms_max=500.0)
    assert fleet.look().opened == {"throttled": 1}


def test_data_is_missing_between_old_and_new_clients_of_a_cluster(fleet: Fleet) -> None:
    fleet.client("before", last_seen=NOW - minutes(180))
    fleet.client(
        "new", first_seen=NOW - minutes(4), last_seen=NOW, pushes=5, interval_ms=60_000, throttle_ms_max=500.0
    )
    assert fleet.look().opened == {}


def test_findings_of_a_client_that_left_are_resolved(fleet: Fleet) -> None:
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


def test_the_worst_findings_are_open_and_the_others_counted(fleet: Fleet) -> None:
    for number in range(7):
        fleet.client(f"app-{number}", throttle_ms_max=100.0 + number)
    settings = FindingSettings(max_open=3)
    counts = fleet.look(settings=settings)
    assert (counts.opened, counts.left_out) == ({"throttled": 3}, {"throttled": 4})
    assert {row["client_id"] for row in fleet.open("throttled")} == {"app-4", "app-5", "app-6"}
    counts = fleet.look(settings=settings)
    assert (counts.opened, counts.left_out) == ({}, {"throttled": 4})


def test_a_disabled_kind_is_not_searched(fleet: Fleet) -> None:
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
    max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
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
def test_finding_twice_changes_nothing(fleet: Fleet, clients: list[dict[str, Any]], max_open: int) -> None:
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


def test_a_look_that_takes_long_is_repeated_less_often(fleet: Fleet) -> None:
    """The clock moves on when it is read, so that a look takes as long as it should."""
    time_s, look_s = 0.0, 0.0

    def clock() -> float:
        nonlocal time_s
        before, time_s = time_s, time_s + look_s
        return before

    findings = PacedFindings(SETTINGS, clock=clock)
    fleet.client("app", throttle_ms_max=500.0)

    def looks(at_s: float, *, taking_s: float, at_once: bool = False) -> bool:
        nonlocal time_s, look_s
        time_s, look_s = at_s, taking_s
        with fleet.connection.transaction():
            found = findings.find(fleet.connection, NOW + minutes(at_s / 60), at_once=at_once)
        return found is not None

    assert looks(0, taking_s=0.25)
    assert len(fleet.findings("throttled")) == 1
    assert not looks(49, taking_s=0)
    assert looks(50, taking_s=60)
    assert not looks(349, taking_s=0)
    assert looks(349, taking_s=0, at_once=True)
    assert looks(349, taking_s=0)
    assert looks(400, taking_s=10)
    assert not looks(699, taking_s=0)
    assert looks(700, taking_s=20)
    assert not looks(1099, taking_s=0)
    assert looks(1100, taking_s=0)
