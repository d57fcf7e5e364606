"""Relays the bytes of one connection between client and broker.

Owns how the two directions affect each other: back-pressure, half-close, drain and close. The
session decides what to do with the bytes.

Back-pressure: the relay keeps what one side can't take (at most one buffer), and does not read from
the other side until that is sent. So a slow reader slows only its own peer. The kept bytes count in
:mod:`receiver.gateway.request_memory`.
"""

from __future__ import annotations

import socket
import ssl
import struct
from asyncio import TimerHandle
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from receiver.clock import Clock
from receiver.event_loop import DirectEventLoop, Share
from receiver.gateway.core_link import CoreLink
from receiver.gateway.direction import Direction
from receiver.gateway.events import GatewayEvents
from receiver.gateway.mute import Mute
from receiver.gateway.request_memory import RequestMemory
from receiver.gateway.tls_direction import TlsDirection
from receiver.gateway.tls_socket import TlsSocket
from receiver.link.messages import Answer
from receiver.request_log import RequestLog
from receiver.session.effects import (
    ConfigCall,
    Effect,
    Flooded,
    IdentityChanged,
    LoginEnded,
    LoginOutcome,
    TelemetryCall,
)
from receiver.session.session import Session, SessionEnd
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.identity import ClientIdentity
from receiver.wire.framing import END_OF_REQUESTS, BrokenStreamError, FrameRewriter
from receiver.wire.uuid import RESERVED_UUIDS, Uuid

__all__ = ["CloseReason", "Relay", "RelayServices", "close_with_reset"]

#: Seconds for which one direction may stay open after the other has ended. Kafka clients and
#: brokers close both directions; only a peer that disappeared leaves a connection half-open.
_HALF_CLOSED_S: Final = 60.0

#: Seconds that a broker has to answer the requests in front of malformed bytes.
_REFUSED_S: Final = 5.0

#: Seconds of silence after which a retired connection may close between two requests. A client
#: often sends its next request, perhaps a push, right after a response.
_SETTLED_S: Final = 0.05

#: Seconds of silence after which a draining connection no longer waits for a response that may be
#: due. Longer than a consumer's fetch.max.wait.ms, which is 500 ms by default.
_QUIET_S: Final = 3.0

#: The SO_LINGER value with which close() sends a reset.
_RESET = struct.pack("ii", 1, 0)


def close_with_reset(side: socket.socket) -> None:
    """Close a socket so that its peer sees a reset."""
    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    socket.socket.close(side)  # TlsSocket.close() would send a close_notify first


class CloseReason(StrEnum):
    """Why a connection ended; a metric label and a log field."""

    CLIENT_CLOSED = "client_closed"
    BROKER_CLOSED = "broker_closed"
    CLIENT_RESET = "client_reset"
    BROKER_RESET = "broker_reset"
    CLIENT_PROTOCOL_ERROR = "client_protocol_error"
    BROKER_PROTOCOL_ERROR = "broker_protocol_error"
    CLIENT_TLS_ERROR = "client_tls_error"
    BROKER_TLS_ERROR = "broker_tls_error"
    INVALID_REQUEST = "invalid_request"
    LIMIT = "limit"
    HELD_BYTES = "held_bytes"
    REQUEST_TIMEOUT = "request_timeout"
    DRAINED = "drained"
    INTERNAL_ERROR = "internal_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayServices:
    """What all relays share.

    Attributes:
        core: The link to the core, which answers calls.
        limits: The limits of each peer.
        memory: The memory that requests hold.
        events: Counts and logs effects.
        log: The request log.
        clock: Source of time.
    """

    core: CoreLink
    limits: Limits
    memory: RequestMemory
    events: GatewayEvents
    log: RequestLog
    clock: Clock


