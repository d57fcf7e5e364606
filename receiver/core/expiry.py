"""Puts subscriptions in force, and ends those whose time is over.

One timer waits for the next end, and only while a subscription has one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

import structlog

from receiver.telemetry.subscription import State, SubscriptionSet

__all__ = ["Expiry", "Timer"]

#: The longest wait in seconds, because the wall clock may be set meanwhile.
_MAX_WAIT_S: Final = 60.0

_log = structlog.get_logger("receiver.core")


class Timer(Protocol):
    """A call that waits for its time."""

    def cancel(self) -> None:
        """Prevent the call."""


class Expiry:
    """Gives the telemetry core the subscriptions that are active. Use it on the event loop only.

    Args:
        replace: Puts a set of active subscriptions in force.
        wall_ns: Returns nanoseconds since the epoch.
        call_later: Calls a function after so many seconds, unless its result is cancelled.
        on_end: Called with the name of a subscription that ends.
    """

    def __init__(
        self,
        replace: Callable[[SubscriptionSet], object],
        wall_ns: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], Timer],
        on_end: Callable[[str], object],
    ) -> None:
        self._replace = replace
        self._wall_ns = wall_ns
        self._call_later = call_later
        self._on_end = on_end
        self._all = SubscriptionSet()
        self._active = self._all
        self._timer: Timer | None = None

    def put_in_force(self, subscriptions: SubscriptionSet) -> None:
        """Put the active ones of all subscriptions in force now, and end each at its time."""
        self._all = subscriptions
        self._apply(self._now())

    def close(self) -> None:
        """Wait for no end any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._wall_ns() / 1e9, UTC)

    def _apply(self, now: datetime) -> None:
        self._active = self._all.active(now)
        self._replace(self._active)
        self._wait(now)

    def _wait(self, now: datetime) -> None:
        self.close()
        end = self._all.next_end(now)
        if end is not None:
            wait_s = min((end - now).total_seconds(), _MAX_WAIT_S)
            self._timer = self._call_later(wait_s, self._look)

    def _look(self) -> None:
        now = self._now()
        ended = [one.name for one in self._active.subscriptions if one.state(now) is not State.ACTIVE]
        if not ended:
            self._wait(now)
            return
        for name in ended:
            _log.info("subscription expired", subscription=name)
            self._on_end(name)
        self._apply(now)
