"""Queue of the forwarded requests whose responses the session reads or replaces.

Such a request goes to the broker under a random correlation id from the negative half of the range,
which no client uses. Under its own ids, a client could make the response to another of its requests
(one that needs no authentication) pass for the response that the session waits for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from receiver.peers.pending_work import PendingWork
from receiver.session.exchange import GREATEST_INT32, Connection, Exchange
from receiver.session.exchanges.addresses import COSTLY, NamingRequest
from receiver.wire.walk import compiled


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request of an exchange, until its response."""

    work: ClassVar[int] = COSTLY
    """The work for its response; see :data:`~receiver.session.exchanges.addresses.COSTLY`."""

    correlation_id: int
    """The correlation id that the broker's response will have."""
    exchange: Exchange
    held_bytes: int = 0
    """Memory that the exchange holds until then."""
    max_read_bytes: int = GREATEST_INT32
    """A longer response is passed on unread."""
    client_correlation_id: int = 0
    """The correlation id that such a response gets: the client's own."""
    decides: bool = False
    """Whether its response may open a call."""

    def responded(self, response: bytes, connection: Connection) -> bytes:
        """Give the response to the exchange; return what the client gets now."""
        return self.exchange.responded(response, connection)

    def is_plain(self, _chunk: memoryview, _begin: int, _end: int) -> bool:
        """Return whether the response in a chunk passes unread."""
        return False

    def long_response(self) -> int:
        """Return the correlation id with which a long response passes unread."""
        return self.client_correlation_id


#: What the session keeps of a request until its response.
Pending: TypeAlias = PendingRequest | NamingRequest


class PythonPendingTable:
    """The queue and its sums, as ``receiver/native/_speedups.c`` has them.

    C appends and takes what needs nothing but correlation ids: requests whose responses may name
    leaders that have moved, and do not.
    """

    __slots__ = (
        "_queue",
        "_random_number",
        "_units",
        "costly",
        "counted",
        "held_bytes",
        "max_held_bytes",
        "undecided",
        "work",
    )

    costly: int
    counted: int
    held_bytes: int
    max_held_bytes: int
    undecided: int
    work: int
    _random_number: Callable[[], int]
    _units: memoryview[int]

    def __init__(self) -> None:
        # None when empty, because most connections are idle.
        self._queue: deque[Pending] | None = None
        self.costly = self.counted = self.held_bytes = self.undecided = self.work = 0

    @property
    def count(self) -> int:
        """Their number."""
        return len(self._queue) if self._queue else 0

    def _append(self, pending: Pending, _correlation_id: int, _max_read_bytes: int) -> None:
        if self._queue is None:
            self._queue = deque()
        self._queue.append(pending)

    def _first(self) -> Any:
        return self._queue[0] if self._queue else None

    def _pop(self) -> Any:
        if not self._queue:
            raise IndexError("no request is pending")
        pending = self._queue.popleft()
        if not self._queue:
            self._queue = None
        return pending


if TYPE_CHECKING or compiled is None:  # noqa: SIM108 -- mypy wants the class and no expression
    PendingTable = PythonPendingTable
else:
    PendingTable = compiled.PendingTable


class PendingRequests(PendingTable):
    """The pending requests of one connection, in the order of their responses.

    Args:
        random_number: Returns a random integer of 31 bits.
        source: What is pending for the client's source.
        name: Returns what is kept of a request that C has tracked. Its arguments are the
            correlation id of the response, API key, version, and the client's correlation id.
        max_held_bytes: What the requests may hold before the connection has to be looked at.

    Attributes:
        count: Their number.
        counted: Those of them that the connection has heard of.
        held_bytes: Memory that the pending requests hold.
        max_held_bytes: As given.
        undecided: The number of requests whose responses may open a call.
        costly: The number of requests whose responses are decoded or written anew.
        work: The work for all responses; see
            :data:`~receiver.session.exchanges.addresses.COSTLY`.
    """

    __slots__ = ("_name", "source")

    def __init__(
        self,
        random_number: Callable[[], int],
        source: PendingWork,
        name: Callable[[int, int, int, int], NamingRequest],
        max_held_bytes: int,
    ) -> None:
        super().__init__()
        self._random_number = random_number
        self._units = source.units
        self._name = name
        self.max_held_bytes = max_held_bytes
        self.source = source

    @property
    def first(self) -> Pending | None:
        """The request whose response comes next; None if none is pending."""
        found: Any = self._first()
        first: Pending | None = self._name(*found) if type(found) is tuple else found
        return first

    def new_correlation_id(self) -> int:
        """Return the correlation id of the next request for the broker."""
        return -1 - self._random_number()

    def add(self, pending: Pending) -> None:
        """Append a request."""
        self._append(pending, pending.correlation_id, pending.max_read_bytes)
        self.held_bytes += pending.held_bytes
        self.undecided += pending.decides
        work = pending.work
        self.costly += work >= COSTLY
        self.work += work
        self._units[0] += work

    def take(self) -> Pending:
        """Remove and return the first request, whose response has arrived.

        Raises:
            IndexError: No request is pending.
        """
        found: Any = self._pop()
        pending: Pending = self._name(*found) if type(found) is tuple else found
        self.held_bytes -= pending.held_bytes
        self.undecided -= pending.decides
        work = pending.work
        self.costly -= work >= COSTLY
        self.work -= work
        self._units[0] -= work
        return pending

    def forget(self) -> None:
        """Remove all requests; their responses are not waited for any more."""
        while self.count:
            self.take()
