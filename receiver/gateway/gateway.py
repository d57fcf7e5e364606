"""The listeners of a relay process: opened, replaced and drained together."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from receiver.brokers.listener_broker import ListenerBroker
from receiver.gateway.listeners.listener import Listener


class Gateway:
    """The listeners that accept clients, and those that only have connections left."""

    def __init__(self) -> None:
        self.listeners: Collection[Listener] = ()
        self._retired: list[Listener] = []
        self._traffic_of_gone: dict[str, tuple[int, int]] = {}

    def replace(self, listeners: Iterable[Listener]) -> None:
        """Accept clients with these listeners from now on.

        A listener that was there already goes on. The connections of one that is gone stay open.
        """
        before, self.listeners = self.listeners, tuple(listeners)
        for listener in before:
            if listener not in self.listeners:
                listener.stop_accepting()
                self._retired.append(listener)
        for listener in self.listeners:
            if listener not in before:
                listener.open()

    def problems(self) -> list[str]:
        """Return a line for each listener whose broker is silent or another one."""
        return [
            f"listener {listener.settings.name}: broker {listener.settings.upstream}: {problem}"
            for listener in self.listeners
            if (problem := listener.upstream_problem or listener.broker.problem) is not None
        ]

    def brokers(self) -> dict[str, ListenerBroker]:
        """Return what is known of the broker behind each listener and node, by its name."""
        return {
            member.name: member.broker
            for listener in self.listeners
            for member in (listener, *(() if listener.nodes is None else listener.nodes.listeners.values()))
        }

    def traffic(self) -> dict[str, tuple[int, int]]:
        """Return the bytes read from clients and from the broker, by listener."""
        for listener in [retired for retired in self._retired if retired.empty]:
            self._retired.remove(listener)
            _add(self._traffic_of_gone, listener)
        traffic = dict(self._traffic_of_gone)
        for listener in (*self.listeners, *self._retired):
            _add(traffic, listener)
        return traffic

    def stop_accepting(self) -> None:
        """Accept no more clients."""
        for listener in self.listeners:
            listener.stop_accepting()

    @property
    def empty(self) -> bool:
        """Whether no connection is open or about to be."""
        return all(listener.empty for listener in (*self.listeners, *self._retired))

    async def drain(self, timeout_s: float) -> None:
        """Finish responses in flight for ``timeout_s`` seconds, then close all."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        await asyncio.gather(*(listener.drain(deadline) for listener in (*self.listeners, *self._retired)))


def _add(traffic: dict[str, tuple[int, int]], listener: Listener) -> None:
    from_clients, from_broker = traffic.get(listener.settings.name, (0, 0))
    more_from_clients, more_from_broker = listener.traffic
    traffic[listener.settings.name] = (from_clients + more_from_clients, from_broker + more_from_broker)
