"""The pace of new connections: how often somebody may begin one.

Owns the reckoning, by source address. It keeps a bounded number of addresses and knows no sockets.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

__all__ = ["MAX_DELAY_S", "Pace"]

#: Who would have to wait longer is to be refused, in seconds.
MAX_DELAY_S: Final = 5.0

_BURST: Final = 50
_PER_S: Final = 20.0
_MAX_SOURCES: Final = 1024


class Pace:
    """Lets each source address begin 50 connections at once, and then 20 a second."""

    def __init__(self) -> None:
        self._paid_until: dict[str, float] = {}

    def delay(self, source_address: str, now: float) -> float:
        """Count a connection.

        Args:
            source_address: Where it comes from; an IPv6 address counts for its whole /64.
            now: Monotonic seconds.

        Returns:
            How long it has to wait, in seconds; 0.0 mostly. More than :data:`MAX_DELAY_S` is not counted, as
            a flood of a minute would shut its address out for an hour, and the probes that share it.
        """
        source = _source(source_address)
        before = max(self._paid_until.pop(source, now), now)
        until = before + 1 / _PER_S
        delay = max(0.0, until - now - _BURST / _PER_S)
        if len(self._paid_until) >= _MAX_SOURCES:
            del self._paid_until[next(iter(self._paid_until))]
        # At the end: the first ones have been silent for longest.
        self._paid_until[source] = until if delay <= MAX_DELAY_S else before
        return delay


@lru_cache(maxsize=_MAX_SOURCES)
def _source(text: str) -> str:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return text
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))
