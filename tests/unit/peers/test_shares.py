"""Fair shares: the largest holder of a store, and shares of recently written bytes."""

from __future__ import annotations

import random

import pytest

from receiver.peers.shares import Holdings, RecentShares


def test_the_largest_holder_is_known_after_every_change() -> None:
    holdings: Holdings[str] = Holdings()
    assert holdings.largest() is None
    chance = random.Random(7)
    expected: dict[str, int] = {}
    for _ in range(2_000):
        peer = f"10.0.0.{chance.randrange(12)}"
        amount = chance.randint(-expected.get(peer, 0), 100)
        expected[peer] = expected.get(peer, 0) + amount
        holdings.add(peer, amount)
        largest = holdings.largest()
        most = max(expected.values())
        assert (expected[largest] if largest is not None else 0) == most
        assert holdings.held_by(peer) == expected[peer]
    assert holdings.total == sum(expected.values())
    assert len(holdings) == sum(1 for held in expected.values() if held)


def test_a_peer_that_holds_nothing_is_forgotten() -> None:
    holdings: Holdings[str] = Holdings()
    holdings.add("a", 5)
    holdings.add("b", 3)
    holdings.add("a", -5)
    assert (len(holdings), holdings.held_by("a"), holdings.largest(), holdings.total) == (1, 0, "b", 3)
    holdings.add("b", -3)
    assert (len(holdings), holdings.largest(), holdings.total) == (0, None, 0)


def test_stale_entries_are_bounded_by_the_number_of_peers() -> None:
    holdings: Holdings[object] = Holdings()
    peers = [object() for _ in range(10)]  # equal holdings, and peers that cannot be compared
    for round_ in range(1_000):
        for peer in peers:
            holdings.add(peer, 1)
        assert holdings.held_by(holdings.largest()) == round_ + 1
    assert len(holdings._heap) <= 64 + 2 * len(peers) + 1


def test_a_lone_writer_is_never_over_its_share() -> None:
    shares: RecentShares[str] = RecentShares(1_000)
    for _ in range(100):
        shares.wrote("a", 500)
        assert not shares.is_over("a")
    assert not shares.is_over("never seen")


def test_the_writer_of_most_recent_bytes_is_over_its_share() -> None:
    shares: RecentShares[str] = RecentShares(1_000)
    shares.wrote("loud", 600)
    shares.wrote("quiet", 100)
    assert (shares.is_over("loud"), shares.is_over("quiet")) == (True, False)
    # Its old bytes lose their weight as others write.
    for _ in range(30):
        shares.wrote("quiet", 100)
    assert (shares.is_over("loud"), shares.is_over("quiet")) == (False, True)


@pytest.mark.parametrize("size", [50, 5_000])
def test_shares_survive_a_rescale(size: int) -> None:
    shares: RecentShares[str] = RecentShares(1_000)
    for _ in range(3_000):
        shares.wrote("small", 10)
        shares.wrote("large", size)
    assert shares.is_over("large")
    assert not shares.is_over("small")
    assert shares._scale <= 1e100


def test_the_lightest_peers_are_forgotten_at_the_bound() -> None:
    shares: RecentShares[int] = RecentShares(1_000_000, max_peers=10)
    for peer in range(10):
        shares.wrote(peer, 1_000 * (peer + 1))
    shares.wrote(10, 500)
    assert set(shares._weights) == {5, 6, 7, 8, 9}, "the heavier half of the bound stays"
    assert shares.is_over(9)
    assert not shares.is_over(10)
