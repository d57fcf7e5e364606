"""An exchange: a request that the session reads, and what becomes of it.

One kind of request is one module of :mod:`receiver.session.exchanges`, registered by its API keys
(:class:`Kind`). The session keeps the order of a connection, and knows nothing of any one kind.

An exchange can rely on this:

1. :attr:`Kind.begin` is called once, when the request has arrived, in the client's order. It
   returns the frames that the broker gets in the request's place, and expects their responses
   (:meth:`Connection.expect`).
2. :meth:`Exchange.responded` is called once for each expected response, in the order in which they
   were expected. It returns what the client gets now: the answer, or nothing yet.
3. The last response may open a call to the core (:meth:`Connection.open_call`), if the exchange is
   an :class:`~receiver.session.call.OpenCall` too. Nothing is read from the broker until
   :meth:`~receiver.session.call.OpenCall.answered` has returned the client's answer.
4. If the connection ends, nothing more is called.

Any method may raise :class:`~receiver.wire.errors.WireError`, which closes the connection.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from receiver.brokers.listener_broker import ListenerBroker
from receiver.brokers.upstream import Upstream
from receiver.session.call import OpenCall
from receiver.session.effects import Effect
from receiver.session.login import Login
from receiver.telemetry.identity import ClientIdentity
from receiver.wire.headers import RequestHeader
from receiver.wire.primitives import Reader

GREATEST_INT32: Final = 2_147_483_647

#: Memory of the objects of one exchange, rounded up.
_OBJECTS_BYTES: Final = 512


class SessionEnd(StrEnum):
    """Reason for which a session closes its connection."""

    INVALID_REQUEST = "invalid_request"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that the session reads."""

    header: RequestHeader
    """Its header, without tagged fields."""
    client_id: str | None
    """The client id that holds for it (KIP-1313)."""
    data: bytes
    """The request without its length, under the header that the broker knows."""
    reader: Reader
    """At the body in :attr:`data`."""
    cut: bool = False
    """Whether the end of the request was not kept, because it is too long. Only a push may be
    cut."""
    translated: RequestHeader | None = None
    """The client's header, if the broker gets another one (KIP-1313)."""


class Connection(Protocol):
    """The connection of an exchange: what is known of it, and what it may do."""

    identity: ClientIdentity
    broker: ListenerBroker
    upstream: Upstream
    """The versions that the broker speaks."""
    login: Login
    max_push_bytes: int
    """Most bytes of metrics in a push."""

    def emit(self, effect: Effect) -> None:
        """Add an effect; see :mod:`receiver.session.effects`."""

    def identify(self, identity: ClientIdentity) -> None:
        """Take what the client said of itself."""

    def expect(
        self,
        exchange: Exchange,
        *,
        held_bytes: int,
        max_read_bytes: int = GREATEST_INT32,
        client_correlation_id: int = 0,
        decides: bool = False,
        further: bool = False,
    ) -> int:
        """Expect a response; return the correlation id of the request for the broker.

        Args:
            held_bytes: Memory that the exchange holds until then; see :func:`held_memory`.
            max_read_bytes: A longer response passes unread, and the exchange is forgotten.
            decides: Whether the response may open a call.
            further: Whether the broker gets this request besides another one for the same request
                of the client.
        """

    def open_call(self, call: OpenCall, held_bytes: int) -> None:
        """Open a call to the core; ``held_bytes`` are what it holds until it is answered."""

    def answer_at_once(self) -> bool:
        """Return whether the request needs no marker, and count it as answered here if so."""

    def marker_answered(self) -> None:
        """Note that the broker has answered a marker on this connection."""

    def end_after_answer(self) -> None:
        """Send nothing more to the broker, which reads nothing after such a request."""

    def end(self, end: SessionEnd) -> None:
        """Close the connection after what has been returned so far."""

    def stop_watching(self) -> None:
        """Read nothing more of what the client sends."""


def held_memory(header: RequestHeader, *kept: bytes) -> int:
    """Return the memory that an exchange holds: objects, a header, and bytes.

    A character beyond ASCII makes a client id take up to four times its bytes.

    Args:
        header: Without tagged fields.
    """
    return _OBJECTS_BYTES + sys.getsizeof(header.client_id) + sum(map(len, kept))


class Exchange(ABC):
    """A request between its arrival and its answer.

    See :mod:`receiver.session.exchange` for what it can rely on.
    """

    __slots__ = ()

    @abstractmethod
    def responded(self, response: bytes, connection: Connection) -> bytes:
        """Take the broker's response, without its length; return what the client gets now.

        Raises:
            WireError: The response is malformed.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of request that sessions read."""

    keys: frozenset[int]
    """Its API keys. No other kind has them."""
    begin: Callable[[Request, Connection], bytes]
    """Takes a request, and returns the frames that the broker gets in its place."""
    watched: Callable[[Upstream], frozenset[int]] | None = None
    """Returns those keys that a new session reads in front of a broker; None: all."""
    longest: Mapping[int, int] = field(default_factory=dict)
    """The longest request that is read, by API key; a longer one passes."""
    answered_here: bool = False
    """Whether the receiver speaks all versions that are offered, whatever the broker has."""
