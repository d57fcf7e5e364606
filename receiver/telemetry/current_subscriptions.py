"""The subscriptions that are in force: the one place that holds them."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from receiver.telemetry.subscription import State, SubscriptionSet

_NOBODY_ASKS: Final = SubscriptionSet()


class CurrentSubscriptions:
    """All subscriptions in force, and those of them that apply now.

    Attributes:
        every: All of them, also those that are disabled or over.
        active: Those that apply. Clients are matched against this object; another one, even if
            it is equal, makes every client be matched anew.
        asked: What clients are asked for: those that apply, if a plugin takes metrics.
        has_plugins: Whether a plugin takes metrics. While none does, clients are asked for nothing.
        known: Whether they are the operator's, and not those of a store that could not be read yet.
    """

    def __init__(self, subscriptions: SubscriptionSet | None = None) -> None:
        self.every = SubscriptionSet() if subscriptions is None else subscriptions
        self.active = self.asked = self.every
        self.known = True
        self.has_plugins = True

    def set_has_plugins(self, has_plugins: bool) -> None:  # noqa: FBT001 -- a setter
        """Say whether a plugin takes metrics."""
        self.has_plugins = has_plugins
        self._apply(self.active)

    def replace(self, every: SubscriptionSet, now: datetime) -> None:
        """Put other subscriptions in force."""
        self.every = every
        self._apply(every.active(now))

    def expire(self, now: datetime) -> tuple[str, ...]:
        """Take those whose time is over out of the active ones, and return their names."""
        ended = tuple(
            subscription.name
            for subscription in self.active.subscriptions
            if subscription.state(now) is not State.ACTIVE
        )
        if ended:
            self._apply(self.every.active(now))
        return ended

    def match_anew(self) -> None:
        """Make every client be matched anew with its next request."""
        self._apply(SubscriptionSet(self.active.subscriptions))

    def _apply(self, active: SubscriptionSet) -> None:
        self.active = active
        self.asked = active if self.has_plugins else _NOBODY_ASKS
