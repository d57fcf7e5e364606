"""Compares this machine's clock with those of its clients, by what they push.

One client may have a wrong clock. If most of several clients differ in the same way, it is this
machine that is wrong, or all of them.
"""

from __future__ import annotations

from collections import OrderedDict
from statistics import median_high, median_low
from typing import Final

from receiver.wire.uuid import Uuid

#: Client instances that are compared, the latest ones.
_MAX_CLIENTS: Final = 64

#: Fewer client instances say nothing.
_LEAST_CLIENTS: Final = 3


class ClientClocks:
    """The latest difference of each client instance's clock to this machine's."""

    def __init__(self) -> None:
        self._ahead_s: OrderedDict[Uuid, float] = OrderedDict()

    def record(self, client_instance_id: Uuid, pushed_at_ns: int, received_at_ns: int) -> None:
        """Take the time of a client's latest data point, and when it was received.

        Both are nanoseconds since the epoch.
        """
        self._ahead_s.pop(client_instance_id, None)
        self._ahead_s[client_instance_id] = (pushed_at_ns - received_at_ns) / 1e9
        if len(self._ahead_s) > _MAX_CLIENTS:
            self._ahead_s.popitem(last=False)

    def forget(self, client_instance_id: Uuid) -> None:
        """Forget a client instance that has gone."""
        self._ahead_s.pop(client_instance_id, None)

    @property
    def ahead_s(self) -> float | None:
        """Seconds by which most clients' clocks are ahead at least: a median of theirs.

        If half of them are right, so is this machine. None: too few are known.
        """
        ahead_s = self._ahead_s.values()
        if len(ahead_s) < _LEAST_CLIENTS:
            return None
        return min(median_low(ahead_s), median_high(ahead_s), key=abs)
