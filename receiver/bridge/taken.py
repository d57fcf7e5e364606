"""Remembers which pushes of a bridge were taken, so that each counts once.

Pure. A bridge sends again what was not acknowledged when its connection broke: at most one window,
so twice as many are remembered for each bridge.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeAlias

from receiver.bridge.frames import Result

#: Called once, with what became of a push.
Done: TypeAlias = Callable[[Result], None]

_WINDOWS: Final = 2


class TakenPushes:
    """The latest pushes of each bridge, by sequence number.

    Args:
        window: The most pushes of a bridge that are in flight on a connection.
        max_bridges: The most bridges; the least recently used is forgotten.
    """

    def __init__(self, window: int, max_bridges: int) -> None:
        self._most = _WINDOWS * window
        self._max_bridges = max_bridges
        self._bridges: OrderedDict[bytes, OrderedDict[int, list[Done] | None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._bridges)

    def begin(self, bridge_id: bytes, sequence: int, done: Done) -> Done | None:
        """Begin to take a push.

        Returns:
            What to call with the result, which then reaches ``done``. None if the push was taken
            before: ``done`` is called with DUPLICATE, when the first one is decided.
        """
        pushes = self._bridges.setdefault(bridge_id, OrderedDict())
        self._bridges.move_to_end(bridge_id)
        if len(self._bridges) > self._max_bridges:
            self._bridges.popitem(last=False)
        if sequence in pushes:
            waiting = pushes[sequence]
            if waiting is None:
                done(Result.DUPLICATE)
            else:
                waiting.append(done)
            return None
        repeats: list[Done] = []
        pushes[sequence] = repeats
        if len(pushes) > self._most:
            pushes.popitem(last=False)

        def decided(result: Result) -> None:
            if pushes.get(sequence) is repeats:
                pushes[sequence] = None
            done(result)
            for repeat in repeats:
                repeat(Result.DUPLICATE)

        return decided
