"""Client instances whose connection ended, until they are back or taken for gone.

A client that moves to another broker, or whose broker restarts, is back within its lifetime and
was never gone. A bound on the number takes the oldest for gone early, which is harmless: a push
after that says more.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from receiver.telemetry.instance import ClientInstance
from receiver.wire.uuid import Uuid

#: Instances that one call takes for gone, so that it is short.
_MOST_AT_ONCE: Final = 16


class Departed(NamedTuple):
    """A client instance whose connection ended."""

    instance: ClientInstance
    since: float  # monotonic seconds
    since_ns: int  # the same, in nanoseconds since the epoch


class Departures:
    """Instances that pushed and lost their connection without a terminating push."""

    def __init__(self, max_instances: int) -> None:
        self._max = max_instances
        # Each queue is in order of time, so that only the first of each can be due.
        self._queues: dict[float, OrderedDict[Uuid, Departed]] = {}
        self._lifetimes: dict[Uuid, float] = {}

    def __len__(self) -> int:
        return len(self._lifetimes)

    def resize(self, max_instances: int) -> None:
        """Remember at most so many instances from now on."""
        self._max = max_instances

    def add(self, instance: ClientInstance, now: float, now_ns: int) -> None:
        """Remember an instance, unless its end is known or nobody knows of it.

        Args:
            now: Monotonic seconds.
            now_ns: The same, in nanoseconds since the epoch.
        """
        if instance.terminating or not instance.pushes_accepted:
            return
        self.forget(instance.id)
        lifetime = instance.lifetime_s
        self._lifetimes[instance.id] = lifetime
        self._queues.setdefault(lifetime, OrderedDict())[instance.id] = Departed(instance, now, now_ns)

    def forget(self, client_instance_id: Uuid) -> None:
        """Forget an instance, because it is back."""
        lifetime = self._lifetimes.pop(client_instance_id, None)
        if lifetime is not None:
            queue = self._queues[lifetime]
            del queue[client_instance_id]
            if not queue:
                del self._queues[lifetime]

    def take(self, now: float) -> list[Departed]:
        """Return and forget some instances that were not back within their lifetime."""
        taken: list[Departed] = []
        for lifetime, queue in list(self._queues.items()):
            while queue and len(taken) < _MOST_AT_ONCE:
                departed = next(iter(queue.values()))
                if now - departed.since < lifetime and len(self) <= self._max:
                    break
                self.forget(departed.instance.id)
                taken.append(departed)
        return taken
