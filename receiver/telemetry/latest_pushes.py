"""The latest pushes of client instances, for whoever looks at one.

It refers to pushes that were accepted, and reads none of them, so that keeping one costs no work.
All together have a bound in bytes: beyond it, the instances that have pushed least recently are
without one. An instance that somebody looks at has several pushes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, NamedTuple

from receiver.wire.uuid import Uuid

#: Seconds for which an instance counts as looked at.
LOOK_S: Final = 120.0

#: Most instances that are looked at; one more takes the place of the one that was looked at least
#: recently.
MAX_LOOKED_AT: Final = 32

#: Most pushes of an instance that is looked at.
MAX_PUSHES: Final = 60


class KeptPush(NamedTuple):
    """A push that is kept."""

    received_at_ns: int
    """When it arrived, in nanoseconds since the epoch."""
    data: bytes
    """Its metrics as OTLP bytes, labelled."""


class LatestPushes:
    """Keeps the latest pushes of client instances within a bound. Not thread-safe.

    Args:
        max_bytes: Bytes of OTLP of all of them; 0 keeps none.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        #: The instance that has pushed least recently comes first.
        self._kept: OrderedDict[Uuid, deque[KeptPush]] = OrderedDict()
        #: Until when each instance counts as looked at; the next to end comes first.
        self._looked_at: OrderedDict[Uuid, float] = OrderedDict()

    @property
    def total_bytes(self) -> int:
        """The bytes of all pushes that are kept."""
        return self._bytes

    def resize(self, max_bytes: int) -> None:
        """Replace the bound."""
        self._max_bytes = max_bytes
        self._shrink()

    def record(self, client_instance_id: Uuid, data: bytes, received_at_ns: int, now: float) -> None:
        """Keep an accepted push; ``now`` is monotonic seconds."""
        if len(data) > self._max_bytes or not data:
            return
        pushes = self._kept.get(client_instance_id)
        if pushes is None:
            pushes = self._kept[client_instance_id] = deque()
        else:
            self._kept.move_to_end(client_instance_id)
        most = MAX_PUSHES if self._looked_at.get(client_instance_id, 0.0) > now else 1
        while len(pushes) >= most:
            self._bytes -= len(pushes.popleft().data)
        pushes.append(KeptPush(received_at_ns, data))
        self._bytes += len(data)
        self._shrink()

    def look(self, client_instance_id: Uuid, now: float) -> list[KeptPush]:
        """Return an instance's pushes, the oldest first, and keep several from now on.

        It keeps them for :data:`LOOK_S` seconds after the latest look.
        """
        self._looked_at.pop(client_instance_id, None)
        self._looked_at[client_instance_id] = now + LOOK_S
        while len(self._looked_at) > MAX_LOOKED_AT:
            self._looked_at.popitem(last=False)
        return list(self._kept.get(client_instance_id, ()))

    def latest(self, client_instance_id: Uuid) -> KeptPush | None:
        """Return an instance's latest push, if it is kept. It does not count as a look."""
        pushes = self._kept.get(client_instance_id)
        return pushes[-1] if pushes else None

    def forget(self, client_instance_id: Uuid) -> None:
        """Forget an instance that is no longer known."""
        self._looked_at.pop(client_instance_id, None)
        for push in self._kept.pop(client_instance_id, ()):
            self._bytes -= len(push.data)

    def _shrink(self) -> None:
        while self._bytes > self._max_bytes:
            client_instance_id, pushes = next(iter(self._kept.items()))
            self._bytes -= len(pushes.popleft().data)
            if not pushes:
                del self._kept[client_instance_id]
