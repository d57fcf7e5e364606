"""The plugin host: hands every accepted push to every plugin, and to no plugin's failure.

Owns the set of plugins, and the thread that watches them. Called from the event loop, so nothing here but
:meth:`PluginHost.stop` waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import structlog

from receiver.host.delivery.cpu_account import CpuAccount
from receiver.host.delivery.plugin_delivery import PluginDelivery
from receiver.host.delivery.statistics import PluginStatistics
from receiver.host.discovery import HostedPlugin
from receiver.host.spool.leftover import left_spools
from receiver.plugin import Push

__all__ = ["PluginHost"]

_log = structlog.get_logger("receiver.host")


def _last_moments_s(timeout_s: float) -> float:
    """Exports end a little before the drain time does: a plugin needs time to close what it opened."""
    return min(1.0, timeout_s * 0.2)


class _Stored:
    """Calls a function when several have called this, each once, from any thread.

    Args:
        stored: The function.
        count: How many.
    """

    def __init__(self, stored: Callable[[], None], count: int) -> None:
        self._stored = stored
        self._left = count
        self._lock = threading.Lock()

    def __call__(self, count: int = 1) -> None:
        with self._lock:
            self._left -= count
            last = self._left == 0
        if last:
            self._stored()


class PluginHost:
    """Runs plugins, each with threads and a bounded delivery log of its own.

    Args:
        plugins: What :func:`receiver.host.load_plugins` made of the configuration; may be empty.
        hangs_after_s: How long a call of a plugin lasts before it is said to hang, in seconds.
        watch_every_s: How often plugins are looked at for what the log should tell, in seconds.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        plugins: Sequence[HostedPlugin],
        *,
        hangs_after_s: float = 60.0,
        watch_every_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._cpu = CpuAccount()
        self._plugins = [
            PluginDelivery(hosted, hangs_after_s=hangs_after_s, clock=clock, cpu=self._cpu)
            for hosted in plugins
        ]
        self._offers = tuple(plugin.offer for plugin in self._plugins)
        self._watch_every_s = watch_every_s
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start every plugin on its thread; returns at once, also when a plugin can't start yet."""
        for plugin in self._plugins:
            plugin.start()
        if self._plugins:
            threading.Thread(target=self._watch, name="plugin-watch", daemon=True).start()

    def offer(self, push: Push, stored: Callable[[], None] | None = None) -> bool:
        """Queue a push for every plugin.

        Never waits and never raises: at the bound the oldest pushes go, and are counted. May be called before
        :meth:`start`; after :meth:`stop` the push is dropped and counted.

        Args:
            push: The push.
            stored: What to call when every plugin with ``delivery: spool_always`` has the push on disk, or
                can't have it there; from any thread, perhaps before this returns.

        Returns:
            Whether ``stored`` will be called, once. False: there is nobody to wait for.
        """
        if stored is None:
            for offer in self._offers:
                offer(push)
            return False
        waiting = _Stored(stored, len(self._offers))
        refused = sum(not offer(push, waiting) for offer in self._offers)
        if refused == len(self._offers):
            return False
        if refused:
            waiting(refused)
        return True

    def stop(self, timeout_s: float) -> bool:
        """Export what is left, then stop every plugin; waits, so call it off the event loop.

        What is not exported by then goes to disk where a plugin has a spool. That may take some seconds more
        if the disk does.

        Args:
            timeout_s: The drain time in seconds, for all plugins together. A plugin that is not done by then
                is abandoned with its thread, which the log tells.

        Returns:
            Whether every plugin came to its end.
        """
        deadline = self._clock() + timeout_s
        for plugin in self._plugins:
            plugin.request_stop(deadline, _last_moments_s(timeout_s))
        ended = [plugin.join(deadline) for plugin in self._plugins]
        self._stopped.set()
        return all(ended)

    def take_cpu(self) -> dict[str, float]:
        """CPU seconds that plugins and their spools took since the last call, by connection id."""
        return self._cpu.take()

    def statistics(self) -> list[PluginStatistics]:
        """One look at each plugin, in the configuration's order; cheap, from any thread."""
        return [plugin.statistics() for plugin in self._plugins]

    def _watch(self) -> None:
        for folder in left_spools([plugin.hosted for plugin in self._plugins]):
            _log.warning(
                "no plugin reads this spool of an earlier run: give it to one until it is empty",
                path=str(folder),
            )
        while not self._stopped.wait(self._watch_every_s):
            for plugin in self._plugins:
                plugin.watch()
