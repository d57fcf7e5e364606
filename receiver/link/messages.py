"""The messages between a relay and the core.

A relay begins with :class:`Hello` and the identity of each open connection. It numbers its
connections; a number is never reused on a link. The core answers each :class:`Call` once, in any
order.

Both ends are processes of one receiver and of one version, or of two versions during a take-over.
Therefore the first message names the version of the protocol, and each message is checked against
its type. Source of the encoding: MessagePack, arrays with an integer type in front.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec

from receiver.brokers.listener_broker import KnownBroker
from receiver.session.effects import ConfigCall, TelemetryCall
from receiver.telemetry.identity import ClientIdentity
from receiver.wire.api_keys import PUSH_TELEMETRY
from receiver.wire.headers import RequestHeader
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import Uuid

__all__ = [
    "PROTOCOL_VERSION",
    "Answer",
    "BrokerKnown",
    "Call",
    "Closed",
    "ConfigRequest",
    "CoreMessage",
    "EndConnection",
    "Hello",
    "Identity",
    "Levels",
    "LinkError",
    "Problems",
    "RelayMessage",
    "Report",
    "ReportTaken",
    "Statistics",
    "StatisticsRequest",
    "TokenOwner",
    "call_message",
    "config_call",
    "config_message",
    "decode_core_message",
    "decode_relay_message",
    "encode",
    "telemetry_call",
]

#: Changes with each incompatible change of a message.
PROTOCOL_VERSION: Final = 3

_Message = TypeVar("_Message")
_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
_Int16 = Annotated[int, msgspec.Meta(ge=-(2**15), lt=2**15)]
#: Neither negative nor infinite, and a number.
_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
_UuidBytes = Annotated[Uuid, msgspec.Meta(min_length=16, max_length=16)]


class LinkError(Exception):
    """The other end of a link sent bytes that are no message."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The first message of a relay.

    Attributes:
        version: :data:`PROTOCOL_VERSION` of the relay.
        process: The name of the relay's process, such as ``relay-1``.
    """

    version: int
    process: str


class Identity(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A connection that is open: a new one, or one whose identity changed.

    Attributes:
        number: The connection's number on this relay.
        identity: Who the client is.
        resumed: Whether an earlier core knew the connection, so that it counts as no new one.
    """

    number: int
    identity: ClientIdentity
    resumed: bool = False


