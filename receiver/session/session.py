"""One proxied connection: both of its directions, and the answers that are ours.

Everything passes byte for byte, but for these requests:

- ApiVersions goes on under a correlation id of ours, in a version that the broker speaks, and its answer is
  edited on the way back (:mod:`receiver.session.api_versions` has the rules);
- GetTelemetrySubscriptions and PushTelemetry stay here. In their place the broker gets a marker;
- SaslHandshake and SaslAuthenticate pass, and so do their answers, but who logs in is looked at
  (:mod:`receiver.session.login`);
- CreateDelegationToken and DescribeDelegationToken pass likewise, but whose a token is is looked at
  (:mod:`receiver.session.delegation_tokens`);
- SaslHandshake version 0 ends our look at the connection: what follows it are bare tokens without a request
  header, and a token may look like any request (a PLAIN token of a user "Gina" looks like key 71).

**Order.** Kafka answers the requests of a connection in order, but Produce with acks=0 has no answer, so
counting answers goes wrong. A request that we answer is therefore exchanged for a *marker*, a tiny request
whose answer is exchanged for ours: the order is then the broker's own. The marker of a telemetry request is
Metadata for no topics, which a broker answers to authenticated connections only: so the broker decides who
may push, and a push counts when the marker's answer is there. Between SaslHandshake and the end of
authentication a broker answers anything, with ILLEGAL_SASL_STATE, before it closes: so an answer that is an
error is passed on as that error, and nothing is decided. The marker of an ApiVersions request is ApiVersions
in a version that nobody has. It is answered to anybody, as the request itself is, and changes nothing with
the broker: a version that it had would count as the one ApiVersions that it takes before SaslHandshake, and
a client that falls back from a newer version could not log in.

**The short cut.** Where nothing is in flight there is no order to keep, and the answer can go out at once.
Each answer belongs to one request before it, so nothing is in flight when as many answers have passed as
requests; a Produce with acks=0 makes the two differ for good, and the marker stays. It is taken only where
the broker has answered a marker on this connection, and never with SASL, where a login can expire.

**A turn.** What a client sends must not keep other clients waiting. One turn of the event loop
decides at most one push of a connection and reads some hundred of its headers; see
:meth:`Session.bytes_in_a_turn` and :meth:`Session.answer_bytes_in_a_turn`. The CPU time of all this
is charged to the client's source address and principal, before its login too. A client that is over
its limit is not read from for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from struct import Struct
from typing import Final, TypeVar

from receiver.session.api_versions import ApiVersionsRequests
from receiver.session.delegation_tokens import DelegationTokens
from receiver.session.events import SessionEvents
from receiver.session.login import WATCHED as WATCHED_BY_LOGIN
from receiver.session.login import Login, LoginOutcome
from receiver.session.messages import (
    error_answer,
    marker,
    offset_delete_answer,
    under,
    unknown_version_request,
    without_tagged_fields,
)
from receiver.session.pending import Answering, Pending, PendingRequests
from receiver.session.request_headers import RequestHeaders
from receiver.session.telemetry_requests import Clock, TelemetryRequests
from receiver.session.upstream import Upstream
from receiver.telemetry.connection import UNKNOWN_PRINCIPAL, Broker, Connection
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire import api_keys, k47_offset_delete
from receiver.wire.error_codes import ErrorCode
from receiver.wire.errors import WireError
from receiver.wire.framing import RequestRewriter, ResponseRewriter, frame, frame_start
from receiver.wire.headers import RequestHeader
from receiver.wire.primitives import Reader

__all__ = ["HEADER_BYTES_IN_A_TURN", "WATCHED_KEYS", "Session", "SessionEnd"]

#: Requests that do not just pass.
WATCHED_KEYS: Final = WATCHED_BY_LOGIN | {
    api_keys.API_VERSIONS,
    api_keys.GET_TELEMETRY_SUBSCRIPTIONS,
    api_keys.PUSH_TELEMETRY,
}

#: Room that a watched request may take besides a push's metrics: a client id and a software name and version
#: have at most 32,767 bytes each.
_MAX_AROUND_METRICS: Final = 131_072

#: Longest answer of the broker's that we read: ApiVersions, or Metadata for no topics of a large cluster.
_MAX_ANSWER_BYTES: Final = 4_194_304

#: Longest answer that is read to learn who somebody is, and not just passed on: some two thousand delegation
#: tokens, which take a hundredth of a second.
_MAX_OBSERVED_BYTES: Final = 262_144

#: Answers that may be outstanding before the client is no longer read from.
_MAX_PENDING: Final = 16

#: Requests for us in one go after which the connection is given up. A chunk holds thousands of small ones,
#: and all clients wait while they are answered; a client of good will has one or two outstanding.
_MAX_OUTSTANDING: Final = 32

#: Bytes of further requests that are taken in one turn while each header is looked at: at most 43 headers of
#: twelve bytes, which take less than a millisecond.
HEADER_BYTES_IN_A_TURN: Final = 512

#: What tells how long an answer is, and whether it is an awaited one: its length and its correlation id.
_ANSWER_HEAD_BYTES: Final = 8

_GREATEST_INT32: Final = 2_147_483_647

_SASL: Final = frozenset({api_keys.SASL_HANDSHAKE, api_keys.SASL_AUTHENTICATE})

_KEY = Struct(">h")

#: What goes out in a frame's place.
_Replacement = TypeVar("_Replacement")


class SessionEnd(StrEnum):
    """Why a session wants its connection closed."""

    INVALID_REQUEST = "invalid_request"
    LIMIT = "limit"


class Session:
    """What happens to each frame of one connection, in each direction.

    Args:
        connection: The connection's entry in the registry; kept up to date here.
        broker: Who the broker is; its cluster id is learned here.
        upstream: What the broker speaks; kept up to date here.
        telemetry: The telemetry core.
        limits: What one peer may take.
        events: Told of every request that is answered or edited here.
        clock: The time.
        random_bits: Gives so many random bits as an integer, as ``random.SystemRandom.getrandbits`` does: a
            client must not be able to foresee them.
        max_frame_bytes: Largest request a client may announce.
        max_push_bytes: Most bytes of metrics that the core takes; a longer push is cut, as it is refused.
        principal_claim: The claim of an OAUTHBEARER token that names the principal.
        delegation_tokens: Whose they are, as all sessions in front of the broker know it.

    Attributes:
        requests: What becomes of the client's bytes.
        responses: What becomes of the broker's bytes.
        closing: Set once the connection has to be closed after what was returned so far has been sent.
    """

    __slots__ = (
        "_answered_here",
        "_answers",
        "_api_versions",
        "_can_expire",
        "_clock",
        "_connection",
        "_deciding",
        "_events",
        "_headers",
        "_limits",
        "_login",
        "_max_held_bytes",
        "_opaque",
        "_pending",
        "_telemetry",
        "_upstream",
        "closing",
        "requests",
        "responses",
    )

    def __init__(
        self,
        *,
        connection: Connection,
        broker: Broker,
        upstream: Upstream,
        telemetry: ClientTelemetry,
        limits: Limits,
        events: SessionEvents,
        clock: Clock,
        random_bits: Callable[[int], int],
        max_frame_bytes: int,
        max_push_bytes: int,
        principal_claim: str,
        delegation_tokens: DelegationTokens,
    ) -> None:
        self._connection = connection
        self._upstream = upstream
        self._limits = limits
        self._events = events
        self._clock = clock
        self._headers = RequestHeaders(connection, upstream)
        self.requests = RequestRewriter(
            self._charge(self._replace_request),
            replace_head=self._charge_until_decided(self._replace_head),
            header_version=self._headers.version,
            watched=WATCHED_KEYS | {api_keys.OFFSET_DELETE} if upstream.translates else WATCHED_KEYS,
            max_frame_bytes=max_frame_bytes,
            max_watched_bytes=max_push_bytes + _MAX_AROUND_METRICS,
        )
        self.responses = ResponseRewriter(
            self._charge(self._replace_response),
            replace_correlation_id=self._pass_unread,
            max_frame_bytes=_GREATEST_INT32,
            max_watched_bytes=_MAX_ANSWER_BYTES,
        )
        self.requests.every = True  # until the first request has been seen (KIP-1313)
        self._pending = PendingRequests(random_bits)
        self._max_held_bytes = 2 * max_push_bytes
        self._login = Login(
            connection,
            principal_claim=principal_claim,
            delegation_tokens=delegation_tokens,
            on_outcome=self._logged_in,
        )
        self._can_expire = self._login.required  # whether the broker might not answer a marker again
        self._api_versions = ApiVersionsRequests(
            connection=connection, broker=broker, upstream=upstream, events=events
        )
        self._telemetry = TelemetryRequests(
            connection=connection,
            broker=broker,
            telemetry=telemetry,
            limits=limits,
            login=self._login,
            events=events,
            clock=clock,
            max_push_bytes=max_push_bytes,
        )
        self._opaque = False
        self._deciding = 0  # telemetry requests that the broker's answers will let be decided
        self._answered_here = 0  # requests that the broker has never heard of
        self._answers: list[bytes] = []
        self.closing: SessionEnd | None = None

    def take_answers(self) -> bytes:
        """Return what goes to the client at once, behind everything that :attr:`responses` has let out.

        To be asked each time that :attr:`requests` has let out something else than what it was given.
        """
        if not self._answers:
            return b""
        answers = b"".join(self._answers)
        self._answers.clear()
        return answers

    def watch_storing(self, on_storing: Callable[[], None]) -> None:
        """Have a change of :attr:`storing` told; where it begins, before the answer is let out."""
        self._telemetry.on_storing = on_storing

    @property
    def storing(self) -> bool:
        """Whether an answer has to wait until a push is stored, and all behind it: Kafka answers in order."""
        return self._telemetry.unstored > 0

    def storing_takes_too_long(self) -> None:
        """Learn that answers wait no more; the client must not suffer from a disk of ours."""
        self._telemetry.storing_takes_too_long()

    def take_mute(self) -> float:
        """Return for how many seconds from now the client should not be read from: 0 for most.

        It is how Kafka holds a client to its quota (KIP-219): the answer goes out, the next request waits.
        To be asked as :meth:`take_answers`.
        """
        return self._telemetry.take_mute()

    def close(self) -> None:
        """Forget the parts that refer back to it, so that what they keep is free at once.

        Nothing may be asked of it any more.
        """
        del self.requests, self.responses, self._pending, self._login, self._telemetry

    @property
    def held_bytes(self) -> int:
        """Memory that requests keep that are not whole or wait for an answer."""
        return self.requests.held + self._pending.held_bytes

    @property
    def congested(self) -> bool:
        """Whether so many answers are outstanding that the client should not be read from for now."""
        return len(self._pending) >= _MAX_PENDING or self._pending.held_bytes > self._max_held_bytes

    @property
    def due(self) -> int:
        """How many more bytes the client has to send to end the request at hand; 0 between two requests."""
        return self.requests.due

    @property
    def looks_at_headers(self) -> bool:
        """Whether each request's header is looked at: the first one's, or for translation (KIP-1313)."""
        return self.requests.every

    def bytes_in_a_turn(self) -> int:
        """How many bytes of the client's may be taken in one turn while each header is looked at."""
        return self.requests.due + HEADER_BYTES_IN_A_TURN

    @property
    def decides_later(self) -> bool:
        """Whether the broker's next bytes could let more than one telemetry request be decided."""
        return self._deciding > 1

    def answer_bytes_in_a_turn(self) -> int:
        """How many bytes of the broker's may be taken in one turn so that one answer at most is whole."""
        return self.responses.due or _ANSWER_HEAD_BYTES

    @property
    def in_flight(self) -> bool:
        """Whether the broker may owe an answer: for good, once there was a Produce with acks=0."""
        return self._unanswered != 0

    @property
    def awaiting(self) -> bool:
        """Whether an answer of ours is still outstanding."""
        return bool(self._pending)

    # -- requests -------------------------------------------------------------------------------------

    def _replace_request(self, request: bytes, length: int) -> bytes:
        self._check_outstanding()
        (api_key,) = _KEY.unpack_from(request)
        if length > len(request) and api_key != api_keys.PUSH_TELEMETRY:
            raise WireError(
                expected=f"at most {len(request)} bytes of {api_keys.api_name(api_key)}",
                offset=0,
                found=str(length),
            )
        header, reader = self._headers.read(request)
        if not self._admits(header):
            return self._refuse(header)
        if api_key == api_keys.OFFSET_DELETE:
            return self._replace_offset_delete(header, reader, request)
        if self._headers.is_translated(header):
            request = self._headers.before(header) + request[reader.offset :]
            header, reader = self._headers.read(request)
        header = without_tagged_fields(header)
        if api_key == api_keys.API_VERSIONS:
            return self._replace_api_versions(header, reader, request)
        if api_key in WATCHED_BY_LOGIN:
            return self._watch_login(header, reader, request)
        return self._replace_telemetry(header, reader, cut=length > len(request), held_bytes=len(request))

    def _watch_login(self, header: RequestHeader, reader: Reader, request: bytes) -> bytes:
        self._can_expire |= header.api_key in _SASL
        if header.api_key == api_keys.SASL_HANDSHAKE and header.api_version == 0:
            self._watch_no_longer()
            self._connection.principal = UNKNOWN_PRINCIPAL
            return frame(request)
        observing = self._login.observe(header, reader)

        def observe(response: bytes) -> bytes:
            observing(response)
            return frame(under(header.correlation_id, response, at=0))

        # Nothing of the request is kept: it may hold a password or a token.
        correlation_id = self._pending.add(
            observe, 0, max_read_bytes=_MAX_OBSERVED_BYTES, passes_as=header.correlation_id
        )
        self._await_next()
        return frame(under(correlation_id, request))

    def _logged_in(self, mechanism: str, outcome: LoginOutcome) -> None:
        self._events.login_ended(self._connection, mechanism, outcome)
        if outcome is not LoginOutcome.FAILED:
            exceeded = self._limits.authenticated(self._connection, self._clock.monotonic())
            if exceeded is not None:
                self._events.limit_exceeded(self._connection, exceeded)
                self._end(SessionEnd.LIMIT)

    def _replace_api_versions(self, header: RequestHeader, reader: Reader, request: bytes) -> bytes:
        exchange = self._api_versions.exchange(header, reader, request)
        if not exchange.closes:
            return frame(exchange.request(self._expect(exchange.answer, len(request))))
        # A broker reads no further either, so nothing behind this request may have an effect.
        self.requests.stop_passing()

        def answer_and_end(response: bytes) -> bytes:
            self._end(SessionEnd.INVALID_REQUEST)
            return exchange.answer(response)

        return frame(exchange.request(self._expect(answer_and_end, len(request))))

    def _replace_telemetry(
        self, header: RequestHeader, reader: Reader, *, cut: bool, held_bytes: int
    ) -> bytes:
        answer = self._telemetry.take(header, reader, cut=cut)
        if self._may_answer_now():
            self._answered_here += 1
            self._answers.append(answer())
            return b""
        version = self._upstream.metadata_version()

        def decide(response: bytes) -> bytes:
            self._deciding -= 1
            return self._telemetry.answer(header, answer, response, version)

        self._deciding += 1
        correlation_id = self._expect(decide, held_bytes)
        return marker(self._headers.client_id(header), version, correlation_id)

    def _may_answer_now(self) -> bool:
        """Whether the short cut is open: only the request at hand, already counted, has no answer yet.

        One answer at a time goes this way, so that one chunk of bytes makes the receiver decide one push.
        """
        return (
            self._telemetry.vouched
            and not self._answers
            and not self._can_expire
            and self._unanswered == 1
            and not self.responses.due
        )

    @property
    def _unanswered(self) -> int:
        """How many requests, of those that are the broker's to answer, have no answer yet."""
        return self.requests.frames - self._answered_here - self.responses.frames

    def _expect(self, answering: Answering, held_bytes: int) -> int:
        correlation_id = self._pending.add(answering, held_bytes)
        self._await_next()
        return correlation_id

    def _await_next(self) -> None:
        first, responses = self._pending.first, self.responses
        responses.awaited = None if first is None else first.correlation_id
        responses.replaces_up_to = (first and first.max_read_bytes) or _GREATEST_INT32

    def _check_outstanding(self) -> None:
        if len(self._pending) + len(self._answers) >= _MAX_OUTSTANDING:
            self._limits.flooded(self._connection, self._clock.monotonic())
            raise WireError(
                expected=f"at most {_MAX_OUTSTANDING} requests for the receiver before an answer",
                offset=0,
                found="one more",
            )

    def _watch_no_longer(self) -> None:
        self.requests.stop_watching()
        self._opaque = True
        if not self._pending:
            self.responses.stop_watching()

    def _end(self, end: SessionEnd) -> None:
        """Close the connection behind the answer at hand."""
        self.requests.stop_passing()
        self.responses.stop_passing()
        self.closing = end

    # -- CPU time -------------------------------------------------------------------------------------

    def _charge(self, replace: Callable[[bytes, int], _Replacement]) -> Callable[[bytes, int], _Replacement]:
        """Charge the client for the CPU time of a call; mute it where it is over its limit."""
        clock, limits, connection = self._clock, self._limits, self._connection

        def charged(frame_bytes: bytes, length: int) -> _Replacement:
            started = clock.cpu()
            try:
                return replace(frame_bytes, length)
            finally:
                now = clock.monotonic()
                limits.spent(connection, clock.cpu() - started, now)
                if not self._telemetry.mutes and (exceeded := limits.overspent(connection, now)) is not None:
                    self._events.limit_exceeded(connection, exceeded)
                    self._telemetry.mute()

        return charged

    def _charge_until_decided(
        self, replace: Callable[[bytes, int], _Replacement]
    ) -> Callable[[bytes, int], _Replacement]:
        """The same for headers that are looked at to learn who the client is.

        Headers that are translated are not charged: they are the client's own traffic, which is the broker's
        to limit. The event loop's shares keep their cost from others.
        """
        charged, headers = self._charge(replace), self._headers

        def charged_until_decided(head: bytes, length: int) -> _Replacement:
            return (replace if headers.decided else charged)(head, length)

        return charged_until_decided

    # -- request headers (KIP-1313) -------------------------------------------------------------------

    def _replace_head(self, head: bytes, length: int) -> tuple[bytes, bool]:
        header, _ = self._headers.read(head)
        if not self._admits(header):
            return self._refuse(header), False
        passes = self._headers.before(header) if self._headers.is_translated(header) else head
        return frame_start(passes, length - len(head)), True

    def _admits(self, header: RequestHeader) -> bool:
        admitted = self._headers.admit(header)
        self.requests.every = self._headers.all_matter
        return admitted

    def _refuse(self, header: RequestHeader) -> bytes:
        header = without_tagged_fields(header)
        refusal = error_answer(header, ErrorCode.INVALID_REQUEST)
        if refusal is None:
            raise WireError(
                expected="the client instance id of the connection's first request (KIP-1313)",
                offset=0,
                found="another one, or none",
            )
        self._check_outstanding()

        def answer(_: bytes) -> bytes:
            self._events.client_instance_refused(self._connection, header)
            return refusal

        return frame(unknown_version_request(header, self._expect(answer, 0)))

    def _replace_offset_delete(self, header: RequestHeader, reader: Reader, request: bytes) -> bytes:
        if not self._headers.is_translated(header):
            return frame(request)
        translated = self._headers.before(header) + k47_offset_delete.request_to_v0(reader)
        kept = without_tagged_fields(header)
        correlation_id = self._expect(lambda response: offset_delete_answer(kept, response), 0)
        return frame(under(correlation_id, translated))

    # -- answers --------------------------------------------------------------------------------------

    def _replace_response(self, response: bytes, length: int) -> bytes:
        if length > len(response):
            raise WireError(
                expected=f"an answer of at most {_MAX_ANSWER_BYTES} bytes", offset=0, found=f"{length} bytes"
            )
        return self._take_pending().answering(response)

    def _pass_unread(self) -> int:
        return self._take_pending().passes_as

    def _take_pending(self) -> Pending:
        pending = self._pending.take()
        self._await_next()
        if self._opaque and not self._pending:
            self.responses.stop_watching()
        return pending
