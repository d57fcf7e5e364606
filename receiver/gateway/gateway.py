"""The gateway: all listeners, opened and drained together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from receiver.gateway.listener import Listener

__all__ = ["Gateway"]


class Gateway:
    """The receiver's listeners.

    Args:
        listeners: One for each advertised listener of the broker.
    """

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.listeners = tuple(listeners)

    async def open(self) -> None:
        """Open every listener; none stays open where one can't be.

        Raises:
            ListenerError: An address can't be listened on.
        """
        try:
            for listener in self.listeners:
                await listener.open()
        except BaseException:
            self.stop_accepting()
            raise

    def problems(self) -> list[str]:
        """Say what keeps the gateway from serving; empty while every upstream answers."""
        return [
            f"listener {listener.settings.name}: broker {listener.settings.upstream}: {problem}"
            for listener in self.listeners
            if (problem := listener.upstream_problem) is not None
        ]

    def stop_accepting(self) -> None:
        """Refuse new connections on every listener."""
        for listener in self.listeners:
            listener.stop_accepting()

    async def drain(self, timeout_s: float) -> None:
        """Let answers in flight finish for at most ``timeout_s`` seconds, then close every connection."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        await asyncio.gather(*(listener.drain(deadline) for listener in self.listeners))