class Relay:
    """Both directions of a connection, from the time that the broker is connected.

    Args:
        number: The connection's number on this relay process.
        identity: Who the client is, so far.
        client: The client's socket, non-blocking; the relay owns it.
        broker: The broker's socket, non-blocking; the relay owns it.
        services: What all relays share.
        share: The share of each event loop turn that the client's site may use.
        on_close: Called once when both sockets are closed, with the reason and the error behind it.

    Attributes:
        number: As given.
        identity: Who the client is.
        cpu: Returns the seconds of CPU time that the thread has used.
    """

    __slots__ = (
        "_broker",
        "_client",
        "_closed",
        "_down",
        "_draining",
        "_ended_first",
        "_half_closed",
        "_identity_changed",
        "_last_moved",
        "_loop",
        "_mute",
        "_muted",
        "_on_close",
        "_refused",
        "_retired",
        "_services",
        "_session",
        "_share",
        "_up",
        "cpu",
        "identity",
        "number",
    )

    def __init__(
        self,
        loop: DirectEventLoop,
        number: int,
        identity: ClientIdentity,
        client: socket.socket,
        broker: socket.socket,
        session: Session,
        services: RelayServices,
        share: Share,
        on_close: Callable[[Relay, CloseReason, Exception | None], None],
    ) -> None:
        self._loop = loop
        self._client = client
        self._broker = broker
        self._session = session
        self._services = services
        self._share = share
        self._on_close = on_close
        self._half_closed: TimerHandle | None = None
        self._muted: TimerHandle | None = None
        self._mute = Mute()
        self._ended_first: CloseReason | None = None
        self._refused: BrokenStreamError | None = None
        self._closed = False
        self._identity_changed = False
        self._retired = False
        self._draining = False
        self._last_moved = 0.0
        self.number = number
        self.identity = identity
        self.cpu = services.clock.cpu
        self._up = self._direction(client, broker, session.requests)
        self._down = self._direction(broker, client, session.responses)
        self._up.limit = session.bytes_in_a_turn  # until the first request has been seen

    def start(self) -> None:
        """Begin to move bytes."""
        self._up.update()
        self._down.update()

    def close(self, reason: CloseReason, error: Exception | None = None, *, reset: bool = False) -> None:
        """Close both sockets, with a reset if the peers should see one."""
        if self._closed:
            return
        self._closed = True
        for timer in (self._half_closed, self._muted):
            if timer is not None:
                timer.cancel()
        self._services.memory.release(self)
        self._up.detach()
        self._down.detach()
        for side in (self._client, self._broker):
            if reset:
                close_with_reset(side)
            else:
                side.close()
        self._on_close(self, reason, error)
        # These refer back to this relay. Without the cycle, Python frees the kept bytes at once.
        self._refused = None
        self._session.close()
        del self._session, self._up, self._down

    def retire(self) -> None:
        """Close between two requests, or while only a Fetch waits. Until then, take requests.

        A request that the client sends before it sees the end has no answer, and a push is not
        repeated. So the connection closes when the client has been silent for a while. A consumer
        has a Fetch in flight nearly all the time, and repeats it.
        """
        self._retired = True
        self._last_moved = self._loop.time()
        self._up.supervised = self._down.supervised = True

    def drain(self) -> None:
        """Take no further request, but carry the responses that are still due."""
        self._draining = True
        self._last_moved = self._loop.time()
        requests = self._session.requests
        self._up.limit = lambda: requests.due or 1
        self._up.supervised = self._down.supervised = True
        self._pause_as_needed()

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes read so far from the client and from the broker."""
        return self._up.bytes_read, self._down.bytes_read

    def is_drained(self, now: float) -> bool:
        """Return whether the connection may close.

        While it still takes requests, it must be silent, with none in flight but a Fetch.

        Later, no response must be due. A request in flight may be a Produce with acks=0, which gets
        no response. So a connection with requests in flight counts as drained after
        :data:`_QUIET_S` seconds of silence.

        Args:
            now: The loop's time.
        """
        session, silent_s = self._session, now - self._last_moved
        if session.due or session.responses.due or not self._down.flushed:
            return False
        if not self._draining:
            return silent_s >= _SETTLED_S and (
                session.only_polls or not (session.awaiting or session.in_flight)
            )
        return not session.awaiting and (not session.in_flight or silent_s >= _QUIET_S)

    # -- called by the directions, also after they have caused the relay to close ------------------

    def opposite(self, direction: Direction) -> Direction:
        """Return the other direction."""
        return self._down if direction is self._up else self._up

    def charge(self, started: float) -> None:
        """Charge the client for CPU time since ``started``, and mute it over its limit."""
        if self._session.take_worked():
            self.spent(self.cpu() - started)

    def spent(self, seconds: float) -> None:
        """Charge the client for seconds of CPU time, and mute it over its limit."""
        services = self._services
        now = services.clock.monotonic()
        services.limits.spent(self.identity, seconds, now)
        services.core.report_soon()
        if self._muted is None and (exceeded := services.limits.overspent(self.identity, now)) is not None:
            services.log.limit_exceeded(self.identity, exceeded)
            self._mute_client(now)

    def moved(self) -> None:
        """Execute the session's effects and act on its state after bytes were moved."""
        if not self._closed:
            self._execute_effects()
        if not self._closed:
            self._follow_session()

    def _execute_effects(self) -> None:
        try:
            for effect in self._session.take_effects():
                self._execute(effect)
                if self._closed:
                    return
            if self._session.closing is None:
                self._report_identity()
        except Exception as error:  # a bug must end this connection only
            self.fail(error)

    def _execute(self, effect: Effect) -> None:
        services = self._services
        services.events.report(self.identity, effect)
        match effect:
            case TelemetryCall(request=request):
                self._report_identity()
                self._learn_instance(request.client_instance_id)
                services.core.call(self.number, effect, self._answered)
            case ConfigCall():
                self._report_identity()
                services.core.call_configs(self.number, effect, self._answered)
            case IdentityChanged(identity):
                instance = self.identity.client_instance_id
                self.identity = identity
                self._identity_changed = True
                if identity.client_instance_id is None and instance is not None:
                    self._learn_instance(instance)
            case LoginEnded(_, outcome) if outcome is not LoginOutcome.FAILED:
                self._authenticated()
            case Flooded():
                services.limits.flooded(self.identity, services.clock.monotonic())

    def _learn_instance(self, instance: Uuid) -> None:
        """Keep the client instance id of a request for the log; the core learns it by itself."""
        if instance != self.identity.client_instance_id and instance not in RESERVED_UUIDS:
            self.identity = replace(self.identity, client_instance_id=instance)

    def _report_identity(self) -> None:
        """Tell the core who the client is, unless it is refused for that."""
        if self._identity_changed:
            self._identity_changed = False
            self._services.core.changed(self.number, self.identity)

    def _authenticated(self) -> None:
        services = self._services
        exceeded = services.limits.authenticated(self.identity, services.clock.monotonic())
        if exceeded is not None:
            services.log.limit_exceeded(self.identity, exceeded)
            self._session.end(SessionEnd.LIMIT)

    def _answered(self, answer: Answer) -> None:
        """Send the core's answer to a call, which may come much later."""
        if self._closed:
            return
        try:
            if answer.throttled:
                self._mute_client(self._services.clock.monotonic())
            if out := self._session.answered(answer.token, answer.frame):
                self._down.give(out)
            if not self._closed:
                self._follow_session()
        except Exception as error:  # a bug must end this connection only
            self.fail(error)

    def _follow_session(self) -> None:
        session = self._session
        if session.closing is not None:
            self._up.paused = True
            self._up.update()
            if self._down.flushed:
                self.close(CloseReason(session.closing))
            return
        if not self._draining:
            self._up.limit = session.bytes_in_a_turn if session.looks_at_headers else None
        self._pause_as_needed()
        self._count_memory()
        if self._retired or self._draining:
            self._last_moved = self._loop.time()

    def backed_up(self) -> None:
        """Count the bytes that wait for a slow reader."""
        if not self._closed:
            self._count_memory()

    def _count_memory(self) -> None:
        requests, up, down = self._session.requests, self._up, self._down
        held_bytes = self._session.held_bytes + up.held_bytes + down.held_bytes
        self._services.memory.update(self, held_bytes, requests.frames if requests.held else None)

    def _pause_as_needed(self) -> None:
        # A draining relay stops reading at the end of a request, so that it cuts none. If it had
        # paused in the middle of a request, it reads the rest once the due responses are sent.
        # Otherwise, the relay does not read from a client that does not read its responses.
        waits = not self._session.due if self._draining else not self._down.flushed
        session, down = self._session, self._down
        congested = session.congested
        self._up.paused = waits or self._muted is not None or congested
        self._up.update()
        # Responses that pass unchanged end it too.
        down.supervised = congested or self._retired or self._draining
        # The answer to a call comes before everything that the broker says after it.
        down.limit = session.response_bytes_in_a_turn if session.may_call else None
        if down.paused != session.calling:
            down.paused = session.calling
            down.update()

    def _mute_client(self, now: float) -> None:
        if self._muted is not None:
            self._muted.cancel()
        self._muted = self._loop.call_later(self._mute.refused(now), self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self.moved()

    def ended(self, direction: Direction) -> None:
        """Handle the end of one direction; the other one must end soon."""
        if self._closed:
            return
        if self._ended_first is None:
            self._ended_first = self._reason_of(
                direction, CloseReason.CLIENT_CLOSED, CloseReason.BROKER_CLOSED
            )
        if self._down.finished and (self._up.finished or self._refused is not None):
            self._close_as_ended()
        elif self._half_closed is None:
            self._close_within(_HALF_CLOSED_S)

    def _close_within(self, seconds: float) -> None:
        if self._half_closed is not None:
            self._half_closed.cancel()
        self._half_closed = self._loop.call_later(seconds, self._close_as_ended)

    def _close_as_ended(self) -> None:
        if self._ended_first is not None:
            self.close(self._ended_first, self._refused)

    def reset_by(self, direction: Direction, error: OSError) -> None:
        """Handle a failed source: after a reset both peers see a reset.

        After a TLS error both peers see an orderly end, because OpenSSL has sent an alert.
        """
        if self._closed:  # by the other direction, in the same turn
            return
        if self._refused is not None:
            self._close_as_ended()
            return
        if isinstance(error, ssl.SSLError):
            reason = self._reason_of(direction, CloseReason.CLIENT_TLS_ERROR, CloseReason.BROKER_TLS_ERROR)
            self.close(reason, error)
            return
        reason = self._reason_of(direction, CloseReason.CLIENT_RESET, CloseReason.BROKER_RESET)
        self.close(reason, reset=True)

    def lose(self, direction: Direction, error: OSError) -> None:
        """Handle a failed sink."""
        if not self._closed:
            self.reset_by(self.opposite(direction), error)

    def refuse(self, direction: Direction, error: BrokenStreamError) -> None:
        """Handle malformed bytes from the source of a direction.

        A broker answers the requests in front of malformed bytes and then closes. So the relay
        sends it malformed bytes too: its responses still reach the client in order, and then the
        broker closes.
        """
        if direction is self._down:
            self._down.give(error.before)
            self.close(CloseReason.BROKER_PROTOCOL_ERROR, error)
            return
        self._execute_effects()
        if self._closed:
            return
        self._refused = error
        self._ended_first = CloseReason.CLIENT_PROTOCOL_ERROR
        self._up.give(error.before + END_OF_REQUESTS)
        if not self._closed:
            self._pause_as_needed()
            self._up.paused = True
            self._up.update()
            self._close_within(_REFUSED_S)

    def fail(self, error: Exception) -> None:
        """Close after an unexpected exception in our code."""
        self.close(CloseReason.INTERNAL_ERROR, error)

    def ended_by_core(self, reason: str) -> None:
        """Close because the core demands it; both peers see a reset, like a refused client."""
        self.close(CloseReason(reason), reset=True)

    def close_for_held_bytes(self) -> None:
        """Close because all connections together hold too many bytes."""
        self.close(CloseReason.HELD_BYTES)

    def close_for_request_timeout(self) -> None:
        """Close because a request took too long to arrive."""
        self.close(CloseReason.REQUEST_TIMEOUT)

    def _direction(self, source: socket.socket, sink: socket.socket, rewriter: FrameRewriter) -> Direction:
        loop, share, meters = self._loop, self._share, self._session.rewrites_addresses
        if isinstance(source, TlsSocket):
            return TlsDirection(self, loop, source, sink, rewriter, share, meters=meters)
        return Direction(self, loop, source, sink, rewriter, share, meters=meters)

    def _reason_of(self, direction: Direction, client: CloseReason, broker: CloseReason) -> CloseReason:
        return client if direction is self._up else broker
