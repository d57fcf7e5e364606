"""What a store lacks of the subscriptions in force."""

from __future__ import annotations

from receiver.store.switch import compare
from receiver.telemetry.subscription import Subscription


def subscription(name: str, interval_ms: int = 1000) -> Subscription:
    return Subscription(name=name, metrics=("a.",), interval_ms=interval_ms)


def test_equal_subscriptions_do_not_differ() -> None:
    assert not compare([subscription("a")], [subscription("a"), subscription("further")])


def test_names_are_sorted_and_bounded() -> None:
    wanted = [subscription(name) for name in "gfedcba"]
    found = [subscription("g", 2000)]
    difference = compare(wanted, found)
    assert [item.name for item in difference.missing] == list("abcdef")
    assert str(difference) == (
        "lacks 6 subscriptions ('a', 'b', 'c', 'd', 'e' and 1 more) "
        "and has 1 subscription ('g') in another form"
    )
    assert str(compare(wanted, found + wanted[1:])) == "has 1 subscription ('g') in another form"
