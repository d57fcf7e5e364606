"""Spreads connections evenly over the relays.

All relays wait on one listening socket, and the kernel wakes them in one order. Without a rule, the
first in that order gets nearly all connections that are opened one after the other, and Kafka's
connections last for days. So a relay that has more connections than another one leaves new clients
to the others for a moment. It takes them itself when none of the others did, because a relay that
hangs or is busy must hold up no client.
"""

from __future__ import annotations

from typing import Final

from receiver.supervisor.shared_counts import ProcessCounts

#: A relay may have a thirty-second part more connections than another one, so that many can be
#: opened at a time.
_TOLERATED_DIVISOR: Final = 32

#: Seconds between two looks at a client that was left to the others.
LOOK_S: Final = 0.001

#: Seconds that a client waits at most for a relay with fewer connections.
PATIENCE_S: Final = 0.05


class Spread:
    """How many connections a relay has, and whether it takes the next one.

    Args:
        counts: This relay's counts, which the other relays see.
    """

    def __init__(self, counts: ProcessCounts) -> None:
        self._counts = counts
        self._connections = 0
        self._accepts = False
        self._slow: int | None = None

    def start(self) -> None:
        """Tell the other relays that this one accepts clients."""
        self._accepts = True
        self.add(0)

    def stop(self) -> None:
        """Tell them that it does not, so that they wait for it no more."""
        self._accepts = False
        self._counts.set_connections(None)

    def add(self, more: int) -> None:
        """Change the number of connections."""
        self._connections += more
        if self._accepts:
            self._counts.set_connections(self._connections)

    def leaves_next(self) -> bool:
        """Whether the next client is for a relay that has fewer connections."""
        fewest = self._counts.fewest_connections()
        if self._slow is not None:
            if fewest == self._slow:
                fewest = self._counts.fewest_connections(above=fewest)
            else:
                self._slow = None
        return fewest is not None and self._connections > fewest + fewest // _TOLERATED_DIVISOR

    def others_are_slow(self) -> None:
        """Leave no client to the relays with the fewest connections, until they take one."""
        self._slow = self._counts.fewest_connections()
