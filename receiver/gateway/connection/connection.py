"""One connection: moves bytes between a client and its broker.

Owns how the two directions affect each other: back-pressure, half-close, drain and close. The
session decides what to do with the bytes.

Back-pressure: the connection keeps what one side can't take (at most one buffer), and does not read
from the other side until that is sent. So a slow reader slows only its own peer. The kept bytes
count in :mod:`receiver.gateway.connection.request_memory`.

The states are in :mod:`receiver.gateway.connection.states`.
"""

from __future__ import annotations

import socket
import ssl
from asyncio import TimerHandle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from receiver.clock import Clock
from receiver.event_loop import DirectEventLoop
from receiver.gateway.connection.closing import CloseReason, close_with_reset, has_unsent, is_reset
from receiver.gateway.connection.direction import Direction
from receiver.gateway.connection.mute import Mute
from receiver.gateway.connection.request_memory import RequestMemory
from receiver.gateway.connection.states import TRANSITIONS, State
from receiver.gateway.connection.tls_direction import TlsDirection
from receiver.gateway.connection.tls_socket import TlsSocket
from receiver.gateway.core_link import CoreLink
from receiver.gateway.events import GatewayEvents
from receiver.gateway.spread import Spread
from receiver.link.messages import Answer
from receiver.request_log import RequestLog
from receiver.session.call import OpenCall
from receiver.session.effects import (
    Effect,
    Flooded,
    IdentityChanged,
    LoginEnded,
    LoginOutcome,
)
from receiver.session.exchange import SessionEnd
from receiver.session.session import Session
from receiver.telemetry.control.limits import LimitName, Limits
from receiver.telemetry.identity import ClientIdentity
from receiver.traffic.table import EXTRA, RelayTable
from receiver.turns import Share
from receiver.wire.errors import WireError
from receiver.wire.frame_rewriter import END_OF_REQUESTS, BrokenStreamError, FrameRewriter
from receiver.wire.uuid import Uuid

#: Seconds for which one direction may stay open after the other has ended. Kafka clients and
#: brokers close both directions; only a peer that disappeared leaves a connection half-open.
_HALF_CLOSED_S: Final = 60.0

#: Seconds that a broker has to answer the requests in front of malformed bytes.
_REFUSED_S: Final = 5.0

#: Seconds in which the bytes of a peer that is gone reach the other one.
_FAILED_S: Final = 5.0

#: Seconds of silence after which a retired connection may close between two requests. A client
#: often sends its next request, perhaps a push, right after a response.
_SETTLED_S: Final = 0.05

#: Seconds of silence after which a draining connection no longer waits for a response that may be
#: due. Longer than a consumer's fetch.max.wait.ms, which is 500 ms by default.
_QUIET_S: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionServices:
    """What all connections share.

    Attributes:
        core: The link to the core, which answers calls.
        limits: The limits of each peer.
        memory: The memory that requests hold.
        events: Counts and logs effects.
        log: The request log.
        clock: Source of time.
        spread: Counts the connections, so that all relays have as many.
        traffic: Where connections count what they move.
    """

    core: CoreLink
    limits: Limits
    memory: RequestMemory
    events: GatewayEvents
    log: RequestLog
    clock: Clock
    spread: Spread
    traffic: RelayTable


