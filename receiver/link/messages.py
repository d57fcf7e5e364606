"""The messages between a relay and the core.

A relay begins with :class:`Hello` and the identity of each open connection. It numbers its
connections; a number is never reused on a link. The core answers each :class:`Call` once, in any
order.

Both ends are processes of one receiver and of one version, or of two versions during a take-over.
Therefore the first message names the version of the protocol, and each message is checked against
its type. Source of the encoding: MessagePack, arrays with an integer type in front.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from receiver.brokers.listener_broker import KnownBroker
from receiver.telemetry.identity import ClientIdentity
from receiver.wire.headers import RequestHeader
from receiver.wire.uuid import Uuid

#: Changes with each incompatible change of a message.
PROTOCOL_VERSION: Final = 5

#: Neither negative nor infinite, and a number.
_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
_UuidBytes = Annotated[Uuid, msgspec.Meta(min_length=16, max_length=16)]


class LinkError(Exception):
    """The other end of a link sent bytes that are no message."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The first message of a relay."""

    version: int
    """:data:`PROTOCOL_VERSION` of the relay."""
    process: str
    """The name of the relay's process, such as ``relay-1``."""


class Identity(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A connection that is open: a new one, or one whose identity changed."""

    number: int
    identity: ClientIdentity
    resumed: bool = False
    """Whether an earlier core knew the connection, so that it counts as no new one."""
    slot: int = -1
    """Where its counters are in the relay's table; -1: they are not shared."""


class Closed(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A connection has closed."""

    number: int
    reason: str = ""
    """Why, as in the metric of closed connections; empty: an earlier version does not say."""


class Call(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A request that the core answers, of a client that may make it."""

    number: int
    token: int
    """Identifies the call among those of the relay."""
    header: RequestHeader
    """The request's header; its API key and version say what it is."""
    body: bytes
    """The request's body, which the core alone reads."""
    cut_beyond: int | None = None
    """None for a whole request. For a push whose end was not kept: the number of bytes that the
    kept part of its metrics must exceed."""


class Problems(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Why the relay does not accept clients, a line for each listener.

    Empty if it does.
    """

    lines: tuple[str, ...]


class BrokerKnown(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """What is known of the broker behind a listener."""

    listener: str
    known: KnownBroker
    """The broker. The core tells other relays of it if its node id is proven."""


class TokenOwner(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The owner of a delegation token, which a broker's response named (KIP-48)."""

    token_id: str
    owner: str


class Report(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """What a relay has counted since its last report.

    Answered by :class:`ReportTaken`.
    """

    usage: tuple[tuple[str, str, str, _Amount, float], ...]
    """Units used of limits over time: scope, peer, limit, units, and the monotonic time of the
    first use."""
    events: tuple[tuple[str, tuple[str, ...], _Amount], ...]
    """Metric events: name, labels, count or observed value."""
    number: int = 0
    """The number of the report on its relay, from 1. A report that is sent again over another link
    keeps it."""


class Statistics(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The state of a relay process."""

    request: int
    """The number of the request that this answers."""
    cpu_s: float
    """Seconds of CPU time since the start."""
    resident_bytes: int
    loop_lag_s: float
    """The longest turn of the event loop since the last statistics, in seconds."""
    held_bytes: int
    """Memory of waiting bytes on connections."""
    certificates: tuple[tuple[str, str, float], ...]
    """Listener, side (``client`` or ``upstream``) and expiry in seconds since the epoch of each
    certificate in use."""
    log_lines_dropped: int
    """Lines that the log had no room for, since the start."""


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=64):
    """The answer to a call."""

    token: int
    frame: bytes
    throttled: bool = False
    """Whether the client is over a limit, so that it is not read from for a while."""
    malformed: tuple[str, int, str] | None = None
    """Why the request can't be read, so that its connection has to be closed: what was expected, at
    which offset, and what was found."""
    instance: _UuidBytes | None = None
    """The client instance id of the request, if it is another one than the core knew of the
    connection."""


class EndConnection(msgspec.Struct, frozen=True, array_like=True, tag=65):
    """A connection has to be closed."""

    number: int
    reason: Literal["limit", "internal_error"]
    """``limit``: there are too many on all relays together. ``internal_error``: a call failed in
    the core."""


class Levels(msgspec.Struct, frozen=True, array_like=True, tag=66):
    """Limits over time that peers have used in all relays together."""

    levels: tuple[tuple[str, str, str, float], ...]
    """Scope, peer, limit, and the monotonic time at which its bucket will be empty."""


class ReportTaken(msgspec.Struct, frozen=True, array_like=True, tag=68):
    """The core has counted the relay's report; the relay may send the next one."""

    levels: tuple[tuple[str, str, str, float], ...] = ()
    """The limits over time that the report used, as in :class:`Levels`."""


class StatisticsRequest(msgspec.Struct, frozen=True, array_like=True, tag=67):
    """The core wants the relay's statistics."""

    request: int


#: What a relay sends.
RelayMessage: TypeAlias = (
    Hello | Identity | Closed | Call | Problems | BrokerKnown | TokenOwner | Report | Statistics
)

#: What the core sends.
CoreMessage: TypeAlias = (
    Answer | EndConnection | Levels | ReportTaken | StatisticsRequest | TokenOwner | BrokerKnown
)

encode = msgspec.msgpack.Encoder().encode
_UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_relay_messages: msgspec.msgpack.Decoder[RelayMessage] = msgspec.msgpack.Decoder(RelayMessage)
_core_messages: msgspec.msgpack.Decoder[CoreMessage] = msgspec.msgpack.Decoder(CoreMessage)


def decode_relay_message(message: bytes | memoryview) -> RelayMessage:
    """Decode what a relay sent; raises LinkError."""
    try:
        return _relay_messages.decode(message)
    except _UNDECODABLE as error:
        raise _link_error(message, error) from None


def decode_core_message(message: bytes | memoryview) -> CoreMessage:
    """Decode what the core sent; raises LinkError."""
    try:
        return _core_messages.decode(message)
    except _UNDECODABLE as error:
        raise _link_error(message, error) from None


def _link_error(message: bytes | memoryview, error: Exception) -> LinkError:
    return LinkError(f"a message of {len(message)} bytes can't be decoded: {error}")
