"""Opens and drains all listeners together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from receiver.gateway.listener import Listener

__all__ = ["Gateway"]


class Gateway:
    """The receiver's listeners."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.listeners = tuple(listeners)

    async def open(self) -> None:
        """Open every listener, or none.

        Raises:
            ListenerError: A listener can't bind its address.
        """
        try:
            for listener in self.listeners:
                await listener.open()
        except BaseException:
            self.stop_accepting()
            raise

    def problems(self) -> list[str]:
        """Return one line for each listener whose broker does not answer."""
        return [
            f"listener {listener.settings.name}: broker {listener.settings.upstream}: {problem}"
            for listener in self.listeners
            if (problem := listener.upstream_problem) is not None
        ]

    def stop_accepting(self) -> None:
        """Close every listening socket."""
        for listener in self.listeners:
            listener.stop_accepting()

    async def drain(self, timeout_s: float) -> None:
        """Finish responses in flight for ``timeout_s`` seconds, then close all."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        await asyncio.gather(*(listener.drain(deadline) for listener in self.listeners))
