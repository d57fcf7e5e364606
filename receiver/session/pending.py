"""Queue of the forwarded requests whose responses the session reads or replaces.

Such a request goes to the broker under a random correlation id from the negative half of the range,
which no client uses. Under its own ids, a client could make the response to another of its requests
(one that needs no authentication) pass for the response that the session waits for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

__all__ = ["MakeAnswer", "NamingRequest", "PendingRequest", "PendingRequests"]

#: Makes the frame for the client from the broker's response, which comes without its length.
MakeAnswer: TypeAlias = Callable[[bytes], bytes]

_GREATEST_INT32: Final = 2_147_483_647


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request whose response is read or replaced.

    Attributes:
        correlation_id: The correlation id that the broker's response will have.
        held_bytes: Memory that the request holds until then.
        make_answer: Makes the answer for the client.
        max_read_bytes: A longer response is passed on unread.
        unread_correlation_id: The correlation id that such a response gets: the client's own.
        decides: Whether its response may open a call.
    """

    correlation_id: int
    held_bytes: int
    make_answer: MakeAnswer
    max_read_bytes: int = _GREATEST_INT32
    unread_correlation_id: int = 0
    decides: bool = False


class NamingRequest(NamedTuple):
    """A request whose response names brokers.

    A connection on which addresses are replaced makes one for each fetch. So it is a tuple, and
    what its response needs is prepared when the response comes.

    Attributes:
        correlation_id: The correlation id that the broker's response will have.
        api_key: The request's API key.
        version: The request's API version.
        client_correlation_id: The correlation id for the client.
        max_read_bytes: A longer response is not kept as a whole.
    """

    correlation_id: int
    api_key: int
    version: int
    client_correlation_id: int
    max_read_bytes: int


class PendingRequests:
    """The pending requests of one connection, in the order of their responses.

    Args:
        random_number: Returns a random integer of 31 bits.

    Attributes:
        held_bytes: Memory that the pending requests hold.
        undecided: The number of requests whose responses may open a call.
    """

    __slots__ = ("_queue", "_random_number", "held_bytes", "undecided")

    def __init__(self, random_number: Callable[[], int]) -> None:
        # None when empty, because most connections are idle.
        self._queue: deque[PendingRequest | NamingRequest] | None = None
        self._random_number = random_number
        self.held_bytes = 0
        self.undecided = 0

    def __len__(self) -> int:
        return len(self._queue) if self._queue else 0

    @property
    def first(self) -> PendingRequest | NamingRequest | None:
        """The request whose response comes next; None if none is pending."""
        return self._queue[0] if self._queue else None

    def add(
        self,
        make_answer: MakeAnswer,
        held_bytes: int,
        *,
        max_read_bytes: int = _GREATEST_INT32,
        unread_correlation_id: int = 0,
        decides: bool = False,
    ) -> int:
        """Append a request and return the correlation id that the broker gets.

        The arguments are the attributes of :class:`PendingRequest`.
        """
        correlation_id = -1 - self._random_number()
        self._append(
            PendingRequest(
                correlation_id, held_bytes, make_answer, max_read_bytes, unread_correlation_id, decides
            )
        )
        self.held_bytes += held_bytes
        self.undecided += decides
        return correlation_id

    def add_naming(
        self, api_key: int, version: int, client_correlation_id: int, max_read_bytes: int = _GREATEST_INT32
    ) -> int:
        """Append a request whose response names brokers; see :meth:`add`."""
        correlation_id = -1 - self._random_number()
        self._append(NamingRequest(correlation_id, api_key, version, client_correlation_id, max_read_bytes))
        return correlation_id

    def _append(self, request: PendingRequest | NamingRequest) -> None:
        if self._queue is None:
            self._queue = deque()
        self._queue.append(request)

    def take(self) -> PendingRequest | NamingRequest:
        """Remove and return the first request, whose response has arrived.

        Raises:
            IndexError: No request is pending.
        """
        if not self._queue:
            raise IndexError("no request is pending")
        pending = self._queue.popleft()
        if not self._queue:
            self._queue = None
        if isinstance(pending, PendingRequest):
            self.held_bytes -= pending.held_bytes
            self.undecided -= pending.decides
        return pending
