"""Stops the receiver: the relays drain, and then the core exports what is queued."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import structlog

from receiver.supervisor.core import Core
from receiver.supervisor.current import Current
from receiver.supervisor.relays import Relays
from receiver.supervisor.states import Lifecycle, State

_log = structlog.get_logger("receiver.supervisor")


class Stop:
    """The end of one receiver.

    Args:
        began: Called when a signal stops the receiver, before it enters the state.
    """

    def __init__(
        self,
        *,
        core: Core,
        relays: Relays,
        lifecycle: Lifecycle,
        current: Current,
        began: Callable[[], None],
    ) -> None:
        self._core = core
        self._relays = relays
        self._lifecycle = lifecycle
        self._current = current
        self._began = began
        self._interrupts = 0
        self._deadline = 0.0

    def signalled(self, number: signal.Signals) -> None:
        """Handle SIGTERM or SIGINT."""
        if number is signal.SIGINT:
            self._interrupts += 1
        if self._lifecycle.state in {State.STOPPING, State.EXPORTING}:
            self._signalled_again(number)
        elif self._lifecycle.state is not State.ENDED:
            self._begin(number)

    def _signalled_again(self, number: signal.Signals) -> None:
        # Service managers may repeat SIGTERM, which must not cut anything off.
        if number is signal.SIGINT and self._interrupts > 1:
            _log.warning("stopped at once by a second SIGINT, what was in flight is lost")
            self._lifecycle.end(1)
        elif number is signal.SIGINT:
            _log.info("stopping already, another SIGINT stops at once")

    def _begin(self, number: signal.Signals) -> None:
        drain_s = self._current.drain_s
        _log.info("stopping", signal=number.name, drain_s=drain_s)
        self._began()
        self._lifecycle.enter(State.STOPPING)
        self._deadline = time.monotonic() + drain_s
        self._core.draining()
        self._relays.drain(after_s=0.0)
        for listening in self._current.sockets.of_listeners.values():
            listening.close()  # the kernel refuses clients once the relays have closed theirs too
        self.go_on()

    def go_on(self) -> None:
        """Stop the core once the relays have ended, and end once there is none."""
        if not self._relays.all_ended or self._lifecycle.state not in {State.LEAVING, State.STOPPING}:
            return
        if self._core.child is None:
            self.end()
        else:
            self._lifecycle.enter(State.EXPORTING)
            self._core.stop(max(0.0, self._deadline - time.monotonic()))

    def end(self) -> None:
        """End in order."""
        _log.info("stopped")
        self._lifecycle.end(0)
