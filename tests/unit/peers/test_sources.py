"""The peers of a connection."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from receiver.peers.peers import Peers, Scope, peers_of
from receiver.peers.sources import block_of, source_of
from receiver.telemetry.identity import SHARED_PRINCIPALS, ClientIdentity
from tests.unit.telemetry.parts import connection


def test_sites_and_sources() -> None:
    assert source_of("2001:db8:1:2:3::4") == "2001:db8:1:2::/64"
    assert block_of("2001:db8:1:2:3::4") == "2001:db8:1::/48"
    assert source_of("::ffff:10.0.0.1") == block_of("::ffff:10.0.0.1") == "10.0.0.1"
    assert source_of("10.0.0.1") == block_of("10.0.0.1") == "10.0.0.1"
    assert source_of("fe80::zz") == block_of("fe80::zz") == "fe80::zz"


def test_an_ipv4_address_is_one_peer_and_an_ipv6_address_is_two() -> None:
    ipv4: tuple[tuple[Scope, str], ...] = (("source_address", "10.0.0.1"),)
    assert peers_of("10.0.0.1", None) == Peers("10.0.0.1", "10.0.0.1", ipv4, ipv4)
    assert peers_of("::ffff:10.0.0.1", None).addresses == ipv4
    assert peers_of("2001:db8:1:2:3::4", "User:ann").limited == (
        ("source_address", "2001:db8:1:2::/64"),
        ("address_block", "2001:db8:1::/48"),
        ("principal", "User:ann"),
    )


def test_an_identity_has_the_peers_of_its_fields_also_behind_a_link() -> None:
    identity = connection(source_address="10.0.0.1", principal="User:ann")
    assert identity.peers == peers_of("10.0.0.1", "User:ann")
    assert replace(identity, principal="User:bob").peers == peers_of("10.0.0.1", "User:bob")
    for principal in SHARED_PRINCIPALS:
        assert replace(identity, principal=principal).peers == peers_of("10.0.0.1", None)
    message = msgspec.msgpack.encode(identity)
    assert b"peers" not in message
    assert msgspec.msgpack.decode(message, type=ClientIdentity).peers == identity.peers
