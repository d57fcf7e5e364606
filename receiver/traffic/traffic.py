"""What the connections of all relays move: read, settled, kept once closed.

The counters are in the relays' tables (:mod:`receiver.traffic.table`). A *settlement* adds what
they have counted since the last one to the usage of the day. It runs each minute while there are
connections, soon after one has closed, and before usage is read.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, TypeAlias, TypeVar

import structlog

from receiver.log import RateLimitedLog
from receiver.peers.sources import source_of
from receiver.telemetry.identity import ANONYMOUS, SHARED_PRINCIPALS, ClientIdentity, recorded_identity
from receiver.traffic import table
from receiver.traffic.table import CoreTable
from receiver.traffic.traffic_metrics import TrafficMetrics
from receiver.traffic.usage_store import Amounts, Key, Settlement, UsageStore, UsageUnavailableError
from receiver.wire.seen_versions import versions
from receiver.workers import start_task

#: Closed connections that are kept.
MAX_CLOSED: Final = 10_000

#: Seconds between two settlements, and from the end of a connection to the next one.
_EVERY_S: Final = 60.0
_SOON_S: Final = 2.0

#: Seconds in which a relay may take up its link again before its connections count as closed.
_LOST_S: Final = 2.0

#: Seconds in which the disk of the usage must answer a read.
_READ_S: Final = 10.0

#: Connections that are settled without a break.
_PORTION: Final = 200

#: Why a connection has ended whose relay has.
RELAY_ENDED: Final = "relay_ended"

_Row = TypeVar("_Row")
_Totals: TypeAlias = tuple[int, int, int]
# Its own thread, because a disk that hangs holds it.
_reader: Final = ThreadPoolExecutor(1, "usage-reads")
_known_versions = lru_cache(maxsize=4096)(versions)

_log = structlog.get_logger("receiver.core")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What a connection has moved. Bytes are those of Kafka's protocol, without TLS."""

    bytes_in: int
    """Bytes from the client."""
    bytes_out: int
    """Bytes to the client."""
    requests: int
    in_flight: int
    """Requests without a response; a Produce with acks=0 stays among them."""
    last_minute: _Totals
    """Bytes from the client, bytes to it, and requests of the last 50 to 60 seconds."""
    idle_ms: int
    """Milliseconds since the latest bytes, of either direction."""
    last_key: int | None
    """The API key of the latest request; None before the first."""
    seen: bytes
    """The versions of its APIs (:mod:`receiver.wire.seen_versions`)."""

    @property
    def api_versions(self) -> Mapping[int, tuple[int, int]]:
        """The lowest and the highest version of each API key that was used."""
        return _known_versions(self.seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedConnection:
    """A connection that has closed."""

    number: int
    """Counts the closed connections of this core, so that later ones have greater numbers."""
    identity: ClientIdentity
    relay: str
    reason: str
    closed_ms: int
    """When, in milliseconds since the epoch."""
    counters: Counters | None


@dataclass(slots=True)
class _Tracked:
    """A connection whose counters are not all settled."""

    identity: ClientIdentity
    relay_id: str
    relay: str
    number: int
    table: CoreTable | None
    index: int
    words: memoryview[int] | None
    #: What it had counted when its principal or client id changed, and for whom.
    earlier: list[tuple[Key, _Totals]] = field(default_factory=list)

    def current(self) -> memoryview[int] | None:
        """Return its words; None if it has no counters."""
        words = self.words
        return words if words is not None and words[table.NUMBER] == self.number else None


class Traffic:
    """The traffic of all relays.

    Args:
        wall_ns: Nanoseconds since the epoch.
        label_of: Returns the label of a principal in metrics; None: it has none.
        owner_of: Returns the owner of usage, empty without one; None: there are no owners.

    Attributes:
        closed: The connections that have closed, the latest last.
    """

    def __init__(
        self,
        store: UsageStore,
        wall_ns: Callable[[], int] = time.time_ns,
        label_of: Callable[[str], str | None] = str,
        owner_of: Callable[[Key], str | None] = lambda _: None,
    ) -> None:
        self.store = store
        self.metrics = TrafficMetrics(label_of, lambda: self.store.principals, owner_of)
        self.closed: deque[ClosedConnection] = deque(maxlen=MAX_CLOSED)
        self._wall_ns = wall_ns
        self._committed = store.committed
        self._tables: dict[str, CoreTable] = {}
        self._open: dict[str, _Tracked] = {}
        self._closing: list[_Tracked] = []
        self._closing_ids: set[str] = set()  # of connections whose slots are not free yet
        self._numbers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._settling: asyncio.Task[None] | None = None
        self._warnings = RateLimitedLog("receiver.core")

    # -- what the relays say -----------------------------------------------------------------------

    def attach(self, relay_id: str, fd: int | None) -> None:
        """Use a relay's table; the descriptor is closed."""
        if fd is None:
            return
        try:
            if relay_id not in self._tables:
                self._tables[relay_id] = CoreTable(fd, self._committed)
        except (OSError, ValueError) as error:
            _log.warning("the traffic of a relay is not counted", relay=relay_id, problem=str(error))
        finally:
            os.close(fd)

    def opened(self, identity: ClientIdentity, relay_id: str, relay: str, number: int, slot: int) -> None:
        """Follow a connection, or its new identity."""
        known = self._open.get(identity.id)
        if known is not None:
            self._identify(known, identity)
            return
        if identity.id in self._closing_ids:  # a relay repeats what is not settled over a new link
            return
        source = self._tables.get(relay_id)
        words = None
        if source is not None and 0 <= slot < source.used:
            words = source.words(slot)
        self._open[identity.id] = _Tracked(identity, relay_id, relay, number, source, slot, words)
        self._settle_within(_EVERY_S)

    def _identify(self, tracked: _Tracked, identity: ClientIdentity) -> None:
        before, after = _key(tracked.identity), _key(identity)
        # What came before a login, or the first client id, is of the same client.
        is_login = before.principal in SHARED_PRINCIPALS and before.principal != after.principal
        if before != after and before.client_id and not is_login and (words := tracked.current()) is not None:
            tracked.earlier.append((before, _totals(words)))
        tracked.identity = identity

    def ended(self, connection_id: str, reason: str, identity: ClientIdentity | None = None) -> None:
        """Take a connection for closed; ``identity`` may say better whose it was."""
        tracked = self._open.pop(connection_id, None)
        if tracked is None:
            return
        words = tracked.current()
        closed_ms = (words[table.CLOSED_AT] if words is not None else 0) or self._wall_ns() // 1_000_000
        self._numbers += 1
        self.closed.append(
            ClosedConnection(
                number=self._numbers,
                identity=identity or tracked.identity,
                relay=tracked.relay,
                reason=reason,
                closed_ms=closed_ms,
                counters=_counters(tracked),
            )
        )
        if words is not None:
            self._leave(tracked, connection_id)
            self._settle_within(_SOON_S)

    def _leave(self, tracked: _Tracked, connection_id: str) -> None:
        self._closing.append(tracked)
        self._closing_ids.add(connection_id)

    def lost(self, relay_id: str, is_linked: Callable[[str], bool], is_open: Callable[[str], bool]) -> None:
        """Take the connections of a relay for closed, unless it takes up its link again."""

        def give_up() -> None:
            gone = [entry for entry in self._open.values() if entry.relay_id == relay_id]
            for tracked in gone:
                if not is_open(tracked.identity.id):
                    self.ended(tracked.identity.id, RELAY_ENDED)
            if not is_linked(relay_id) and (left := self._tables.pop(relay_id, None)) is not None:
                self._adopt_unknown(relay_id, left)

        asyncio.get_running_loop().call_later(_LOST_S, give_up)

    def _adopt_unknown(self, relay_id: str, left: CoreTable) -> None:
        """Settle the connections of a dead relay of which it had told nothing."""
        for index in range(left.used):
            words = left.words(index)
            number = words[table.NUMBER]
            if number and f"{relay_id}-{number}" not in self._closing_ids:
                unknown = _Tracked(recorded_identity(ANONYMOUS, ""), relay_id, "", number, left, index, words)
                self._leave(unknown, f"{relay_id}-{number}")
        if self._closing:
            self._settle_within(_SOON_S)

    # -- reading -----------------------------------------------------------------------------------

    def counters(self, connection_id: str) -> Counters | None:
        """Return what an open connection has moved; None if it is not counted."""
        tracked = self._open.get(connection_id)
        return None if tracked is None else _counters(tracked)

    def totals(self, connection_id: str) -> _Totals:
        """Return bytes from and to an open connection's client, and its requests."""
        tracked = self._open.get(connection_id)
        words = None if tracked is None else tracked.current()
        return (0, 0, 0) if words is None else _totals(words)

    def relay(self, connection_id: str) -> str | None:
        """Return the name of the relay process of an open connection."""
        tracked = self._open.get(connection_id)
        return None if tracked is None else tracked.relay

    # -- settling ----------------------------------------------------------------------------------

    def _settle_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        if seconds == _EVERY_S:  # at the ends of minutes, so that a day is settled when it ends
            seconds -= self._wall_ns() / 1e9 % _EVERY_S
        self._timer = loop.call_later(seconds, self._due)

    def _due(self) -> None:
        self._timer = None
        self._start()

    def _start(self) -> asyncio.Task[None]:
        if self._settling is None or self._settling.done():
            self._settling = start_task("settle-traffic", self._settle())
        return self._settling

    async def settle(self) -> None:
        """Add everything that was counted before the call to the usage.

        What could not be stored is added with what comes later.
        """
        if self._settling is not None and not self._settling.done():
            await asyncio.wait([self._settling])
        # A caller that is gone must not end it between the commit and the note of it.
        await asyncio.shield(self._start())

    async def settle_within(self, seconds: float) -> None:
        """Settle, and wait no longer for the disk, or for what has failed.

        For a reader that needs no usage of this moment.
        """
        with suppress(Exception):  # whoever starts a settling reports its failure
            async with asyncio.timeout(seconds):
                await self.settle()

    async def _settle(self) -> None:
        now_ms = self._wall_ns() // 1_000_000
        day = datetime.fromtimestamp(now_ms / 1000 - 1, UTC).date().isoformat()
        settlement = Settlement(self._committed + 1, day, now_ms)
        closing, self._closing = self._closing, []
        try:
            for number, tracked in enumerate([*closing, *self._open.values()], 1):
                self._add(settlement, tracked)
                if number % _PORTION == 0:
                    await asyncio.sleep(0)
            if settlement.usage:
                new_networks = await asyncio.to_thread(self.store.commit, settlement)
                self._committed = settlement.stamp
                self.metrics.add(settlement.usage, new_networks)
        except BaseException as error:
            self._closing = closing + self._closing
            if not isinstance(error, asyncio.CancelledError):
                self._warnings.warning("usage is not stored", kind="usage", problem=str(error))
            if not isinstance(error, sqlite3.Error):
                raise
        else:
            for tracked in closing:
                if (words := tracked.current()) is not None:
                    words[table.NUMBER] = 0
                self._closing_ids.discard(f"{tracked.relay_id}-{tracked.number}")
        finally:
            if self._open or self._closing:
                self._settle_within(_SOON_S if self._closing else _EVERY_S)

    def _add(self, settlement: Settlement, tracked: _Tracked) -> None:
        words = tracked.current()
        if words is None:
            return
        before = table.settled(words, self._committed)
        is_new = before is None
        totals, counted = _totals(words), before or (0, 0, 0)
        if counted == totals and not is_new:
            return
        identity = tracked.identity
        for key, reached in (*tracked.earlier, (_key(identity), totals)):
            used = [max(now - then, 0) for now, then in zip(reached, counted, strict=True)]
            settlement.add(key, Amounts(used[0], used[1], used[2], 0))
            counted = reached
        settlement.add(_key(identity), Amounts(0, 0, 0, int(is_new)))
        tracked.earlier.clear()
        if identity.principal not in SHARED_PRINCIPALS:
            settlement.networks.setdefault(identity.principal, set()).add(_network(identity.source_address))
        table.settle(words, totals, settlement.stamp)
        if tracked.table is not None:
            used_apis = _known_versions(tracked.table.seen(tracked.index))
            _merge(settlement, identity, used_apis)

    async def read(self, rows: Callable[[UsageStore], list[_Row]]) -> list[_Row]:
        """Settle, and read from the store in a thread.

        Raises:
            UsageUnavailableError: Its disk gives no answer, or fails.
        """
        try:
            async with asyncio.timeout(_READ_S):
                await self.settle()
                return await asyncio.get_running_loop().run_in_executor(_reader, rows, self.store)
        except TimeoutError:
            problem = f"the disk of usage.path gave no answer within {_READ_S:g} s"
        except sqlite3.Error as error:
            problem = str(error)
        raise UsageUnavailableError(problem)

    async def use(self, store: UsageStore) -> None:
        """Keep usage in another store from now on, and close the one before.

        What is settled already stays there, and counts as settled for the new one too.
        """
        await self.settle()
        before, self.store = self.store, store
        self._committed = await asyncio.to_thread(store.begin_after, self._committed)
        await asyncio.to_thread(before.close)

    async def close(self) -> None:
        """Settle, and close the store."""
        if self._timer is not None:
            self._timer.cancel()
        await self.settle()
        await asyncio.to_thread(self.store.close)


def _merge(settlement: Settlement, identity: ClientIdentity, used: Mapping[int, tuple[int, int]]) -> None:
    group = (
        identity.principal,
        identity.client_id,
        identity.client_software_name,
        identity.client_software_version,
    )
    known = settlement.apis.get(group)
    if known is None or known is used:
        settlement.apis[group] = used
        return
    merged = dict(known)
    for api_key, (lowest, highest) in used.items():
        least, most = merged.get(api_key, (lowest, highest))
        merged[api_key] = (min(least, lowest), max(most, highest))
    settlement.apis[group] = merged


def _network(address: str) -> str:
    """Return the network: 24 bits of an IPv4 address, 64 of an IPv6 one."""
    return source_of(address) if ":" in address else f"{address.rpartition('.')[0]}.0/24"


def _key(identity: ClientIdentity) -> Key:
    return Key(identity.principal, identity.client_id)


def _totals(words: memoryview[int]) -> _Totals:
    return words[table.BYTES_IN], words[table.BYTES_OUT], words[table.REQUESTS]


def _counters(tracked: _Tracked) -> Counters | None:
    words = tracked.current()
    if words is None or tracked.table is None:
        return None
    now = table.now_ms()
    last_key = words[table.LAST_KEY]
    in_flight = words[table.REQUESTS] + words[table.EXTRA] - words[table.RESPONSES]
    return Counters(
        bytes_in=words[table.BYTES_IN],
        bytes_out=words[table.BYTES_OUT],
        requests=words[table.REQUESTS],
        in_flight=max(in_flight, 0),
        last_minute=table.last_minute(words, now),
        idle_ms=max(now - words[table.LAST_AT], 0),
        last_key=None if last_key < 0 else last_key,
        seen=tracked.table.seen(tracked.index),
    )
