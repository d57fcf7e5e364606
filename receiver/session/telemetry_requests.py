"""Answers the telemetry requests of one connection (KIP-714).

Applies the limits, decodes the request, calls the telemetry core and encodes the answer. When the
answer goes out is the session's decision.
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

#: Seconds for which a throttled connection is not read from. The time doubles for each further
#: request within the pause, and all requests of the connection wait, as with Kafka's quotas. A
#: client that only shares its address with a busy one is hardly delayed.
_FIRST_MUTE_S: Final = 0.005
_MAX_MUTE_S: Final = 1.0
#: A refusal this many seconds after the end of a mute still counts as a repeated one.
_REPEATED_WITHIN_S: Final = 0.5


def _ignore_storing() -> None:
    """Default of :attr:`TelemetryRequests.on_storing`."""


class Clock(Protocol):
    """Source of time for a session."""

    def monotonic(self) -> float:
        """Return seconds that never go backwards."""

    def cpu(self) -> float:
        """Return seconds of CPU time that the calling thread has used."""

    def wall_ns(self) -> int:
        """Return nanoseconds since the epoch."""


class TelemetryRequests:
    """Handles the telemetry requests of one connection.

    Args:
        connection: The connection's entry in the registry.
        broker: The broker's identity. Its cluster id is learned here.
        telemetry: The telemetry core.
        limits: The limits on one peer.
        login: The state of the client's login.
        events: Receives an event for every answer.
        clock: Source of time.
        max_push_bytes: Most bytes of metrics in a push.

    Attributes:
        marker_answered: Whether the broker has answered a marker on this connection.
        unstored: Number of decided pushes that are not stored yet; their answers wait.
        on_storing: Called when ``unstored`` leaves 0, before the answer is returned, and when it is
            0 again.
    """

    __slots__ = (
        "_broker",
        "_clock",
        "_connection",
        "_events",
        "_limits",
        "_login",
        "_max_push_bytes",
        "_mute_s",
        "_next_mute_s",
        "_refused_at",
        "_storing_overdue",
        "_telemetry",
        "marker_answered",
        "on_storing",
        "unstored",
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
        self.marker_answered = False
        self._storing_overdue = False
        self.unstored = 0
        self.on_storing: Callable[[], None] = _ignore_storing

    @property
    def mutes(self) -> bool:
        """Whether :meth:`take_mute` returns more than 0."""
        return self._mute_s > 0.0

    def take_mute(self) -> float:
        """Return and reset the seconds for which not to read from the client."""
        seconds, self._mute_s = self._mute_s, 0.0
        return seconds

    def decode(self, header: RequestHeader, reader: Reader, *, cut: bool) -> Callable[[], bytes]:
        """Count a request against the limits and decode it; nothing is decided yet.

        Args:
            header: The request's header.
            reader: At the request's body.
            cut: Whether the request was too long and its end was not kept.

        Returns:
            The function that decides and returns the answer's frame. It must be called only when
            the client is known to be authenticated.

        Raises:
            WireError: The request is malformed.
        """
        exceeded = self._limits.telemetry_request(self._connection, self._clock.monotonic())
        if exceeded is not None:
            self.mute()
            if header.api_key == api_keys.PUSH_TELEMETRY:  # refused unread, because metrics cost time
                return lambda: self._throttle(header, None, exceeded)
        request = decode_telemetry(header, reader, cut_beyond=self._max_push_bytes if cut else None)
        if exceeded is not None:
            return lambda: self._throttle(header, request, exceeded)
        return lambda: self._decide(header, request)

    def answer(
        self, header: RequestHeader, decide: Callable[[], bytes], response: bytes, version: int
    ) -> bytes:
        """Return the answer's frame when the marker's response has arrived.

        Args:
            header: The request's header.
            decide: The function that :meth:`decode` returned for the request.
            response: The broker's Metadata response, without its length.
            version: The version of the Metadata request.

        Raises:
            WireError: The response is malformed.
        """
        refused = k03_metadata.is_error(at_body(response, api_keys.METADATA, version), version)
        if refused or (self._login.required and not self._login.succeeded):
            # The second case: the listener requires a login, but the broker answers without one.
            self._events.unauthenticated_telemetry(self._connection, header)
            return telemetry_error(header, ErrorCode.ILLEGAL_SASL_STATE)
        if self._broker.cluster_id is None:
            self._broker.cluster_id = k03_metadata.decode_cluster_id(
                at_body(response, api_keys.METADATA, version), version
            )
        self.marker_answered = True
        return decide()

    def _decide(
        self, header: RequestHeader, request: GetTelemetrySubscriptionsRequest | PushTelemetryRequest
    ) -> bytes:
        now, started = self._clock.monotonic(), self._clock.cpu()
        # Requests that arrived together with this one may have used up the limit since.
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
        """Answer a push with an error, a get with an empty subscription to renew.

        A client whose push fails waits for its push interval. A get is not answered with an error,
        because a Java client would wait five minutes after its first one.
        """
        if not isinstance(request, GetTelemetrySubscriptionsRequest):
            self._events.limit_exceeded(self._connection, exceeded)
            return telemetry_error(header, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        outcome = self._telemetry.ask_again(request, exceeded)
        self._events.subscriptions_answered(self._connection, header, outcome, 0.0)
        body = k71_get_telemetry_subscriptions.encode_response(outcome.response, header.api_version)
        return frame(response_header(header), body)

    def storing_takes_too_long(self) -> None:
        """Let answers go out without waiting, until all pushes are stored."""
        self._storing_overdue = True
        for _ in range(self.unstored):
            self._events.push_answered_before_stored(self._connection)

    def _await_stored(self) -> None:
        self.unstored += 1
        if self.unstored == 1:
            self.on_storing()
        elif self._storing_overdue:
            self._events.push_answered_before_stored(self._connection)

    def _stored(self) -> None:
        self.unstored -= 1
        if not self.unstored:
            self._storing_overdue = False
            self.on_storing()

    def mute(self) -> None:
        """Stop reading from the client for a while, longer if it did not wait."""
        now = self._clock.monotonic()
        repeated = now - self._refused_at < self._next_mute_s + _REPEATED_WITHIN_S
        self._refused_at = now
        self._next_mute_s = min(2 * self._next_mute_s, _MAX_MUTE_S) if repeated else _FIRST_MUTE_S
        self._mute_s = self._next_mute_s
