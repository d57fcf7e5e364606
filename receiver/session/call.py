"""A call: a request of a client that the core answers.

The core gets the request's header as the relay has read it and the body as bytes, and its answer is
a frame. Whatever else a relay has to know of
a call is here: how long the core has for it, and what the client gets without the core.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from receiver.wire.headers import RequestHeader


class OpenCall(ABC):
    """A call that waits for its answer. Its connection has no other one."""

    __slots__ = ()

    answer_within_s: ClassVar[float]
    """Seconds that the core has to answer."""
    waits_for_others: ClassVar[bool] = False
    """Whether the core may wait for a disk or a broker, so that a late answer does not mean that
    the core is slow."""
    header: RequestHeader
    body: bytes
    """The request's body, which the core alone reads."""
    cut_beyond: int | None
    """None for a whole request. For a push whose end was not kept: the number of bytes that the
    kept part of its metrics must exceed."""

    @abstractmethod
    def unanswered(self) -> bytes:
        """Write the frame that stands for the core's answer if none comes in time."""

    @abstractmethod
    def answered(self, answer: bytes) -> bytes:
        """Take the core's answer as a frame, and return the client's as a frame."""