class Closed(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A connection has closed."""

    number: int


class Call(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A telemetry request of an authenticated client (KIP-714).

    Attributes:
        number: The connection's number.
        token: Identifies the call among those of the relay.
        api_key, api_version, correlation_id, client_id, header_instance_id: The request's header.
        client_instance_id: The instance id of the request, or that of the header (KIP-1313).
        subscription_id, terminating, compression_type, metrics: The fields of a push.
    """

    number: int
    token: int
    api_key: _Int16
    api_version: _Int16
    correlation_id: _Int32
    client_id: str | None
    header_instance_id: _UuidBytes | None
    client_instance_id: _UuidBytes
    subscription_id: _Int32 = 0
    terminating: bool = False
    compression_type: _Int16 = 0
    metrics: bytes | None = None


class ConfigRequest(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """A request about client metrics resources of a client that may make it.

    Attributes:
        number: The connection's number.
        token: Identifies the call among those of the relay.
        api_key, api_version, correlation_id: The request's header.
        body: The request's body, for client metrics resources alone.
    """

    number: int
    token: int
    api_key: _Int16
    api_version: _Int16
    correlation_id: _Int32
    body: bytes


class Problems(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Why the relay does not accept clients, a line for each listener; empty if it does."""

    lines: tuple[str, ...]


class BrokerKnown(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """What is known of the broker behind a listener.

    Attributes:
        listener: The listener's name.
        known: The broker. The core tells other relays of it if its node id is proven.
    """

    listener: str
    known: KnownBroker


class TokenOwner(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The owner of a delegation token, which a broker's response named (KIP-48)."""

    token_id: str
    owner: str


class Report(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """What a relay has counted since its last report; answered by :class:`ReportTaken`.

    Attributes:
        usage: Units used of limits over time: scope, peer, limit, units, and the monotonic time of
            the first use.
        events: Metric events: name, labels, count or observed value.
        number: The number of the report on its relay, from 1. A report that is sent again over
            another link keeps it.
    """

    usage: tuple[tuple[str, str, str, _Amount, float], ...]
    events: tuple[tuple[str, tuple[str, ...], _Amount], ...]
    number: int = 0


class Statistics(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The state of a relay process.

    Attributes:
        request: The number of the request that this answers.
        cpu_s: Seconds of CPU time since the start.
        resident_bytes: Resident memory.
        loop_lag_s: The longest turn of the event loop since the last statistics, in seconds.
        held_bytes: Memory of waiting bytes on connections.
        certificates: Listener, side (``client`` or ``upstream``) and expiry in seconds since the
            epoch of each certificate in use.
        log_lines_dropped: Lines that the log had no room for, since the start.
    """

    request: int
    cpu_s: float
    resident_bytes: int
    loop_lag_s: float
    held_bytes: int
    certificates: tuple[tuple[str, str, float], ...]
    log_lines_dropped: int


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=64):
    """The answer to a call.

    Attributes:
        token: The token of the call.
        frame: The answer as a frame.
        throttled: Whether the client is over a limit, so that it is not read from for a while.
    """

    token: int
    frame: bytes
    throttled: bool


class EndConnection(msgspec.Struct, frozen=True, array_like=True, tag=65):
    """A connection has to be closed.

    Attributes:
        number: The connection's number.
        reason: ``limit``: there are too many on all relays together. ``internal_error``: a call
            failed in the core.
    """

    number: int
    reason: Literal["limit", "internal_error"]


class Levels(msgspec.Struct, frozen=True, array_like=True, tag=66):
    """Limits over time that peers have used in all relays together.

    Attributes:
        levels: Scope, peer, limit, and the monotonic time at which its bucket will be empty.
    """

    levels: tuple[tuple[str, str, str, float], ...]


class ReportTaken(msgspec.Struct, frozen=True, array_like=True, tag=68):
    """The core has counted the relay's report; the relay may send the next one.

    Attributes:
        levels: The limits over time that the report used, as in :class:`Levels`.
    """

    levels: tuple[tuple[str, str, str, float], ...] = ()


class StatisticsRequest(msgspec.Struct, frozen=True, array_like=True, tag=67):
    """The core wants the relay's statistics."""

    request: int


#: What a relay sends.
RelayMessage: TypeAlias = (
    Hello
    | Identity
    | Closed
    | Call
    | ConfigRequest
    | Problems
    | BrokerKnown
    | TokenOwner
    | Report
    | Statistics
)

#: What the core sends.
CoreMessage: TypeAlias = (
    Answer | EndConnection | Levels | ReportTaken | StatisticsRequest | TokenOwner | BrokerKnown
)

encode = msgspec.msgpack.Encoder().encode
_relay_messages: msgspec.msgpack.Decoder[RelayMessage] = msgspec.msgpack.Decoder(RelayMessage)
_core_messages: msgspec.msgpack.Decoder[CoreMessage] = msgspec.msgpack.Decoder(CoreMessage)


def decode_relay_message(message: bytes | memoryview) -> RelayMessage:
    """Decode what a relay sent; raises LinkError."""
    return _decode(_relay_messages, message)


def decode_core_message(message: bytes | memoryview) -> CoreMessage:
    """Decode what the core sent; raises LinkError."""
    return _decode(_core_messages, message)


def _decode(decoder: msgspec.msgpack.Decoder[_Message], message: bytes | memoryview) -> _Message:
    try:
        return decoder.decode(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LinkError(f"a message of {len(message)} bytes can't be decoded: {error}") from None


def call_message(number: int, token: int, call: TelemetryCall) -> Call:
    """Return the message for a session's call; ``token`` is the relay's own."""
    header, request = call.header, call.request
    if isinstance(request, PushTelemetryRequest):
        return Call(
            number,
            token,
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            header.client_instance_id,
            request.client_instance_id,
            request.subscription_id,
            request.terminating,
            request.compression_type,
            request.metrics,  # type: ignore[arg-type]  # a memoryview is encoded like bytes
        )
    return Call(
        number,
        token,
        header.api_key,
        header.api_version,
        header.correlation_id,
        header.client_id,
        header.client_instance_id,
        request.client_instance_id,
    )


def telemetry_call(message: Call) -> TelemetryCall:
    """Return the session's call that a message stands for."""
    header = RequestHeader(
        api_key=message.api_key,
        api_version=message.api_version,
        correlation_id=message.correlation_id,
        client_id=message.client_id,
        client_instance_id=message.header_instance_id,
    )
    request: GetTelemetrySubscriptionsRequest | PushTelemetryRequest
    if message.api_key == PUSH_TELEMETRY:
        request = PushTelemetryRequest(
            client_instance_id=message.client_instance_id,
            subscription_id=message.subscription_id,
            terminating=message.terminating,
            compression_type=message.compression_type,
            metrics=message.metrics,
        )
    else:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=message.client_instance_id)
    return TelemetryCall(message.token, header, request)


def config_message(number: int, token: int, call: ConfigCall) -> ConfigRequest:
    """Return the message for a session's call; ``token`` is the relay's own."""
    header = call.header
    return ConfigRequest(number, token, header.api_key, header.api_version, header.correlation_id, call.body)


def config_call(message: ConfigRequest) -> ConfigCall:
    """Return the session's call that a message stands for."""
    header = RequestHeader(
        api_key=message.api_key,
        api_version=message.api_version,
        correlation_id=message.correlation_id,
    )
    return ConfigCall(message.token, header, message.body)
