"""The telemetry requests of one connection: GetTelemetrySubscriptions and PushTelemetry (KIP-714).

Owns what happens between a request's bytes and its answer's: the limits, the decoding, the telemetry core. It
must not know when the answer goes out; that is the session's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from receiver.session.events import SessionEvents
from receiver.session.login import Login
from receiver.session.messages import at_body, decode_telemetry, response_header, telemetry_error
from receiver.telemetry.connection import Broker, Connection
from receiver.telemetry.control.limits import Exceeded, Limits
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire import api_keys, k03_metadata, k71_get_telemetry_subscriptions, k72_push_telemetry
from receiver.wire.error_codes import ErrorCode
from receiver.wire.framing import frame
from receiver.wire.headers import RequestHeader
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.primitives import Reader

__all__ = ["Clock", "TelemetryRequests"]

#: How long a connection is not read from that is told to wait, in seconds: twice as long each time that it
#: asks again without waiting. The rest of its requests wait as long, as Kafka has it for a quota; a client
#: that only shares its address with one who takes too much is hardly held up.
_FIRST_MUTE_S: Final = 0.005
_MAX_MUTE_S: Final = 1.0
_AGAIN_WITHIN_S: Final = 0.5


def _nobody_waits() -> None:
    """Where nobody has said otherwise."""


class Clock(Protocol):
    """Where a session gets the time from."""

    def monotonic(self) -> float:
        """Return seconds that never go backwards."""

    def cpu(self) -> float:
        """Return seconds of CPU time that the calling thread has used."""

    def wall_ns(self) -> int:
        """Return nanoseconds since the epoch."""


class TelemetryRequests:
    """What becomes of them.

    Args:
        connection: The connection's entry in the registry.
        broker: Who the broker is; its cluster id is learned here.
        telemetry: The telemetry core.
        limits: What one peer may take.
        login: Whether the client has logged in.
        events: Told of every answer.
        clock: The time.
        max_push_bytes: Most bytes of metrics that the core takes.

    Attributes:
        vouched: Whether the broker has answered a marker.
        unstored: Pushes whose answers have to wait until they are stored.
        on_storing: Called when there begin to be such, before the answer is returned, and when there are none
            any more.
    """

    __slots__ = (
        "_broker",
        "_clock",
        "_connection",
        "_events",
        "_late",
        "_limits",
        "_login",
        "_max_push_bytes",
        "_mute_s",
        "_next_mute_s",
        "_refused_at",
        "_telemetry",
        "on_storing",
        "unstored",
        "vouched",
    )

    def __init__(
        self,
        *,
        connection: Connection,
        broker: Broker,
        telemetry: ClientTelemetry,
        limits: Limits,
        login: Login,
        events: SessionEvents,
        clock: Clock,
        max_push_bytes: int,
    ) -> None:
        self._connection = connection
        self._broker = broker
        self._telemetry = telemetry
        self._limits = limits
        self._login = login
        self._events = events
        self._clock = clock
        self._max_push_bytes = max_push_bytes
        self._mute_s = 0.0
        self._next_mute_s = _FIRST_MUTE_S
        self._refused_at = float("-inf")
        self.vouched = False
        self._late = False
        self.unstored = 0
        self.on_storing: Callable[[], None] = _nobody_waits

    @property
    def mutes(self) -> bool:
        """Whether :meth:`take_mute` has something to tell."""
        return self._mute_s > 0.0

    def take_mute(self) -> float:
        """Return for how many seconds the client should not be read from, once."""
        seconds, self._mute_s = self._mute_s, 0.0
        return seconds

    def take(self, header: RequestHeader, reader: Reader, *, cut: bool) -> Callable[[], bytes]:
        """Take a request; nothing is decided about it yet.

        Args:
            header: Its header.
            reader: At its body.
            cut: Whether its end was too long to be kept.

        Returns:
            What decides, once the broker has let the client in, and returns the answer's frame.

        Raises:
            WireError: The bytes are no such request.
        """
        exceeded = self._limits.telemetry_request(self._connection, self._clock.monotonic())
        if exceeded is not None:
            self.mute()
            if header.api_key == api_keys.PUSH_TELEMETRY:  # whose metrics would cost time to look at
                return lambda: self._throttle(header, None, exceeded)
        request = decode_telemetry(header, reader, cut_beyond=self._max_push_bytes if cut else None)
        if exceeded is not None:
            return lambda: self._throttle(header, request, exceeded)
        return lambda: self._decide(header, request)

    def answer(
        self, header: RequestHeader, decide: Callable[[], bytes], response: bytes, version: int
    ) -> bytes:
        """Make the answer's frame once the marker's answer is there.

        Args:
            header: The request's header.
            decide: What :meth:`take` returned for it.
            response: The broker's answer to Metadata, without its length.
            version: The version of that.

        Raises:
            WireError: It is no such answer.
        """
        refused = k03_metadata.is_error(at_body(response, api_keys.METADATA, version), version)
        if refused or (self._login.required and not self._login.succeeded):
            # The broker says so; or it would take anybody, behind a listener that is said to ask for a login.
            self._events.unauthenticated_telemetry(self._connection, header)
            return telemetry_error(header, ErrorCode.ILLEGAL_SASL_STATE)
        if self._broker.cluster_id is None:
            self._broker.cluster_id = k03_metadata.decode_cluster_id(
                at_body(response, api_keys.METADATA, version), version
            )
        self.vouched = True
        return decide()

    def _decide(
        self, header: RequestHeader, request: GetTelemetrySubscriptionsRequest | PushTelemetryRequest
    ) -> bytes:
        now, started = self._clock.monotonic(), self._clock.cpu()
        # Those in front of it may have been sent at once with it, and have used up what there was.
        exceeded = self._limits.overspent(self._connection, now)
        if exceeded is not None:
            self.mute()
            return self._throttle(header, request, exceeded)
        if isinstance(request, PushTelemetryRequest):
            pushed = self._telemetry.push_telemetry(
                self._connection, request, now=now, received_at_ns=self._clock.wall_ns()
            )
            exceeded, seconds = pushed.exceeded, self._clock.cpu() - started
            if self._events.push_answered(self._connection, header, pushed, seconds, self._stored):
                self._await_stored()
            body = k72_push_telemetry.encode_response(pushed.response, header.api_version)
        else:
            subscribed = self._telemetry.get_telemetry_subscriptions(self._connection, request, now=now)
            exceeded, seconds = subscribed.exceeded, self._clock.cpu() - started
            self._events.subscriptions_answered(self._connection, header, subscribed, seconds)
            body = k71_get_telemetry_subscriptions.encode_response(subscribed.response, header.api_version)
        if exceeded is not None:
            self.mute()
        return frame(response_header(header), body)

    def _throttle(
        self,
        header: RequestHeader,
        request: GetTelemetrySubscriptionsRequest | PushTelemetryRequest | None,
        exceeded: Exceeded,
    ) -> bytes:
        """Tell a client to wait: a push by an error, a get by an answer that asks for nothing yet.

        A client that pushes waits for its own interval. A Java client whose first get is answered with an
        error waits for five minutes.
        """
        if not isinstance(request, GetTelemetrySubscriptionsRequest):
            self._events.limit_exceeded(self._connection, exceeded)
            return telemetry_error(header, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        outcome = self._telemetry.ask_again(request, exceeded)
        self._events.subscriptions_answered(self._connection, header, outcome, 0.0)
        body = k71_get_telemetry_subscriptions.encode_response(outcome.response, header.api_version)
        return frame(response_header(header), body)

    def storing_takes_too_long(self) -> None:
        """Learn that no answer waits any more, until all pushes are stored."""
        self._late = True
        for _ in range(self.unstored):
            self._events.push_answered_before_stored(self._connection)

    def _await_stored(self) -> None:
        self.unstored += 1
        if self.unstored == 1:
            self.on_storing()
        elif self._late:
            self._events.push_answered_before_stored(self._connection)

    def _stored(self) -> None:
        self.unstored -= 1
        if not self.unstored:
            self._late = False
            self.on_storing()

    def mute(self) -> None:
        """Have the client not read from for a while: the longer, the less it waits by itself."""
        now = self._clock.monotonic()
        again = now - self._refused_at < self._next_mute_s + _AGAIN_WITHIN_S
        self._refused_at = now
        self._next_mute_s = min(2 * self._next_mute_s, _MAX_MUTE_S) if again else _FIRST_MUTE_S
        self._mute_s = self._next_mute_s
