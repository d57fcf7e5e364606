from __future__ import annotations

from receiver.plugin.shares import Holdings


def test_the_largest_holder_is_found_after_any_changes() -> None:
    holdings: Holdings[int] = Holdings()
    held = dict.fromkeys(range(100), 0)
    for step in range(1, 3_000):
        peer, amount = step * 37 % 100, step * 7919 % 1_009
        holdings.add(peer, amount - held[peer])
        held[peer] = amount
        if step % 3 == 0:
            largest = holdings.largest()
            assert largest is not None
            assert held[largest] == max(held.values())
    assert holdings.total == sum(held.values())
    assert len(holdings) == sum(amount > 0 for amount in held.values())
    # Changes leave entries behind, whose number is bounded.
    assert len(holdings._heap) < 300
    for peer, amount in held.items():
        holdings.add(peer, -amount)
    assert (holdings.largest(), holdings.total, len(holdings)) == (None, 0, 0)
