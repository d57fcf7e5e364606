"""Queue of the forwarded requests whose responses the session reads or replaces.

Such a request goes to the broker under a random correlation id from the negative half of the range,
which no client uses. Under its own ids, a client could make the response to another of its requests
(one that needs no authentication) pass for the response that the session waits for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from receiver.peers.pending_work import PendingWork
from receiver.session.exchange import GREATEST_INT32, Connection, Exchange
from receiver.session.exchanges.addresses import COSTLY, NamingRequest


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request of an exchange, until its response.

    Attributes:
        correlation_id: The correlation id that the broker's response will have.
        exchange: Gets the response.
        held_bytes: Memory that the exchange holds until then.
        max_read_bytes: A longer response is passed on unread.
        client_correlation_id: The correlation id that such a response gets: the client's own.
        decides: Whether its response may open a call.
        work: The work for its response; see :data:`~receiver.session.exchanges.addresses.COSTLY`.
    """

    work: ClassVar[int] = COSTLY

    correlation_id: int
    exchange: Exchange
    held_bytes: int = 0
    max_read_bytes: int = GREATEST_INT32
    client_correlation_id: int = 0
    decides: bool = False

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


class PendingRequests:
    """The pending requests of one connection, in the order of their responses.

    Args:
        random_number: Returns a random integer of 31 bits.
        source: What is pending for the client's source.

    Attributes:
        count: Their number.
        held_bytes: Memory that the pending requests hold.
        undecided: The number of requests whose responses may open a call.
        costly: The number of requests whose responses are decoded or written anew.
        work: The work for all responses; see
            :data:`~receiver.session.exchanges.addresses.COSTLY`.
        source: As given.
    """

    __slots__ = ("_queue", "_random_number", "costly", "count", "held_bytes", "source", "undecided", "work")

    def __init__(self, random_number: Callable[[], int], source: PendingWork) -> None:
        # None when empty, because most connections are idle.
        self._queue: deque[Pending] | None = None
        self._random_number = random_number
        self.count = 0
        self.held_bytes = 0
        self.undecided = 0
        self.costly = 0
        self.work = 0
        self.source = source

    @property
    def first(self) -> Pending | None:
        """The request whose response comes next; None if none is pending."""
        return self._queue[0] if self._queue else None

    def new_correlation_id(self) -> int:
        """Return the correlation id of the next request for the broker."""
        return -1 - self._random_number()

    def add(self, pending: Pending) -> None:
        """Append a request."""
        if self._queue is None:
            self._queue = deque()
        self._queue.append(pending)
        self.count += 1
        self.held_bytes += pending.held_bytes
        self.undecided += pending.decides
        work = pending.work
        self.costly += work >= COSTLY
        self.work += work
        self.source.units += work

    def take(self) -> Pending:
        """Remove and return the first request, whose response has arrived.

        Raises:
            IndexError: No request is pending.
        """
        if not self._queue:
            raise IndexError("no request is pending")
        pending = self._queue.popleft()
        self.count -= 1
        if not self._queue:
            self._queue = None
        self.held_bytes -= pending.held_bytes
        self.undecided -= pending.decides
        work = pending.work
        self.costly -= work >= COSTLY
        self.work -= work
        self.source.units -= work
        return pending

    def forget(self) -> None:
        """Remove all requests; their responses are not waited for any more."""
        while self._queue:
            self.take()
