"""The plugin host: hands every accepted push to every plugin, and to no plugin's failure.

Owns the set of senders. Called from the event loop, so nothing here but :meth:`PluginHost.stop` waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from receiver.host.discovery import HostedPlugin
from receiver.host.sender import Sender
from receiver.host.statistics import PluginStatistics
from receiver.plugin import Push

__all__ = ["PluginHost"]


def _end_of_exports(now: float, timeout_s: float) -> float:
    """Exports end a little before the drain time does: a plugin needs time to close what it opened."""
    return now + timeout_s - min(1.0, timeout_s * 0.2)


class PluginHost:
    """Runs plugins, each with a thread and a bounded queue of its own.

    Args:
        plugins: What :func:`receiver.host.load_plugins` made of the configuration; may be empty.
        clock: Monotonic seconds.
    """

    def __init__(
        self, plugins: Sequence[HostedPlugin], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._senders = [Sender(hosted, clock=clock) for hosted in plugins]
        self._offers = tuple(sender.offer for sender in self._senders)

    def start(self) -> None:
        """Start every plugin on its thread; returns at once, also when a plugin can't start yet."""
        for sender in self._senders:
            sender.start()

    def offer(self, push: Push, stored: Callable[[], None] | None = None) -> bool:
        """Queue a push for every plugin.

        Never waits and never raises: a full queue drops its oldest pushes, and counts them. May be called
        before :meth:`start`; after :meth:`stop` the push is dropped and counted.
        """
        for offer in self._offers:
            offer(push)
        return False

    def stop(self, timeout_s: float) -> bool:
        """Export what is queued, then stop every plugin; waits, so call it off the event loop.

        Args:
            timeout_s: The drain time in seconds, for all plugins together. A plugin that is not done by then
                is abandoned with its thread, which the log tells.

        Returns:
            Whether every plugin came to its end.
        """
        now = self._clock()
        for sender in self._senders:
            sender.request_stop(_end_of_exports(now, timeout_s))
        ended = [sender.join(now + timeout_s) for sender in self._senders]
        return all(ended)

    def statistics(self) -> list[PluginStatistics]:
        """One look at each plugin, in the configuration's order; cheap, from any thread."""
        return [sender.statistics() for sender in self._senders]
