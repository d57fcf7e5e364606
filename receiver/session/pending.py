"""The requests of a connection whose answer is ours or is looked at by us, in the order of their answers.

Owns the correlation ids under which such requests go to the broker: never the client's, but random ones from
the half of the range that no client uses. A client that guesses or repeats ids could otherwise make the
answer to another of its requests, one that needs no authentication, pass for the one that is waited for.

It must not know what an answer says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Answering", "Pending", "PendingRequests"]

#: Makes the frame that goes to the client out of the broker's answer, which comes without its length.
Answering: TypeAlias = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Pending:
    """One of them.

    Attributes:
        correlation_id: Under which the broker will answer.
        held_bytes: Memory that the request keeps until then.
        answering: What makes its answer.
        max_read_bytes: Where set, a longer answer of the broker's is passed on unread.
        passes_as: The correlation id with which it passes then: the client's own.
    """

    correlation_id: int
    held_bytes: int
    answering: Answering
    max_read_bytes: int | None = None
    passes_as: int = 0


class PendingRequests:
    """The queue of them.

    Args:
        random_bits: Gives so many random bits as an integer.

    Attributes:
        held_bytes: Memory that the requests keep.
    """

    __slots__ = ("_queue", "_random_bits", "held_bytes")

    def __init__(self, random_bits: Callable[[int], int]) -> None:
        self._queue: deque[Pending] | None = None  # most connections are idle: they own no queue
        self._random_bits = random_bits
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._queue) if self._queue else 0

    @property
    def first(self) -> Pending | None:
        """The one whose answer is next; None while none is awaited."""
        return self._queue[0] if self._queue else None

    def add(
        self,
        answering: Answering,
        held_bytes: int,
        *,
        max_read_bytes: int | None = None,
        passes_as: int = 0,
    ) -> int:
        """Append a request.

        Args:
            answering: What makes its answer.
            held_bytes: Memory that it keeps until then.
            max_read_bytes: Where set, a longer answer of the broker's is passed on unread.
            passes_as: The correlation id with which it passes then.

        Returns:
            The correlation id under which the request goes to the broker.
        """
        correlation_id = -1 - self._random_bits(31)
        if self._queue is None:
            self._queue = deque()
        self._queue.append(Pending(correlation_id, held_bytes, answering, max_read_bytes, passes_as))
        self.held_bytes += held_bytes
        return correlation_id

    def take(self) -> Pending:
        """Remove the first request, whose answer is there, and return it.

        Raises:
            IndexError: None is pending.
        """
        if not self._queue:
            raise IndexError("no request is pending")
        pending = self._queue.popleft()
        if not self._queue:
            self._queue = None
        self.held_bytes -= pending.held_bytes
        return pending
