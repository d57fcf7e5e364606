"""Fans each push out to all plugins and isolates their failures.

Owns the set of plugins, and the thread that watches them. The event loop calls it, so only
:meth:`PluginHost.stop` may wait.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from receiver.host.delivery.cpu_account import CpuAccount
from receiver.host.delivery.plugin_delivery import PluginDelivery
from receiver.host.delivery.statistics import PluginStatistics
from receiver.host.discovery import HostedPlugin
from receiver.host.settings import Delivery
from receiver.host.spool.leftover import leftover_spools
from receiver.plugin import Push
from receiver.workers import start_thread

_log = structlog.get_logger("receiver.host")


def _closing_s(timeout_s: float) -> float:
    """Return the part of the drain time in which plugins only close what they opened."""
    return min(1.0, timeout_s * 0.2)


class _Countdown:
    """Calls a function once this was called a number of times, from any thread.

    Args:
        stored: The function. Its argument is True if that of all calls was.
    """

    def __init__(self, stored: Callable[[bool], None], count: int) -> None:
        self._stored = stored
        self._left = count
        self._are_safe = True
        self._lock = threading.Lock()

    def __call__(self, is_safe: bool, count: int = 1) -> None:  # noqa: FBT001 - as of the callback
        with self._lock:
            self._left -= count
            self._are_safe &= is_safe
            last = self._left == 0
        if last:
            self._stored(self._are_safe)


class PluginHost:
    """Runs plugins, each with its own threads and bounded queue.

    Args:
        plugins: The plugins of :func:`receiver.host.load_plugins`; may be empty.
        hangs_after_s: Seconds that a call of a plugin lasts before the plugin counts as hanging.
        watch_every_s: Seconds between two checks for dropped pushes and hanging calls.
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
        self._hangs_after_s = hangs_after_s
        self._plugins = [self._delivery(hosted) for hosted in plugins]
        self._deliver_to(self._plugins)
        self._watch_every_s = watch_every_s
        self._stopped = threading.Event()
        self._replacing: threading.Thread | None = None

    @property
    def running(self) -> list[HostedPlugin]:
        """The plugins that pushes are delivered to."""
        return [plugin.hosted for plugin in self._plugins]

    def start(self) -> None:
        """Start every plugin on its own thread, without waiting."""
        for plugin in self._plugins:
            plugin.start()
        start_thread("plugin-watch", self._watch)

    def replace(self, plugins: Sequence[HostedPlugin], timeout_s: float) -> None:
        """Deliver to these plugins from now on, without waiting.

        A plugin that runs goes on if it is among them, and reads its secrets and certificates again
        before its next export. Another one is stopped, as by
        :meth:`stop`, and then the one of the same name is started; meanwhile its pushes wait in the
        queue. One plugin after the other is replaced. The spool of a removed plugin stays.

        Args:
            plugins: Those of :func:`receiver.host.discovery.load_plugins`, which was given
                :attr:`running`.
        """
        running = {plugin.hosted.name: plugin for plugin in self._plugins}
        deliveries = []
        changes: list[tuple[PluginDelivery | None, PluginDelivery | None]] = []
        for hosted in plugins:
            existing = running.pop(hosted.name, None)
            if existing is not None and existing.hosted is hosted:
                existing.read_files_again()
                deliveries.append(existing)
                continue
            delivery = self._delivery(hosted)
            deliveries.append(delivery)
            changes.append((existing, delivery))
        # A removed plugin goes first, because a new one may need its port or its folder.
        changes = [(plugin, None) for plugin in running.values()] + changes
        self._plugins = deliveries
        self._deliver_to(deliveries)
        if changes:
            exchange = partial(self._exchange, deque(changes), timeout_s, self._replacing)
            self._replacing = start_thread("plugin-exchange", exchange)

    def _exchange(
        self,
        changes: deque[tuple[PluginDelivery | None, PluginDelivery | None]],
        timeout_s: float,
        earlier: threading.Thread | None,
    ) -> None:
        if earlier is not None:
            earlier.join()
        while changes:
            stopping, starting = changes[0]
            if stopping is not None:
                deadline = self._clock() + timeout_s
                stopping.request_stop(deadline, _closing_s(timeout_s))
                stopping.join(deadline)
            if starting is not None:
                starting.start()
            changes.popleft()

    def _deliver_to(self, plugins: Sequence[PluginDelivery]) -> None:
        self._offers = tuple(plugin.offer for plugin in plugins)
        self._stores = any(plugin.hosted.settings.delivery is Delivery.SPOOL_ALWAYS for plugin in plugins)

    def _delivery(self, hosted: HostedPlugin) -> PluginDelivery:
        return PluginDelivery(hosted, hangs_after_s=self._hangs_after_s, clock=self._clock, cpu=self._cpu)

    def offer(self, push: Push, stored: Callable[[bool], None] | None = None) -> bool:
        """Queue a push for every plugin; never waits, never raises.

        At its bound a queue drops and counts the oldest pushes. The method may be called before
        :meth:`start`. After :meth:`stop` it drops and counts the push.

        Args:
            stored: Called from any thread, perhaps before this method returns. With True when every
                plugin with ``delivery: spool_always`` has the push on disk or has delivered it.
                With False when one of them has dropped it.

        Returns:
            Whether ``stored`` will be called, once. False: there is nothing to wait for.
        """
        if stored is None or not self._stores:
            for offer in self._offers:
                offer(push)
            return False
        countdown = _Countdown(stored, len(self._offers))
        without_wait = sum(not offer(push, countdown) for offer in self._offers)
        if without_wait == len(self._offers):
            return False
        if without_wait:
            countdown(True, without_wait)  # noqa: FBT003 - as of the callback
        return True

    def stop(self, timeout_s: float) -> bool:
        """Export queued pushes, and stop the plugins; return if all ended in time.

        If a plugin has a spool, pushes that it did not export in time go to disk. A slow disk may
        take some seconds more. Call it off the event loop.

        Args:
            timeout_s: The drain time in seconds, for all plugins together. A plugin that has not
                ended by then is abandoned with its thread, and logged.
        """
        deadline = self._clock() + timeout_s
        if self._replacing is not None:
            self._replacing.join(timeout_s)
        for plugin in self._plugins:
            plugin.request_stop(deadline, _closing_s(timeout_s))
        ended = [plugin.join(deadline) for plugin in self._plugins]
        self._stopped.set()
        return all(ended)

    def take_cpu(self) -> dict[str, float]:
        """Return the CPU seconds since the last call by connection id, and clear them."""
        return self._cpu.take()

    def statistics(self) -> list[PluginStatistics]:
        """Return each plugin's statistics, in configured order; from any thread."""
        return [plugin.statistics() for plugin in self._plugins]

    def _watch(self) -> None:
        for folder in leftover_spools([plugin.hosted for plugin in self._plugins]):
            _log.warning(
                "no plugin reads this spool of an earlier run: configure it for a plugin until it is empty",
                path=str(folder),
            )
        while not self._stopped.wait(self._watch_every_s):
            for plugin in self._plugins:
                plugin.watch()
