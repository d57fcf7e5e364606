"""Compares the subscriptions of two stores, before one replaces the other.

Another store has other subscriptions. Without a look at both, a reload could silently end those
that are in force.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from receiver.telemetry.subscription import Subscription

_MAX_NAMES_SHOWN: Final = 5
_MAX_NAME_SHOWN: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What a store has not of some subscriptions; names are sorted."""

    missing: tuple[Subscription, ...]
    other: tuple[Subscription, ...]
    """Those that it has in another form."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.other)

    def __str__(self) -> str:
        parts = []
        if self.missing:
            parts.append(f"lacks {_counted(self.missing)}")
        if self.other:
            parts.append(f"has {_counted(self.other)} in another form")
        return " and ".join(parts)


def compare(wanted: Iterable[Subscription], found: Iterable[Subscription]) -> Difference:
    """Return what ``found`` has not of ``wanted``."""
    existing = {subscription.name: subscription for subscription in found}
    ordered = sorted(wanted, key=lambda subscription: subscription.name)
    return Difference(
        missing=tuple(each for each in ordered if each.name not in existing),
        other=tuple(each for each in ordered if existing.get(each.name, each) != each),
    )


def _counted(subscriptions: tuple[Subscription, ...]) -> str:
    count = len(subscriptions)
    names = ", ".join(repr(each.name[:_MAX_NAME_SHOWN]) for each in subscriptions[:_MAX_NAMES_SHOWN])
    more = f" and {count - _MAX_NAMES_SHOWN} more" if count > _MAX_NAMES_SHOWN else ""
    return f"{count} subscription{'s' * (count > 1)} ({names}{more})"
