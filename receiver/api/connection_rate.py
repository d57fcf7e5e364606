"""Limits how fast one source address may open REST connections.

Pure: it computes a delay and touches no socket.
"""

from __future__ import annotations

from typing import Final

from receiver.peers.sources import source_of

#: A connection that would have to wait longer is refused.
MAX_DELAY_S: Final = 5.0

_BURST: Final = 50
_PER_S: Final = 20.0
_MAX_SOURCES: Final = 1024


class ConnectionRate:
    """Lets each source address open 50 connections at once, and then 20 a second.

    It remembers 1,024 addresses and forgets the least recently seen first.
    """

    def __init__(self) -> None:
        #: For each source, the time at which its connections so far would be used up at `_PER_S`.
        self._used_until: dict[str, float] = {}

    def delay(self, source_address: str, now: float) -> float:
        """Count a connection and return how long it must wait, in seconds.

        A connection that must wait longer than :data:`MAX_DELAY_S` is not counted. Otherwise a
        flood of a minute would lock out its address, and health probes behind the same address, for
        an hour. All addresses of an IPv6 /64 network count as one.
        """
        source = source_of(source_address)
        before = max(self._used_until.pop(source, now), now)
        until = before + 1 / _PER_S
        delay = max(0.0, until - now - _BURST / _PER_S)
        if len(self._used_until) >= _MAX_SOURCES:
            del self._used_until[next(iter(self._used_until))]
        self._used_until[source] = until if delay <= MAX_DELAY_S else before
        return delay
