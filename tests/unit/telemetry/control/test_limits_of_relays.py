"""What the limits of a relay and of the core tell each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from receiver.settings.limits import LimitsSettings, PeerLimitsSettings, PrincipalLimitsSettings
from receiver.telemetry.control.limits import LimitName, Limits
from tests.unit.telemetry.control.test_limits import UNLIMITED, connection

SOURCE = "10.0.0.7"
NOW = 1000.0


def settings(**limits: int) -> LimitsSettings:
    source = UNLIMITED.model_copy(update=limits)
    return LimitsSettings(source_address=source, principal=UNLIMITED)


def open_many(limits: Limits, source: str = SOURCE, now: float = NOW) -> int:
    """Open connections until one is refused; return how many were admitted."""
    admitted = 0
    while limits.connection_opened(source, now) is None:
        admitted += 1
    return admitted


def test_usage_is_added_up_for_each_bucket() -> None:
    relay = Limits(settings(new_connections_per_second=100, core_ms_per_second=100), relays=2)
    for turn in range(3):
        assert relay.connection_opened(SOURCE, NOW + turn) is None
    relay.spent(connection(source_address=SOURCE), 0.001, NOW + 5)
    assert relay.take_usage() == [
        ("source_address", SOURCE, "new_connections", 3.0, NOW),
        ("source_address", SOURCE, "core_time", 1.0, NOW + 5),
    ]
    assert relay.take_usage() == []


def test_the_core_reports_no_usage() -> None:
    core = Limits(settings(new_connections_per_second=1))
    open_many(core)
    assert core.take_usage() == []
    assert not core.urgent


def test_a_flood_is_used_as_twenty_connections() -> None:
    relay = Limits(settings(new_connections_per_second=100), relays=1)
    relay.flooded(connection(source_address=SOURCE), NOW)
    assert relay.take_usage() == [("source_address", SOURCE, "new_connections", 20.0, NOW)]


def test_much_usage_is_urgent_until_it_is_taken() -> None:
    relay = Limits(settings(new_connections_per_second=10), relays=1)
    urgent = []
    for _ in range(6):
        assert relay.connection_opened(SOURCE, NOW) is None
        urgent.append(relay.urgent)
    relay.take_usage()
    assert [*urgent, relay.urgent] == [False] * 5 + [True, False]


def test_a_relay_leaves_room_for_the_others_until_the_core_has_counted() -> None:
    relay, core = (
        Limits(settings(new_connections_per_second=100), relays=4),
        Limits(settings(new_connections_per_second=100)),
    )
    assert open_many(relay) == 1000 // 8
    relay.raise_levels(core.add_usage(relay.take_usage(), NOW))
    assert relay.connection_opened(SOURCE, NOW) is not None
    relay.usage_counted()
    assert open_many(relay) == -(-(1000 - 125) // 8)


def test_what_was_used_after_the_report_is_not_counted_by_it() -> None:
    relay, core = (
        Limits(settings(new_connections_per_second=100), relays=4),
        Limits(settings(new_connections_per_second=100)),
    )
    for _ in range(20):
        relay.connection_opened(SOURCE, NOW)
    usage = relay.take_usage()
    for _ in range(50):
        assert relay.connection_opened(SOURCE, NOW) is None
    relay.raise_levels(core.add_usage(usage, NOW))
    relay.usage_counted()
    # 70 are known, 50 of them are counted eight times: (1000 - 70 - 350) / 8
    assert open_many(relay) == -(-580 // 8)


def test_the_only_relay_needs_no_room_for_others() -> None:
    assert open_many(Limits(settings(new_connections_per_second=100), relays=1)) == 1000


def test_a_relay_without_the_core_grants_the_whole_limit() -> None:
    relay = Limits(settings(new_connections_per_second=100), relays=4)
    admitted = open_many(relay)
    relay.alone = True
    assert admitted + open_many(relay) == 1000
    relay.alone = False
    assert relay.alone is False
    assert open_many(relay) == 0


def test_another_number_of_relays_counts_from_now_on() -> None:
    relay = Limits(settings(new_connections_per_second=100), relays=4)
    relay.replace_settings(settings(new_connections_per_second=100), relays=1)
    assert open_many(relay) == 1000


def test_the_core_answers_a_report_with_the_levels_of_its_buckets() -> None:
    core = Limits(settings(new_connections_per_second=64))
    usage = [("source_address", SOURCE, "new_connections", 16.0, NOW)]
    assert core.add_usage(usage, NOW) == [("source_address", SOURCE, "new_connections", NOW + 0.25)]
    assert core.add_usage(usage, NOW) == [("source_address", SOURCE, "new_connections", NOW + 0.5)]


def test_a_bucket_drains_from_its_first_use() -> None:
    core = Limits(settings(new_connections_per_second=64))
    assert core.add_usage([("source_address", SOURCE, "new_connections", 576.0, NOW - 9)], NOW) == []
    later = [("source_address", SOURCE, "new_connections", 64.0, NOW + 50)]  # another clock's now
    assert core.add_usage(later, NOW) == [("source_address", SOURCE, "new_connections", NOW + 1)]


def test_levels_that_relays_need_are_told_once() -> None:
    core = Limits(settings(new_connections_per_second=64, new_instances_per_minute=10))
    one = connection(source_address=SOURCE)
    core.use(LimitName.NEW_CONNECTIONS, one, 64, NOW)
    assert core.take_levels(NOW) == []  # a tenth of the bucket is too little to tell
    core.use(LimitName.NEW_CONNECTIONS, one, 1, NOW)
    core.use(LimitName.NEW_INSTANCES, one, 10, NOW)  # the core alone limits these
    assert core.take_levels(NOW) == [("source_address", SOURCE, "new_connections", NOW + 1.015625)]
    assert core.take_levels(NOW) == []


def test_a_level_only_raises_and_is_no_usage() -> None:
    relay = Limits(settings(new_connections_per_second=1), relays=1)
    relay.raise_levels([("source_address", SOURCE, "new_connections", NOW + 10)])
    exceeded = relay.connection_opened(SOURCE, NOW)
    assert exceeded is not None
    assert exceeded.retry_after_s == pytest.approx(1.0)
    relay.raise_levels([("source_address", SOURCE, "new_connections", NOW)])
    assert relay.connection_opened(SOURCE, NOW) is not None
    assert relay.take_usage() == []
    assert relay.connection_opened("10.0.0.8", NOW) is None


@pytest.mark.parametrize(("scope", "limit"), [("planet", "core_time"), ("principal", "luck")])
def test_unknown_buckets_are_refused(scope: str, limit: str) -> None:
    with pytest.raises(ValueError, match=r"planet|luck"):
        Limits(settings()).add_usage([(scope, "x", limit, 1.0, NOW)], NOW)
    with pytest.raises(ValueError, match=r"planet|luck"):
        Limits(settings(), relays=1).raise_levels([(scope, "x", limit, NOW)])


def test_the_core_counts_connections_of_all_relays_even_those_over_the_limit() -> None:
    core = Limits(settings(connections=2))
    many = [connection(source_address=SOURCE) for _ in range(3)]
    assert [core.admitted(item) is None for item in many] == [True, True, False]
    core.connection_closed(many[2])
    assert core.admitted(many[2]) is not None
    for item in many:
        core.connection_closed(item)
    assert core.admitted(many[0]) is None


def test_an_admitted_connection_is_no_usage_and_fills_no_bucket() -> None:
    core = Limits(settings(new_connections_per_second=1))
    for _ in range(50):
        assert core.admitted(connection(source_address=SOURCE)) is None
    assert core.take_levels(NOW) == []


def test_a_site_is_counted_with_its_networks() -> None:
    source = PeerLimitsSettings(connections=1)
    core = Limits(LimitsSettings(source_address=source, ipv6_block_factor=2))
    exceeded = [core.admitted(connection(source_address=f"2001:db8:0:{network}::1")) for network in range(3)]
    assert exceeded[:2] == [None, None]
    assert exceeded[2] is not None
    assert exceeded[2].scope == "address_block"


def test_a_login_counts_for_the_latest_principal_even_over_the_limit() -> None:
    core = Limits(LimitsSettings(source_address=UNLIMITED, principal=PrincipalLimitsSettings(connections=1)))
    first, second = connection(principal="User:alice"), connection(principal="User:alice")
    for item in (first, second):
        core.admitted(item)
    assert core.identified(first) is None
    assert core.identified(first) is None
    exceeded = core.identified(second)
    assert exceeded is not None
    assert (exceeded.scope, exceeded.peer) == ("principal", "User:alice")
    core.connection_closed(first)
    third = connection(principal="User:alice")
    core.admitted(third)
    assert core.identified(third) is not None  # the second is counted until it closes
    assert core.identified(replace(second, principal="User:bob")) is None
    core.connection_closed(third)
    fourth = connection(principal="User:alice")
    core.admitted(fourth)
    assert core.identified(fourth) is None
