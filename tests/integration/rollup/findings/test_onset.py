"""When conditions began and ended, by the pushed minutes, on a real PostgreSQL."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from tests.integration.rollup.findings.fleet import NOW, SETTINGS, Fleet, minutes, peers

MINUTE_MS: Final = 60_000
ONSET: Final = NOW - minutes(43)
#: By kind: what a client pushes each minute before the condition, and during it.
STORIES: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "throttled": ({"throttle_ms_max": 20.0}, {"throttle_ms_max": 450.0}),
    "rebalance_storm": (
        {"group_id": "g", "rebalances": 0.0, "rebalance_ms": 0.0},
        {"rebalances": 1.0, "rebalance_ms": 900.0},
    ),
    "connection_churn": ({"connections_created": 0.0}, {"connections_created": 12.0}),
    "slow_client": (
        {"request_latency_ms_sum": 12.0, "request_latency_points": 1.0},
        {"request_latency_ms_sum": 900.0, "request_latency_points": 1.0},
    ),
    "poll_bound": (
        {"group_id": "g", "poll_idle_ratio_sum": 0.45, "poll_idle_ratio_points": 1.0},
        {"poll_idle_ratio_sum": 0.01, "poll_idle_ratio_points": 1.0},
    ),
    "shared_instance": ({}, {"push_interval_ms_sum": 2 * MINUTE_MS}),
}


class Story:
    """A client among peers that pushes each minute: well, and badly from :data:`ONSET`."""

    def __init__(self, fleet: Fleet, kind: str) -> None:
        self.fleet, self.kind = fleet, kind
        self.well, self.badly = STORIES[kind]
        labels = {"group_id": self.well["group_id"]} if "group_id" in self.well else {}
        self.keys = peers(fleet, interval_ms=MINUTE_MS, pushes=0, **labels)
        self.key = fleet.client("bad", interval_ms=MINUTE_MS, pushes=0, **labels)

    def goes(self, since: datetime, until: datetime, *, badly: bool = False) -> None:
        """Let all push in each minute from one to before another; the others always well."""
        pushes = round((until - since) / timedelta(minutes=1))
        well = {name: value for name, value in self.well.items() if name != "group_id"}
        for key in (*self.keys, self.key):
            values = self.badly if badly and key == self.key else well
            self.fleet.says(key, until - minutes(1), pushes=pushes, interval_ms=MINUTE_MS, **values)

    def look(self, now: datetime) -> dict[str, Any] | None:
        """Look at a minute; return the newest finding of the kind."""
        self.fleet.connection.execute(
            "UPDATE telemetry.client_state SET last_seen = %s WHERE client_key = ANY(%s)",
            [now, [*self.keys, self.key]],
        )
        self.fleet.look(now)
        return next(reversed(self.fleet.findings(self.kind)), None)


@pytest.mark.parametrize("kind", STORIES)
@pytest.mark.parametrize("earlier", [0, 300], ids=["known-past", "long-past"])
def test_the_onset_is_the_first_minute_of_the_condition(fleet: Fleet, kind: str, earlier: int) -> None:
    story = Story(fleet, kind)
    story.goes(ONSET - minutes(60), ONSET - minutes(earlier))
    story.goes(ONSET - minutes(earlier), NOW + minutes(1), badly=True)
    finding = story.look(NOW)
    assert finding is not None
    assert (finding["began_at"], finding["held_at"]) == (ONSET - minutes(earlier), NOW)
    assert finding["ended_at"] is None


@pytest.mark.parametrize("kind", STORIES)
def test_looks_at_other_minutes_find_the_same_times(fleet: Fleet, kind: str) -> None:
    found = []
    for looks in (range(30, 130, 10), range(45, 140, 14)):
        fleet.connection.execute(
            "TRUNCATE telemetry.client_state, telemetry.client_rollup_1m, telemetry.finding RESTART IDENTITY"
        )
        story = Story(fleet, kind)
        story.goes(ONSET - minutes(60), ONSET)
        # A bad minute long before it is not part of it.
        story.goes(ONSET - minutes(61), ONSET - minutes(60), badly=True)
        story.goes(ONSET, ONSET + minutes(50), badly=True)
        story.goes(ONSET + minutes(50), ONSET + minutes(151))
        for minute in looks:
            story.look(ONSET + minutes(minute))
        found.append([(row["began_at"], row["held_at"], row["ended_at"]) for row in fleet.findings(kind)])
    end = ONSET + minutes(50)
    assert found == [[(ONSET, end - minutes(1), end)]] * 2


def test_throttling_counts_a_minute_of_several_instances_once(fleet: Fleet) -> None:
    for name in ("one", "two", "three"):
        fleet.client(name, client_id="app", interval_ms=MINUTE_MS, pushes=60, throttle_ms_max=500.0)
    fleet.look()
    assert fleet.one("throttled")["evidence"]["throttled_minutes"] == 14
    assert "in 14 minutes of the last 15 (3 of 3 instances)" in fleet.one("throttled")["summary"]


def test_a_push_in_five_minutes_shows_the_onset_to_a_push(fleet: Fleet) -> None:
    key = fleet.client("app", last_seen=ONSET - minutes(5), throttle_ms_max=0.0, pushes=12)
    fleet.says(key, NOW - minutes(3), pushes=9, throttle_ms_max=500.0)
    fleet.connection.execute("UPDATE telemetry.client_state SET last_seen = %s", [NOW])
    fleet.look()
    assert fleet.one("throttled")["began_at"] == NOW - minutes(43)


def test_a_group_is_bound_since_its_first_member_was_though_members_change(fleet: Fleet) -> None:
    def member(name: str, since: datetime, until: datetime) -> None:
        pushes = round((until - since) / timedelta(minutes=1))
        values: dict[str, Any] = {"poll_idle_ratio_sum": 0.01, "poll_idle_ratio_points": 1.0}
        fleet.client(
            name, group_id="g", last_seen=until - minutes(1), interval_ms=MINUTE_MS, pushes=pushes, **values
        )

    member("first", ONSET, ONSET + minutes(20))
    member("second", ONSET + minutes(18), NOW + minutes(1))
    fleet.look()
    assert fleet.one("poll_bound")["began_at"] == ONSET


@pytest.mark.parametrize("group", ["g", None])
def test_a_reader_lags_since_its_lag_passed_the_threshold(fleet: Fleet, group: str | None) -> None:
    start = NOW - minutes(300)
    fleet.client("slow", group_id=group, pushes=60, interval_ms=MINUTE_MS)
    lags = [0.0] * 200 + [150.0 * minute for minute in range(101)]
    fleet.lags("slow", lags, group_id=group, last=NOW, interval_ms=MINUTE_MS)
    fleet.look()
    assert fleet.one("lagging")["began_at"] == start + minutes(200 + 67)


def test_the_time_of_day_is_only_when_it_was_found(fleet: Fleet) -> None:
    fleet.client("app", throttle_ms_max=500.0)
    at = NOW + minutes(7)
    fleet.look(found_at=at)
    finding = fleet.one("throttled")
    assert (finding["first_seen"], finding["last_seen"]) == (at, NOW)


def test_a_silent_client_began_with_its_last_push_and_ends_with_the_next(fleet: Fleet) -> None:
    others = peers(fleet)
    key = fleet.client("silent", last_seen=NOW - minutes(17))
    fleet.look()
    assert fleet.one("silent")["began_at"] == NOW - minutes(17)
    fleet.says(key, NOW + minutes(11), pushes=1)
    for minute in (12, 27, 30):
        for other in (*others, key):
            fleet.connection.execute(
                "UPDATE telemetry.client_state SET last_seen = %s WHERE client_key = %s",
                (NOW + minutes(minute), other),
            )
        for other in others:
            fleet.says(other, NOW + minutes(minute), pushes=3)
        fleet.look(NOW + minutes(minute))
    (finding,) = fleet.findings("silent")
    assert (finding["began_at"], finding["ended_at"]) == (NOW - minutes(17), NOW + minutes(11))


def test_a_version_began_with_the_first_client_that_had_it(fleet: Fleet) -> None:
    old: dict[str, Any] = {"client_software_version": "3.7.0"}
    fleet.client("gone", first_seen=NOW - minutes(5000), last_seen=NOW - minutes(4000), **old)
    fleet.client("there", first_seen=NOW - minutes(100), **old)
    fleet.look()
    assert {row["began_at"] for row in fleet.findings()} == {NOW - minutes(5000)}


def test_windows_are_those_of_the_settings(fleet: Fleet) -> None:
    story = Story(fleet, "throttled")
    story.goes(ONSET - minutes(200), ONSET)
    story.goes(ONSET, ONSET + minutes(3), badly=True)
    story.goes(ONSET + minutes(3), NOW + minutes(1))
    assert story.look(NOW) is None
    wide = SETTINGS.model_copy(
        update={"throttled": SETTINGS.throttled.model_copy(update={"window_minutes": 60})}
    )
    fleet.look(NOW, wide)
    assert fleet.one("throttled")["began_at"] == ONSET