class Connection:
    """Both directions of a connection, from the time that the broker is connected.

    Args:
        number: Its number on this relay.
        identity: Who the client is, so far.
        client: The client's socket, non-blocking; the connection owns it.
        broker: The broker's socket, non-blocking; the connection owns it.
        services: What all relays share.
        share: The share of each event loop turn that the client's address block may use.
        on_close: Called once when both sockets are closed, with the reason and the error behind it.

    Attributes:
        number: As given.
        identity: Who the client is.
        slot: Its counters.
        cpu: Returns the seconds of CPU time that the thread has used.
    """

    __slots__ = (
        "_broker",
        "_client",
        "_deadline",
        "_down",
        "_ended_first",
        "_failed",
        "_identity_changed",
        "_last_moved",
        "_loop",
        "_mute",
        "_muted",
        "_on_close",
        "_refused",
        "_services",
        "_session",
        "_share",
        "_state",
        "_up",
        "cpu",
        "identity",
        "number",
        "slot",
    )

    def __init__(
        self,
        loop: DirectEventLoop,
        number: int,
        identity: ClientIdentity,
        client: socket.socket,
        broker: socket.socket,
        session: Session,
        services: ConnectionServices,
        share: Share,
        on_close: Callable[[Connection, CloseReason, Exception | None], None],
    ) -> None:
        self._loop = loop
        self._client = client
        self._broker = broker
        self._session = session
        self._services = services
        self._share = share
        self._on_close = on_close
        self._state = State.OPEN
        self._deadline: TimerHandle | None = None  # of a state that has to end soon
        self._muted: TimerHandle | None = None
        self._mute = Mute()
        self._ended_first: CloseReason | None = None
        self._refused: BrokenStreamError | None = None
        self._failed: Direction | None = None  # the direction whose sink is gone
        self._identity_changed = False
        self._last_moved = 0.0
        self.number = number
        self.identity = identity
        self.cpu = services.clock.cpu
        self.slot = services.traffic.take(number)
        session.requests.note_versions(self.slot.seen)
        self._up = self._direction(client, broker, session.requests)
        self._down = self._direction(broker, client, session.responses)
        self._up.limit = session.bytes_in_a_turn  # until the first request has been seen

    def start(self) -> None:
        """Begin to move bytes."""
        self._up.update()
        self._down.update()

    @property
    def _closed(self) -> bool:
        return self._state is State.CLOSED

    def _enter(self, state: State) -> bool:
        """Move on to a state; return whether the table allows it."""
        if state not in TRANSITIONS[self._state]:
            return False
        self._state = state
        return True

    def close(self, reason: CloseReason, error: Exception | None = None, *, reset: bool = False) -> None:
        """Close both sockets, with a reset if the peers should see one."""
        if not self._enter(State.CLOSED):
            return
        for timer in (self._deadline, self._muted):
            if timer is not None:
                timer.cancel()
        self._services.memory.release(self)
        self._up.detach()
        self._down.detach()
        for side in (self._client, self._broker):
            # A reset would discard what a peer that has failed had sent before.
            if reset and not (self._failed is not None and has_unsent(side)):
                close_with_reset(side)
            else:
                side.close()
        self._on_close(self, reason, error)
        # These refer back here. Without the cycle, Python frees the kept bytes at once.
        self._refused = self._failed = None
        self._session.close()
        del self._session, self._up, self._down

    def retire(self) -> None:
        """Close between two requests, or while only a Fetch waits.

        Until then, take requests.

        A request that the client sends before it sees the end has no answer, and a push is not
        repeated. So the connection closes when the client has been silent for a while. A consumer
        has a Fetch in flight nearly all the time, and repeats it.
        """
        self._enter(State.RETIRED)
        self._last_moved = self._loop.time()
        self._control_flow()

    def drain(self) -> None:
        """Take no further request, but carry the responses that are still due."""
        self._enter(State.DRAINING)
        self._last_moved = self._loop.time()
        self._control_flow()

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
        if self._state < State.DRAINING:
            return silent_s >= _SETTLED_S and (
                session.only_polls or not (session.awaiting or session.in_flight)
            )
        return not session.awaiting and (not session.in_flight or silent_s >= _QUIET_S)

    # -- called by the directions, also after they have closed the connection ----------------------

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
        if self._muted is not None:
            return
        exceeded = services.limits.over(LimitName.CORE_TIME, self.identity, now)
        if exceeded is not None:
            services.log.limit_exceeded(self.identity, exceeded)
            self._mute_client(now)
            self._control_flow()  # a chunk that passes is not followed by `moved`

    def passed(self) -> None:
        """Count memory and control the flow after many requests or responses passed."""
        if not self._closed and self._session.take_tracked():
            # Once the client has the broker's end, its own end looks like a reset.
            if self._failed is None and not self._down.ended and is_reset(self._client):
                self._peer_failed(self._down)
            self.moved()

    def moved(self) -> None:
        """Execute the session's effects and act on its state after bytes were moved."""
        if self._state is not State.CLOSED:
            self._execute_effects()
        if self._state is not State.CLOSED:
            self._follow_session()

    def _execute_effects(self) -> None:
        try:
            for effect in self._session.take_effects():
                self._execute(effect)
                if self._state is State.CLOSED:
                    return
            if self._identity_changed and self._session.closing is None:
                self._report_identity()
        except Exception as error:  # a bug must end this connection only
            self.fail(error)

    def _execute(self, effect: Effect) -> None:
        services = self._services
        if isinstance(effect, OpenCall):
            if self._identity_changed:
                self._report_identity()
            services.core.call(self.number, effect, self._answered)
            return
        services.events.report(self.identity, effect)
        match effect:
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
        """Keep the client instance id of the latest telemetry request.

        The core knows it.
        """
        self.identity = replace(self.identity, client_instance_id=instance)

    def _report_identity(self) -> None:
        """Tell the core who the client is now."""
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
        if self._state is State.CLOSED:
            return
        try:
            if answer.throttled:
                self._mute_client(self._services.clock.monotonic())
            if answer.instance is not None:
                self._learn_instance(answer.instance)
            if answer.malformed is not None:
                self._refuse_request(*answer.malformed)
            elif out := self._session.answered(answer.frame):
                self._down.give(out)
            if not self._closed:
                self._follow_session()
        except Exception as error:  # a bug must end this connection only
            self.fail(error)

    def _follow_session(self) -> None:
        if self._session.closing is not None:
            self._enter(State.ENDING)
        self._control_flow()
        if self._state is State.ENDING and self._down.flushed:
            self.close(CloseReason(self._session.closing or SessionEnd.INVALID_REQUEST))
            return
        if self._failed is not None and self._delivered(self._failed):
            self._close_as_ended()
            return
        self._count_memory()
        self._last_moved = self._loop.time()

    def most_buffered(self) -> int:
        """Return the bytes that a buffer of the system may take for a slow reader now."""
        return self._services.memory.most_buffered(self.identity.peers.block)

    def backed_up(self) -> None:
        """Count the bytes that wait for a slow reader."""
        if self._state is not State.CLOSED:
            self._count_memory()

    def _count_memory(self) -> None:
        self.slot.words[EXTRA] = self._session.extra_requests
        requests, up, down = self._session.requests, self._up, self._down
        incomplete = requests.held
        held_bytes = incomplete + self._session.waiting_bytes + up.held_bytes + down.held_bytes
        self._services.memory.update(self, held_bytes, requests.frames if incomplete else None)

    def _control_flow(self) -> None:
        """Set what the directions may read now; nothing else does."""
        session, state, up, down = self._session, self._state, self._up, self._down
        congested = session.congested
        if state is State.DRAINING:
            # Reading stops at the end of a request, so that none is cut. If it had paused in the
            # middle of a request, the rest is read once the due responses are sent.
            waits = not session.due
            up.limit = self._rest_of_request
        else:
            # A client that does not read its responses is not read from.
            waits = not down.flushed
            up.limit = session.bytes_in_a_turn if session.requests.reads_all_headers else None
        takes_nothing = state in (State.REFUSED, State.ENDING) or self._failed is up
        up.paused = takes_nothing or waits or congested or self._muted is not None
        # The answer to a call comes before everything that the broker says after it.
        down.limit = session.response_bytes_in_a_turn if session.may_call else None
        down.paused = session.calling or self._failed is down
        # Responses that pass unchanged end a congestion too.
        down.supervised = congested or state is not State.OPEN
        up.supervised = state in (State.RETIRED, State.DRAINING)
        up.update()
        down.update()

    def _rest_of_request(self) -> int:
        return self._session.requests.due or 1

    def _mute_client(self, now: float) -> None:
        if self._muted is not None:
            self._muted.cancel()
        self._muted = self._loop.call_later(self._mute.refused(now), self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self.moved()

    def ended(self, direction: Direction) -> None:
        """Handle the end of one direction; the other one must end soon."""
        if self._state is State.CLOSED:
            return
        if direction is self._up:
            # Its rest never comes, so it must not time out while responses are due.
            self._session.requests.end()
            self._count_memory()
        if self._ended_first is None:
            self._ended_first = self._reason_of(
                direction, CloseReason.CLIENT_CLOSED, CloseReason.BROKER_CLOSED
            )
        over = self._up.finished or self._refused is not None
        if (self._down.finished and over) or (self._failed is not None and self._delivered(self._failed)):
            self._close_as_ended()
        elif self._enter(State.HALF_CLOSED):
            self._close_within(_HALF_CLOSED_S)

    def _close_within(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(seconds, self._close_as_ended)

    def _close_as_ended(self) -> None:
        if self._ended_first is not None:
            self.close(self._ended_first, self._refused, reset=self._failed is not None)

    def _delivered(self, failed: Direction) -> bool:
        """Return whether a failed sink's peer has ended, and the other has all it sent."""
        return self.opposite(failed).finished

    def source_failed(self, direction: Direction, error: OSError) -> None:
        """Handle a failed source: after a reset both peers see a reset.

        After a TLS error both peers see an orderly end, because OpenSSL has sent an alert.
        """
        if self._state is State.CLOSED:  # by the other direction, in the same turn
            return
        if self._refused is not None:
            # What the broker has sent still goes to the client, also if the client reads slowly.
            if direction is self._down:
                direction.end_source()
            else:
                self._close_as_ended()
            return
        if isinstance(error, ssl.SSLError):
            reason = self._reason_of(direction, CloseReason.CLIENT_TLS_ERROR, CloseReason.BROKER_TLS_ERROR)
            self.close(reason, error)
            return
        self._peer_failed(self.opposite(direction))
        direction.end_source()

    def sink_failed(self, direction: Direction, error: OSError) -> None:
        """Handle a failed sink.

        What its peer had sent before still goes on to the other peer.
        """
        if self._state is State.CLOSED:
            return
        if self._refused is not None and direction is self._up:
            direction.drop()  # the broker is gone, and its responses may still be unread
            return
        if self._refused is not None or isinstance(error, ssl.SSLError):
            self.source_failed(self.opposite(direction), error)
            return
        self._peer_failed(direction)

    def _peer_failed(self, direction: Direction) -> None:
        """Take nothing more for the peer that a direction sends to."""
        if self._failed is None:
            self._failed = direction
            self._ended_first = self._reason_of(
                self.opposite(direction), CloseReason.CLIENT_RESET, CloseReason.BROKER_RESET
            )
            self._enter(State.FAILED)
            # Nobody sees an orderly end before the reset.
            self._up.shuts_down = self._down.shuts_down = False
            direction.drop()
            if direction is self._down:
                self._session.client_is_gone()
            self._close_within(_FAILED_S)
        self._control_flow()

    def refuse(self, direction: Direction, error: BrokenStreamError) -> None:
        """Handle malformed bytes from the source of a direction.

        A broker answers the requests in front of malformed bytes and then closes. So the connection
        sends it malformed bytes too: its responses still reach the client in order, and then the
        broker closes.
        """
        if direction is self._down:
            self._down.give(error.before)
            self.close(CloseReason.BROKER_PROTOCOL_ERROR, error)
            return
        self._execute_effects()
        if self._state is State.CLOSED:
            return
        self._refused = error
        self._ended_first = CloseReason.CLIENT_PROTOCOL_ERROR
        self._enter(State.REFUSED)
        self._up.give(error.before + END_OF_REQUESTS)
        if not self._closed:
            self._control_flow()
            self._close_within(_REFUSED_S)

    def _refuse_request(self, expected: str, offset: int, found: str) -> None:
        """Handle a request that the core can't read.

        Everything before it has been answered.
        """
        self._session.answered(None)
        error = WireError(expected=expected, offset=offset, found=found)
        self.refuse(self._up, BrokenStreamError(error, before=b""))

    def fail(self, error: Exception) -> None:
        """Close after an unexpected exception in our code."""
        self.close(CloseReason.INTERNAL_ERROR, error)

    def ended_by_core(self, reason: str) -> None:
        """Close because the core demands it.

        Both peers see a reset, like a refused client.
        """
        self.close(CloseReason(reason), reset=True)

    def close_for_held_bytes(self) -> None:
        """Close because all connections together hold too many bytes."""
        self.close(CloseReason.HELD_BYTES)

    def close_for_request_timeout(self) -> None:
        """Close because a request took too long to arrive."""
        self.close(CloseReason.REQUEST_TIMEOUT)

    def _direction(self, source: socket.socket, sink: socket.socket, rewriter: FrameRewriter) -> Direction:
        loop, share, meters = self._loop, self._share, self._session.rewrites_addresses
        words, from_client = self.slot.words, source is self._client
        if isinstance(source, TlsSocket):
            return TlsDirection(
                self, loop, source, sink, rewriter, share, words, from_client=from_client, meters=meters
            )
        return Direction(
            self, loop, source, sink, rewriter, share, words, from_client=from_client, meters=meters
        )

    def _reason_of(self, direction: Direction, client: CloseReason, broker: CloseReason) -> CloseReason:
        return client if direction is self._up else broker
