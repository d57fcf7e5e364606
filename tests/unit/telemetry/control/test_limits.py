"""Limits of peers: sources, address blocks and principals."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from receiver.principal.sasl import UNKNOWN_PRINCIPAL
from receiver.settings.limits import LimitsSettings, PeerLimitsSettings, PrincipalLimitsSettings
from receiver.telemetry.control.limits import Exceeded, LimitName, Limits
from receiver.telemetry.identity import ANONYMOUS, ClientIdentity
from tests.unit.telemetry import parts

UNLIMITED = PrincipalLimitsSettings(
    connections=None,
    new_connections_per_second=None,
    new_instances_per_minute=None,
    telemetry_requests_per_second=None,
    core_ms_per_second=None,
    rejected_bytes_per_minute=None,
)


_numbers = itertools.count()


def connection(**facts: Any) -> ClientIdentity:
    """Return the identity of another connection."""
    return parts.connection(id=str(next(_numbers)), **facts)


def by_source(**limits: int) -> Limits:
    return Limits(LimitsSettings(source_address=UNLIMITED.model_copy(update=limits), principal=UNLIMITED))


def by_principal(**limits: int) -> Limits:
    return Limits(LimitsSettings(source_address=UNLIMITED, principal=UNLIMITED.model_copy(update=limits)))


@pytest.mark.parametrize(
    ("source_address", "peer"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("::FFFF:a00:7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:0DB8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("unix:/run/x", "unix:/run/x"),
        ("", ""),
    ],
)
def test_a_source_is_an_ipv4_address_or_an_ipv6_network(source_address: str, peer: str) -> None:
    limits = by_source(connections=1)
    assert limits.connection_opened(source_address, 0) is None
    exceeded = limits.connection_opened(source_address, 0)
    assert exceeded == Exceeded(
        limit=LimitName.CONNECTIONS, scope="source_address", peer=peer, allowed=1, retry_after_s=0.0
    )
    assert str(exceeded) == f"{peer} is over limits.source_address.connections (1)"


@pytest.mark.parametrize("limit", LimitName)
def test_a_limit_names_its_settings_key(limit: LimitName) -> None:
    exceeded = Exceeded(limit=limit, scope="principal", peer="User:alice", allowed=7, retry_after_s=1.0)
    limits, scope, key = exceeded.setting.split(".")
    assert (limits, scope) == ("limits", "principal")
    assert key in PrincipalLimitsSettings.model_fields
    assert str(exceeded) == f"User:alice is over {exceeded.setting} (7)"


def test_addresses_of_one_network_share_limits() -> None:
    limits = by_source(connections=1, new_instances_per_minute=1)
    assert limits.connection_opened("2001:db8::1", 0) is None
    assert limits.connection_opened("2001:db8::2", 0) is not None
    assert limits.connection_opened("2001:db8:0:1::1", 0) is None
    limits.connection_closed(connection(source_address="2001:db8::3"))
    assert limits.connection_opened("2001:db8::2", 0) is None
    one, other = connection(source_address="2001:db8::1"), connection(source_address="2001:db8::2")
    assert limits.take(LimitName.NEW_INSTANCES, one, 0) is None
    assert limits.take(LimitName.NEW_INSTANCES, other, 0) is not None


@pytest.mark.parametrize("principal", [ANONYMOUS, UNKNOWN_PRINCIPAL])
def test_shared_principals_have_no_limits(principal: str) -> None:
    limits = by_principal(
        connections=1,
        new_connections_per_second=1,
        new_instances_per_minute=1,
        telemetry_requests_per_second=1,
        core_ms_per_second=1,
        rejected_bytes_per_minute=1,
    )
    for _ in range(20):
        one = connection(principal=principal)
        assert limits.authenticated(one, 0) is None
        assert limits.take(LimitName.NEW_INSTANCES, one, 0) is None
        assert limits.telemetry_request(one, 0) is None
        limits.use(LimitName.REJECTED_BYTES, one, 1000, 0)
        limits.spent(one, 1.0, 0)
        assert limits.over(LimitName.REJECTED_BYTES, one, 0) is None
        limits.connection_opened(one.source_address, 0)
        limits.connection_closed(one)


def test_a_connection_counts_for_its_latest_principal_only() -> None:
    limits = by_principal(connections=1)
    alice, bob = connection(principal="User:alice"), connection(principal="User:bob")
    for item in (alice, bob):
        assert limits.connection_opened(item.source_address, 0) is None
        assert limits.authenticated(item, 0) is None
        assert limits.authenticated(item, 0) is None
    alice = replace(alice, principal="User:bob")
    assert limits.authenticated(alice, 0) is not None
    again = connection(principal="User:alice")
    assert limits.connection_opened(again.source_address, 0) is None
    assert limits.authenticated(again, 0) is None
    # A refused connection counts for no principal.
    limits.connection_closed(alice)
    assert limits.authenticated(connection(principal="User:bob"), 0) is not None
    limits.connection_closed(bob)
    assert limits.authenticated(connection(principal="User:bob"), 0) is None


def test_requests_have_a_burst_and_a_rate() -> None:
    limits = by_source(telemetry_requests_per_second=2)
    one = connection()
    assert [limits.telemetry_request(one, 5.0) for _ in range(20)] == [None] * 20
    exceeded = limits.telemetry_request(one, 5.0)
    assert exceeded is not None
    assert (exceeded.limit, exceeded.retry_after_s) == (LimitName.TELEMETRY_REQUESTS, 0.5)
    # Refused requests do not count: after a second there is room for two.
    assert [limits.telemetry_request(one, 6.0) is None for _ in range(3)] == [True, True, False]
    assert limits.telemetry_request(connection(source_address="10.0.0.8"), 6.0) is None


def test_a_rounding_error_does_not_refuse() -> None:
    limits = by_source(telemetry_requests_per_second=10)
    one = connection()
    assert [limits.telemetry_request(one, 0.2) for _ in range(100)] == [None] * 100
    assert 0.3 - 0.2 < 0.1
    assert limits.telemetry_request(one, 0.2999) is not None
    assert limits.telemetry_request(one, 0.3) is None


def alice() -> ClientIdentity:
    return connection(principal="User:alice")


@pytest.mark.parametrize(
    ("new_limits", "ask"),
    [
        (
            lambda: by_source(telemetry_requests_per_second=2),
            lambda limits, now: limits.telemetry_request(alice(), now),
        ),
        (
            lambda: by_source(new_connections_per_second=2),
            lambda limits, now: limits.connection_opened("10.0.0.7", now),
        ),
        (
            lambda: by_principal(new_connections_per_second=2),
            lambda limits, now: limits.authenticated(alice(), now),
        ),
    ],
)
def test_clients_that_retry_are_admitted_one_after_the_other(
    new_limits: Callable[[], Limits], ask: Callable[[Limits, float], Exceeded | None]
) -> None:
    """A hundred clients behind one address retry once a second until they are admitted."""
    limits = new_limits()
    waiting, let_in_at = 100, [0]
    for second in range(41):
        let_in = sum(ask(limits, float(second)) is None for _ in range(waiting))
        waiting -= let_in
        let_in_at.append(let_in)
    assert let_in_at[1:5] == [20, 2, 2, 2]
    assert waiting == 0


def test_a_flood_of_one_host_does_not_use_up_a_shared_principal() -> None:
    limits = Limits(
        LimitsSettings(
            source_address=UNLIMITED.model_copy(update={"telemetry_requests_per_second": 1}),
            principal=UNLIMITED.model_copy(update={"telemetry_requests_per_second": 2}),
        )
    )
    refused = [limits.telemetry_request(alice(), 0) for _ in range(1000)][10:]
    assert {exceeded and exceeded.scope for exceeded in refused} == {"source_address"}
    other = replace(alice(), source_address="10.0.0.8")
    assert [limits.telemetry_request(other, 0) for _ in range(10)] == [None] * 10
    # A flood of a principal does not use up its hosts either.
    other = replace(other, source_address="10.0.0.9")
    refused = [limits.telemetry_request(other, 0) for _ in range(1000)]
    assert {exceeded and exceeded.scope for exceeded in refused} == {"principal"}
    bob = connection(principal="User:bob", source_address="10.0.0.9")
    assert limits.telemetry_request(bob, 0) is None


def test_a_peer_over_its_cpu_time_waits_until_the_bucket_drains() -> None:
    limits = by_source(core_ms_per_second=50)
    one = connection()
    # Two expensive pushes are within the burst of four seconds; then there is a debt.
    for _ in range(2):
        assert limits.telemetry_request(one, 0) is None
        limits.spent(one, 0.08, 0)
    assert limits.telemetry_request(one, 0) is None
    limits.spent(one, 0.54, 0)
    exceeded = limits.telemetry_request(one, 0)
    assert exceeded is not None
    assert (exceeded.limit, exceeded.scope, exceeded.allowed) == (LimitName.CORE_TIME, "source_address", 50)
    assert exceeded.retry_after_s == pytest.approx(10.02)
    # A refusal costs nothing.
    assert limits.telemetry_request(one, 10.0) is not None
    assert limits.telemetry_request(one, 10.03) is None
    assert limits.telemetry_request(connection(source_address="10.0.0.8"), 0) is None


def test_cpu_debt_is_at_most_a_minute() -> None:
    limits = by_principal(core_ms_per_second=200)
    one = alice()
    limits.spent(one, 3600.0, 0)
    exceeded = limits.telemetry_request(one, 0)
    assert exceeded is not None
    assert (exceeded.limit, exceeded.scope) == (LimitName.CORE_TIME, "principal")
    assert exceeded.retry_after_s == pytest.approx(60.005)
    assert limits.telemetry_request(one, 60.01) is None


def test_requests_refused_for_cpu_time_count_as_requests() -> None:
    limits = by_source(core_ms_per_second=50, telemetry_requests_per_second=2)
    one = connection()
    limits.spent(one, 60.0, 0)
    names = [
        exceeded and exceeded.limit for exceeded in (limits.telemetry_request(one, 0) for _ in range(22))
    ]
    assert names == [LimitName.CORE_TIME] * 20 + [LimitName.TELEMETRY_REQUESTS] * 2


def test_connections_over_the_rate_are_not_counted_as_open() -> None:
    limits = by_source(connections=15, new_connections_per_second=1)
    assert [limits.connection_opened("10.0.0.7", 0) for _ in range(10)] == [None] * 10
    exceeded = limits.connection_opened("10.0.0.7", 0)
    assert exceeded == Exceeded(
        limit=LimitName.NEW_CONNECTIONS,
        scope="source_address",
        peer="10.0.0.7",
        allowed=1,
        retry_after_s=1.0,
    )
    assert limits.connection_opened("10.0.0.8", 0) is None
    assert [limits.connection_opened("10.0.0.7", 20) for _ in range(5)] == [None] * 5
    exceeded = limits.connection_opened("10.0.0.7", 20)
    assert exceeded is not None
    assert exceeded.limit is LimitName.CONNECTIONS


def test_reauthentication_is_not_a_new_connection() -> None:
    limits = by_principal(new_connections_per_second=1)
    one = alice()
    assert [limits.authenticated(one, 0) for _ in range(100)] == [None] * 100
    for number in range(100):
        one = replace(one, principal=f"User:{number}")
        assert limits.authenticated(one, 0) is None
    one = replace(one, principal="User:alice")
    assert [limits.authenticated(one, 0) is None for _ in range(2)] == [True, True]


def test_a_refusal_counts_for_no_peer() -> None:
    limits = Limits(
        LimitsSettings(
            source_address=UNLIMITED.model_copy(update={"new_instances_per_minute": 3}),
            principal=UNLIMITED.model_copy(update={"new_instances_per_minute": 1}),
        )
    )
    alice, bob = connection(principal="User:alice"), connection(principal="User:bob")
    assert limits.take(LimitName.NEW_INSTANCES, alice, 0) is None
    for _ in range(5):
        exceeded = limits.take(LimitName.NEW_INSTANCES, alice, 0)
        assert exceeded is not None
        assert (exceeded.scope, exceeded.peer, exceeded.allowed) == ("principal", "User:alice", 1)
    assert limits.take(LimitName.NEW_INSTANCES, bob, 0) is None
    carol = connection(principal="User:carol")
    assert limits.take(LimitName.NEW_INSTANCES, carol, 0) is None
    dave = connection(principal="User:dave")
    exceeded = limits.take(LimitName.NEW_INSTANCES, dave, 0)
    assert exceeded is not None
    assert exceeded.scope == "source_address"
    dave = replace(dave, source_address="10.0.0.8")
    assert limits.take(LimitName.NEW_INSTANCES, dave, 0) is None


def test_one_refused_push_blocks_for_at_most_two_minutes() -> None:
    limits = by_source(rejected_bytes_per_minute=1000)
    one = connection()
    limits.use(LimitName.REJECTED_BYTES, one, 999, 0)
    assert limits.over(LimitName.REJECTED_BYTES, one, 0) is None
    limits.use(LimitName.REJECTED_BYTES, one, 10**9, 0)
    exceeded = limits.over(LimitName.REJECTED_BYTES, one, 0)
    assert exceeded is not None
    assert exceeded.limit is LimitName.REJECTED_BYTES
    assert exceeded.retry_after_s == pytest.approx(60.06)
    assert limits.over(LimitName.REJECTED_BYTES, one, 60.0) is not None
    assert limits.over(LimitName.REJECTED_BYTES, one, 60.06) is None
    assert limits.telemetry_request(one, 0) is None


def test_a_refused_peer_is_not_forgotten_first() -> None:
    limits = Limits(
        LimitsSettings(
            source_address=UNLIMITED.model_copy(update={"new_instances_per_minute": 1}),
            principal=UNLIMITED,
            max_peers=16,
        )
    )
    rogue = connection(source_address="10.9.9.9")
    assert limits.take(LimitName.NEW_INSTANCES, rogue, 0) is None
    for number in range(100):
        assert limits.take(LimitName.NEW_INSTANCES, rogue, 0) is not None
        assert limits.take(LimitName.NEW_INSTANCES, connection(source_address=f"10.0.0.{number}"), 0) is None
    assert limits.peers == {"source_address": 16, "address_block": 0, "principal": 0}


def test_at_the_bound_the_least_recently_used_peer_is_forgotten() -> None:
    limits = Limits(
        LimitsSettings(
            source_address=UNLIMITED.model_copy(update={"new_instances_per_minute": 1}),
            principal=UNLIMITED,
            max_peers=16,
        )
    )
    peers = [connection(source_address=f"10.0.0.{number}") for number in range(17)]
    assert [limits.take(LimitName.NEW_INSTANCES, peer, 0) for peer in peers] == [None] * 17
    assert all(limits.take(LimitName.NEW_INSTANCES, peer, 0) is not None for peer in peers[1:])
    assert limits.take(LimitName.NEW_INSTANCES, peers[0], 0) is None


def test_open_connections_are_never_forgotten() -> None:
    limits = Limits(LimitsSettings(source_address=PeerLimitsSettings(connections=1), max_peers=16))
    assert limits.connection_opened("10.9.9.9", 0) is None
    for number in range(100):
        other = connection(source_address=f"10.0.0.{number}")
        assert limits.connection_opened(other.source_address, 0) is None
        assert limits.telemetry_request(other, 0) is None
    assert limits.connection_opened("10.9.9.9", 0) is not None


def test_replaced_settings_keep_the_counters() -> None:
    limits = by_source(connections=5, new_instances_per_minute=60)
    one = connection()
    for _ in range(3):
        assert limits.connection_opened(one.source_address, 0) is None
    for _ in range(60):
        assert limits.take(LimitName.NEW_INSTANCES, one, 0) is None
    limits.replace_settings(
        LimitsSettings(
            source_address=UNLIMITED.model_copy(update={"connections": 3, "new_instances_per_minute": 120}),
            principal=UNLIMITED,
        )
    )
    assert limits.connection_opened(one.source_address, 0) is not None
    exceeded = limits.take(LimitName.NEW_INSTANCES, one, 0)
    assert exceeded is not None
    assert (exceeded.allowed, exceeded.retry_after_s) == (120, 0.5)
    limits.connection_closed(one)
    assert limits.connection_opened(one.source_address, 0) is None


def test_a_smaller_number_of_peers_applies_at_once() -> None:
    limits = Limits(LimitsSettings(max_peers=64))
    for number in range(64):
        assert limits.telemetry_request(connection(source_address=f"10.0.0.{number}"), 0) is None
    limits.replace_settings(LimitsSettings(max_peers=16))
    assert limits.peers == {"source_address": 16, "address_block": 0, "principal": 0}


def test_a_connection_closed_for_a_flood_counts_as_many() -> None:
    limits = by_source(new_connections_per_second=10)
    one = connection(source_address="10.0.0.7")
    for _ in range(5):
        assert limits.connection_opened("10.0.0.7", 0) is None
        limits.flooded(one, 0)
    assert limits.connection_opened("10.0.0.7", 0) is not None
    # It has ten seconds of debt: five connections and five floods are 105.
    assert limits.connection_opened("10.0.0.7", 0.55) is not None
    assert limits.connection_opened("10.0.0.7", 0.65) is None
    assert limits.connection_opened("10.0.0.8", 0) is None


def test_floods_of_many_ipv6_networks_count_for_their_site() -> None:
    limits = Limits(
        LimitsSettings(
            source_address=UNLIMITED.model_copy(update={"new_connections_per_second": 10}),
            principal=UNLIMITED,
            ipv6_block_factor=2,
        )
    )
    for network in range(10):
        limits.flooded(connection(source_address=f"2001:db8:6:{network:x}::1"), 5.0)
    exceeded = limits.connection_opened("2001:db8:6:ffff::1", 5.0)
    assert exceeded is not None
    assert (exceeded.scope, exceeded.limit) == ("address_block", LimitName.NEW_CONNECTIONS)
    assert exceeded.retry_after_s == pytest.approx(0.05)
    assert limits.connection_opened("2001:db8:6:ffff::1", 5.06) is None
    assert limits.connection_opened("2001:db8:7::1", 5.0) is None


def test_an_ipv6_site_has_a_multiple_of_the_limits() -> None:
    limits = Limits(
        LimitsSettings(
            source_address=UNLIMITED.model_copy(
                update={"connections": 2, "accepted_bytes_per_minute": 1_000}
            ),
            principal=UNLIMITED,
            ipv6_block_factor=3,
        )
    )
    opened = [
        address
        for network in range(100)
        for address in (f"2001:db8:6:{network:x}::1", f"2001:db8:6:{network:x}::2")
        if limits.connection_opened(address, 0) is None
    ]
    assert len(opened) == 6
    exceeded = limits.connection_opened("2001:db8:6:ffff::1", 0)
    assert exceeded is not None
    assert (exceeded.scope, exceeded.peer, exceeded.allowed) == ("address_block", "2001:db8:6::/48", 6)
    assert str(exceeded) == (
        "2001:db8:6::/48 is over limits.source_address.connections times limits.ipv6_block_factor (6)"
    )
    assert limits.connection_opened("2001:db8:7::1", 0) is None, "another address block"
    assert limits.connection_opened("10.0.0.1", 0) is None
    # A connection that the address block refuses does not count for its network either.
    limits.connection_closed(connection(source_address=opened[0]))
    assert limits.connection_opened("2001:db8:6:ffff::1", 0) is None
    assert limits.connection_opened("2001:db8:6:ffff::2", 0) is not None
    networks = [connection(source_address=f"2001:db8:6:{network:x}::1") for network in range(100)]
    for item in networks:
        limits.use(LimitName.ACCEPTED_BYTES, item, 999, 0)
    assert all(limits.over(LimitName.ACCEPTED_BYTES, item, 0) is not None for item in networks)
    assert limits.over(LimitName.ACCEPTED_BYTES, connection(source_address="2001:db8:7::1"), 0) is None
