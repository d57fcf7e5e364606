"""Ends the subscriptions whose time is over.

One timer waits for the next end, and only while a subscription has one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, Protocol

import structlog

from receiver.telemetry.current_subscriptions import CurrentSubscriptions

#: The longest wait in seconds, because the wall clock may be set meanwhile.
_MAX_WAIT_S: Final = 60.0

_log = structlog.get_logger("receiver.core")


class Timer(Protocol):
    """A call that waits for its time."""

    def cancel(self) -> None:
        """Prevent the call."""


class Expiry:
    """The timer of the subscriptions in force. Use it on the event loop only.

    Args:
        call_later: Calls a function after so many seconds, unless its result is cancelled.
    """

    def __init__(
        self,
        current: CurrentSubscriptions,
        now: Callable[[], datetime],
        call_later: Callable[[float, Callable[[], None]], Timer],
        on_end: Callable[[str], object],
    ) -> None:
        self._current = current
        self._now = now
        self._call_later = call_later
        self._on_end = on_end
        self._timer: Timer | None = None

    def wait(self) -> None:
        """Wait for the next end; call it after each change of the subscriptions in force."""
        self.close()
        now = self._now()
        end = self._current.every.next_end(now)
        if end is not None:
            wait_s = min((end - now).total_seconds(), _MAX_WAIT_S)
            self._timer = self._call_later(wait_s, self._look)

    def close(self) -> None:
        """Wait for no end any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        try:
            for name in self._current.expire(self._now()):
                _log.info("subscription expired", subscription=name)
                self._on_end(name)
        finally:  # a defect must not keep the next ones in force
            self.wait()
